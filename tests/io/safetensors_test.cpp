// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "io/text.h"

namespace k3::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEight = "\0\1\2\3\4\5\6\7";

std::string file_of(const std::string& header, const std::string& data = {}) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// The error text, or empty where the bytes parse.
std::string refusal(const std::string& bytes) {
  try {
    parse(bytes_of(bytes), "input");
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "k3_io_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() { fs::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const {
    return (path_ / name).string();
  }
  [[nodiscard]] std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SafeTensorsParse, TakesTensorsInAnyOrderOfNames) {
  const std::string data(kEight, 8);
  const std::string bytes = file_of(
      R"({"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},)"
      R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},"__metadata__":{"beta":"4","x":""}} )",
      data);
  const SafeTensors file = parse(bytes_of(bytes), "input");
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors.at("a").dtype, DType::kF32);
  EXPECT_TRUE(file.tensors.at("a").shape.empty());
  EXPECT_EQ(file.tensors.at("b").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(std::memcmp(file.tensors.at("b").bytes.data(), kEight + 4, 4), 0);
  EXPECT_EQ(file.metadata.at("beta"), "4");
  EXPECT_EQ(file.metadata.at("x"), "");
}

TEST(SafeTensorsParse, TakesEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse(bytes_of(file_of("{}")), "input").tensors.empty());
  const std::string bytes = file_of(R"({"z":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]},)"
                                    R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                    "x");
  const SafeTensors file = parse(bytes_of(bytes), "input");
  EXPECT_TRUE(file.tensors.at("z").bytes.empty());
  EXPECT_EQ(file.tensors.at("a").bytes.size(), 1U);
}

TEST(SafeTensorsParse, NamesTheTensorOfAnUnknownDtype) {
  const std::string text =
      refusal(file_of(R"({"w":{"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]}})", "12345678"));
  EXPECT_NE(text.find("'w'"), std::string::npos) << text;
  EXPECT_NE(text.find("F8_E5M2"), std::string::npos) << text;
}

TEST(SafeTensorsParse, RefusesAnyTruncation) {
  const std::string whole =
      file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(kEight, 8));
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(refusal(whole.substr(0, n)), "") << n << " bytes";
  EXPECT_NE(refusal(whole + "x"), "");
}

TEST(SafeTensorsParse, RefusesDepthAndLengthWithoutReadingOn) {
  EXPECT_NE(refusal(file_of(R"({"a":)" + std::string(50'000'000, '['))), "");
  std::string huge(8, '\xFF');
  EXPECT_NE(refusal(huge + "{}"), "");
  const std::string long_name(100'000, 'n');
  EXPECT_LT(refusal(file_of("{\"" + long_name + "\":1}")).size(), 300U);
}

/// Every seed of the fuzzer: what is called valid parses, all else is refused in one short line.
TEST(SafeTensorsParse, JudgesTheFuzzersSeedsByTheirNames) {
  const fs::path corpus = K3_TEST_DATA "/../fuzz/corpus";
  if (!fs::exists(corpus)) GTEST_SKIP() << "the source tree is not here";
  int seeds = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    const std::string name = entry.path().filename().string();
    const std::string why = refusal(read_file(entry.path().string()));
    EXPECT_EQ(why.empty(), name.rfind("valid", 0) == 0) << name << ": " << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << name;
    EXPECT_LT(why.size(), 300U) << name;
    ++seeds;
  }
  EXPECT_GT(seeds, 30);
}

TEST(Printable, HoldsNoControlsAndCutsBetweenCharacters) {
  EXPECT_EQ(printable("a\x1B[2J\x7F\n"), "a?[2J??");
  EXPECT_EQ(printable("\u00e9\u20ac\U0001F600"), "\u00e9\u20ac\U0001F600");
  EXPECT_EQ(printable("x\u009b1m"), "x?1m") << "CSI as one C1 control";
  EXPECT_EQ(printable("\xC3"), "?");
  EXPECT_EQ(printable("\x9B\xFF\xE2\x82"), "????");
  EXPECT_EQ(printable("ab\u20ac", 4), "ab...");
  EXPECT_EQ(printable("ab\u20ac", 5), "ab\u20ac");
}

