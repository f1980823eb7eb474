// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "io/text.h"

namespace k3::io {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kDTypeNames[] = {
    {DType::kBF16, "BF16"}, {DType::kF16, "F16"}, {DType::kF32, "F32"},
    {DType::kF64, "F64"},   {DType::kI8, "I8"},   {DType::kU8, "U8"},
    {DType::kI32, "I32"},   {DType::kI64, "I64"}, {DType::kF8E4M3, "F8_E4M3"},
};

/// Text of a file in an error.
std::string in_quotes(std::string_view text) { return "'" + printable(text, 60) + "'"; }

/// What the header says of one tensor.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// Receives the header from nlohmann's event parser, which does not recurse. Anything outside the
/// format's grammar stops the parse at once, so that depth and memory stay bounded by the bytes
/// read. Duplicate keys are refused here; a document tree would drop them silently.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool key(std::string& name) override {
    switch (at_) {
      case At::kRoot:
        if (!names_.insert(name).second)
          return fail("the name " + in_quotes(name) + " stands twice");
        is_metadata_ = name == "__metadata__";
        if (!is_metadata_) entries.push_back({name, {}, {}, {}});
        return true;
      case At::kMetadata:
        key_ = name;
        if (metadata.contains(name)) return fail("metadata " + in_quotes(name) + " stands twice");
        return true;
      default:
        return tensor_key(name);
    }
  }
  bool start_object(std::size_t) override {
    if (at_ == At::kOutside) return enter(At::kRoot);
    if (at_ != At::kRoot) return misplaced("an object");
    seen_ = {};
    return enter(is_metadata_ ? At::kMetadata : At::kTensor);
  }
  bool end_object() override {
    if (at_ == At::kTensor && !(seen_.dtype && seen_.shape && seen_.offsets))
      return fail(tensor() + " lacks dtype, shape or data_offsets");
    return enter(at_ == At::kRoot ? At::kOutside : At::kRoot);
  }
  bool start_array(std::size_t) override {
    if (at_ != At::kTensor || key_ == "dtype") return misplaced("an array");
    return enter(key_ == "shape" ? At::kShape : At::kOffsets);
  }
  bool end_array() override { return enter(At::kTensor); }
  bool string(std::string& value) override {
    if (at_ == At::kMetadata) {
      metadata[key_] = value;
      return true;
    }
    if (at_ != At::kTensor || key_ != "dtype") return misplaced("a string");
    entries.back().dtype = value;
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (at_ != At::kShape && at_ != At::kOffsets) return misplaced("a number");
    auto& list = at_ == At::kShape ? entries.back().shape : entries.back().offsets;
    const std::size_t most = at_ == At::kShape ? kMaxRank : 2;
    if (list.size() == most)
      return fail(fmt::format("{}: {} holds more than {} numbers", tensor(), key_, most));
    list.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t) override { return misplaced("a negative number"); }
  bool number_float(double, const std::string&) override {
    return misplaced("a fraction or a number past 64 bits");
  }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool null() override { return misplaced("a null"); }
  bool binary(nlohmann::json::binary_t&) override { return misplaced("a binary value"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return fail(fmt::format("the header is no valid JSON (at its byte {})", position));
  }

 private:
  enum class At { kOutside, kRoot, kMetadata, kTensor, kShape, kOffsets };

  bool tensor_key(const std::string& name) {
    bool* seen = name == "dtype"          ? &seen_.dtype
                 : name == "shape"        ? &seen_.shape
                 : name == "data_offsets" ? &seen_.offsets
                                          : nullptr;
    if (seen == nullptr) return fail(tensor() + " has the unknown key " + in_quotes(name));
    if (std::exchange(*seen, true)) return fail(tensor() + ": " + name + " stands twice");
    key_ = name;
    return true;
  }
  bool enter(At where) {
    at_ = where;
    return true;
  }
  bool misplaced(const char* what) {
    const bool in_tensor = at_ != At::kOutside && at_ != At::kRoot && at_ != At::kMetadata;
    if (in_tensor) return fail(fmt::format("{}: {} cannot be {}", tensor(), key_, what));
    if (at_ == At::kMetadata)
      return fail(fmt::format("metadata {} must be a string, not {}", in_quotes(key_), what));
    return fail(fmt::format("the header must be an object of objects; found {}", what));
  }
  bool fail(std::string why) {
    error = std::move(why);
    return false;
  }
  [[nodiscard]] std::string tensor() const { return "tensor " + in_quotes(entries.back().name); }

  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  At at_ = At::kOutside;
  Seen seen_;
  bool is_metadata_ = false;
  std::string key_;
  std::set<std::string> names_;
};

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw FileError(name + ": " + why);
}