TEST(SafeTensorsLoad, SurvivesATruncationMeanwhile) {
  const ScratchFolder folder;
  const std::string path = folder / "f.safetensors";
  const std::string data(1 << 20, 'x');
  save(path, {{"a", {DType::kU8, {1 << 20}, bytes_of(data)}}}, {});
  const SafeTensors file = load(path);
  fs::resize_file(path, 0);
  const auto bytes = file.tensors.at("a").bytes;
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{'x'}; }));
}

TEST(SafeTensorsLoad, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_THROW(load(folder / "missing"), FileError);
  EXPECT_THROW(load(folder / "."), FileError);
  std::ofstream(folder / "empty").close();
  EXPECT_THROW(load(folder / "empty"), FileError);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(load(folder / "pipe"), FileError);
}

TEST(SafeTensorsSave, RoundTripsAlignedAndAtomically) {
  const ScratchFolder folder;
  const std::string path = folder / "f.safetensors";
  const std::string data(kEight, 8);
  const auto bytes = bytes_of(data);
  const std::map<std::string, Entry> tensors = {
      {"a_bytes", {DType::kU8, {3}, bytes.first(3)}},
      {"b_half", {DType::kBF16, {2, 1}, bytes.first(4)}},
      {"c_wide", {DType::kI64, {}, bytes}},
      {"d_none", {DType::kF32, {0, 4}, {}}},
  };
  save(path, tensors, {{"op", "x \"quoted\" \u00e9"}});
  save(path, tensors, {{"op", "x \"quoted\" \u00e9"}});
  EXPECT_EQ(folder.num_files(), 1U);

  const SafeTensors file = load(path);
  EXPECT_EQ(file.metadata.at("op"), "x \"quoted\" \u00e9");
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, expected] : tensors) {
    const Entry& entry = file.tensors.at(name);
    EXPECT_EQ(entry.dtype, expected.dtype) << name;
    EXPECT_EQ(entry.shape, expected.shape) << name;
    ASSERT_EQ(entry.bytes.size(), expected.bytes.size()) << name;
    EXPECT_TRUE(std::equal(entry.bytes.begin(), entry.bytes.end(), expected.bytes.begin())) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.bytes.data()) % size_of(entry.dtype), 0U)
        << name;
  }
}

TEST(SafeTensorsSave, ThreadsDoNotCollide) {
  const ScratchFolder folder;
  const std::string path = folder / "f.safetensors";
  std::vector<std::thread> threads;
  for (const char fill : {'a', 'b', 'c', 'd'})
    threads.emplace_back([&path, fill] {
      const std::string data(100'000, fill);
      for (int i = 0; i < 20; ++i) save(path, {{"x", {DType::kU8, {100'000}, bytes_of(data)}}}, {});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(folder.num_files(), 1U);
  const SafeTensors file = load(path);
  const auto bytes = file.tensors.at("x").bytes;
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == bytes[0]; }));
}

TEST(SafeTensorsSave, GivesTheFileTheModeOfAnyOther) {
  const ScratchFolder folder;
  const std::string data(kEight, 8);
  save(folder / "saved", {{"a", {DType::kU8, {8}, bytes_of(data)}}}, {});
  std::ofstream(folder / "other").close();
  EXPECT_EQ(fs::status(folder / "saved").permissions(), fs::status(folder / "other").permissions());
}

TEST(SafeTensorsSave, RefusesWhatItCannotWrite) {
  const ScratchFolder folder;
  const std::string path = folder / "f.safetensors";
  const std::string data(kEight, 8);
  const Entry good = {DType::kU8, {8}, bytes_of(data)};
  EXPECT_THROW(save(folder / "no/such/folder", {{"a", good}}, {}), FileError);
  EXPECT_THROW(save(folder / ".", {{"a", good}}, {}), FileError);
  EXPECT_THROW(save("/dev/null", {{"a", good}}, {}), FileError);
  EXPECT_THROW(save(path, {{"__metadata__", good}}, {}), FileError);
  EXPECT_THROW(save(path, {{"a", {DType::kF32, {8}, bytes_of(data)}}}, {}), FileError);
  EXPECT_THROW(save(path, {{"a", {DType::kNone, {8}, bytes_of(data)}}}, {}), FileError);
  EXPECT_THROW(save(path, {{"\xFF\xFE", good}}, {}), FileError);
  EXPECT_EQ(folder.num_files(), 0U);
}

}  // namespace
}  // namespace k3::io