[[noreturn]] void fail_errno(const std::string& path, const char* doing) {
  fail(path, fmt::format("cannot {}: {}", doing, std::strerror(errno)));
}

/// shape x size of an element, or nullopt where that passes 2^63.
std::optional<std::uint64_t> byte_size(const std::vector<std::uint64_t>& shape, DType dtype) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (std::any_of(shape.begin(), shape.end(), [](std::uint64_t s) { return s > kMost; }))
    return std::nullopt;
  // The product without the zeros, so that strides of an empty tensor do not overflow either.
  std::uint64_t bytes = size_of(dtype);
  for (const std::uint64_t size : shape)
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  if (bytes > kMost) return std::nullopt;
  return std::find(shape.begin(), shape.end(), 0U) == shape.end() ? bytes : 0;
}

Entry checked_entry(const HeaderEntry& header, std::span<const std::byte> data,
                    const std::string& file) {
  const std::string tensor = "tensor " + in_quotes(header.name);
  const auto known = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                  [&](const DTypeName& d) { return d.name == header.dtype; });
  if (known == std::end(kDTypeNames))
    fail(file, tensor + " has the unknown dtype " + in_quotes(header.dtype));
  const auto bytes = byte_size(header.shape, known->dtype);
  if (!bytes) fail(file, tensor + ": its shape has more than 2^63 bytes");
  if (header.offsets.size() != 2) fail(file, tensor + ": data_offsets must hold two numbers");
  const std::uint64_t begin = header.offsets[0];
  const std::uint64_t end = header.offsets[1];
  if (begin > end || end > data.size())
    fail(file, fmt::format("{}: data_offsets [{}, {}] are no range of the file's {} data bytes",
                           tensor, begin, end, data.size()));
  if (end - begin != *bytes)
    fail(file, fmt::format("{}: its shape needs {} bytes, its data_offsets hold {}", tensor, *bytes,
                           end - begin));
  return {known->dtype,
          {header.shape.begin(), header.shape.end()},
          data.subspan(begin, static_cast<std::size_t>(end - begin))};
}

/// The ranges must cover the data without overlap or hole.
void check_cover(std::vector<HeaderEntry>& headers, std::size_t data_bytes,
                 const std::string& file) {
  std::sort(headers.begin(), headers.end(),
            [](const auto& a, const auto& b) { return a.offsets < b.offsets; });
  std::uint64_t covered = 0;
  for (const HeaderEntry& header : headers) {
    if (header.offsets[0] != covered)
      fail(file, fmt::format("tensor {} begins at data byte {}; the tensor before it ends at {}",
                             in_quotes(header.name), header.offsets[0], covered));
    covered = header.offsets[1];
  }
  if (covered != data_bytes)
    fail(file, fmt::format("the tensors cover {} of {} data bytes", covered, data_bytes));
}

void write_all(int fd, const void* data, std::size_t bytes, const std::string& path) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path, "write");
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

/// Bytes read: fewer than asked for where the file ends before.
std::size_t read_all(int fd, std::byte* to, std::size_t bytes, const std::string& path) {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t read = ::read(fd, to + got, bytes - got);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) fail_errno(path, "read");
    if (read == 0) break;
    got += static_cast<std::size_t>(read);
  }
  return got;
}

/// A file descriptor that closes itself.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  /// False where the kernel reports a late write error.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

/// A new file beside `target`, under a name that nobody else has: O_EXCL neither follows a link nor
/// shares a file. (mkostemp would give it mode 0600 instead of what the umask leaves.)
int create_beside(const std::string& target, std::string& path) {
  std::random_device random;
  for (;;) {
    path = fmt::format("{}.{:08x}.tmp", target, random());
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    if (errno != EEXIST && errno != EINTR) fail_errno(target, "write");
  }
}

/// A file beside the target that takes its place on commit and is removed otherwise.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target)
      : target_(target), file_(create_beside(target, path_)) {}
  ~TemporaryFile() {
    if (!committed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) { write_all(file_.fd(), data, bytes, target_); }
  void commit() {
    if (!file_.close()) fail_errno(target_, "write");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) fail_errno(target_, "write");
    committed_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  File file_;
  bool committed_ = false;
};

using NamedEntry = std::pair<const std::string, Entry>;

std::string header_text(const std::vector<const NamedEntry*>& order,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const NamedEntry* tensor : order) {
    const std::string& name = tensor->first;
    const Entry& entry = tensor->second;
    const auto* known = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                     [&](const DTypeName& d) { return d.dtype == entry.dtype; });
    const std::vector<std::uint64_t> shape(entry.shape.begin(), entry.shape.end());
    if (name == "__metadata__") fail(path, "no tensor may be called __metadata__");
    if (known == std::end(kDTypeNames) || shape.size() > kMaxRank ||
        byte_size(shape, entry.dtype) != entry.bytes.size())
      fail(path, fmt::format("tensor {}: its shape and dtype do not fit its {} bytes",
                             in_quotes(name), entry.bytes.size()));
    header[name] = {{"dtype", known->name},
                    {"shape", shape},
                    {"data_offsets", {offset, offset + entry.bytes.size()}}};
    offset += entry.bytes.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(path, "a name or a metadata text is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) fail(path, "its header would pass 100 MB");
  return text;
}

}  // namespace

SafeTensors parse(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kLengthBytes)
    fail(name, fmt::format("{} bytes are no safetensors file", bytes.size()));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    header_bytes = header_bytes << 8 | static_cast<std::uint64_t>(bytes[i]);
  const std::size_t rest = bytes.size() - kLengthBytes;
  if (header_bytes > kMaxHeaderBytes || header_bytes > rest)
    fail(name, fmt::format("a header of {} bytes; the file has {} more, the format allows {}",
                           header_bytes, rest, kMaxHeaderBytes));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  if (header_bytes == 0 || *text != '{') fail(name, "the header must begin with {");

  HeaderReader header;
  if (!nlohmann::json::sax_parse(text, text + header_bytes, &header)) fail(name, header.error);

  const auto data = bytes.subspan(kLengthBytes + static_cast<std::size_t>(header_bytes));
  SafeTensors result;
  result.metadata = std::move(header.metadata);
  for (const HeaderEntry& entry : header.entries)
    result.tensors[entry.name] = checked_entry(entry, data, name);
  check_cover(header.entries, data.size(), name);
  return result;
}

SafeTensors load(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) fail_errno(path, "open");
  struct stat info{};
  if (::fstat(file.fd(), &info) != 0) fail_errno(path, "open");
  if (!S_ISREG(info.st_mode)) fail(path, "not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return parse({}, path);

  // Not mapped: a file that somebody truncates meanwhile would then kill the process.
  const auto memory = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::size_t got = read_all(file.fd(), memory.get(), size, path);
  SafeTensors result = parse({memory.get(), got}, path);
  result.owner = memory;
  return result;
}

void save(const std::string& path, const std::map<std::string, Entry>& tensors,
          const std::map<std::string, std::string>& metadata) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) fail(path, "not a regular file");

  // Wide elements first: the data begins on a multiple of 8, so every tensor is aligned.
  std::vector<const NamedEntry*> order;
  for (const NamedEntry& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedEntry* a, const NamedEntry* b) {
    return size_of(a->second.dtype) > size_of(b->second.dtype);
  });
  const std::string header = header_text(order, metadata, path);

  std::array<unsigned char, kLengthBytes> length{};
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  TemporaryFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  for (const NamedEntry* tensor : order)
    file.write(tensor->second.bytes.data(), tensor->second.bytes.size());
  file.commit();
}

}  // namespace k3::io
