// SPDX-License-Identifier: Apache-2.0
#include "cli/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "io/safetensors.h"
#include "k3/error.h"

namespace k3::cli {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
};

constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr unsigned char kJpeg[] = {0xFF, 0xD8, 0xFF};

template <std::size_t n>
bool starts_with(const unsigned char (&magic)[n], const unsigned char* bytes, std::size_t count) {
  return count >= n && std::equal(magic, magic + n, bytes);
}

}  // namespace

Picture read_picture(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw io::FileError(fmt::format("{}: {}", path, std::strerror(errno)));
  unsigned char bytes[sizeof(kPng)] = {};
  const std::size_t count = std::fread(bytes, 1, sizeof(bytes), file.get());
  std::rewind(file.get());
  if (starts_with(kPng, bytes, count)) return picture::read_png(file.get(), path);
  if (starts_with(kJpeg, bytes, count)) return picture::read_jpeg(file.get(), path);
  throw io::FileError(path + ": neither a PNG nor a JPEG file");
}

/// A mean of two colours by alpha / 255, to the nearest.
void compose(Picture& picture, const Colour& background) {
  if (picture.channels != 4) return;
  const std::size_t count = picture.pixels.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* const from = &picture.pixels[4 * i];
    const unsigned alpha = from[3];
    for (std::size_t c = 0; c < 3; ++c)
      picture.pixels[3 * i + c] =
          static_cast<std::uint8_t>((from[c] * alpha + background[c] * (255 - alpha) + 127) / 255);
  }
  picture.pixels.resize(3 * count);
  picture.channels = 3;
}

Picture picture::allocate(const std::string& name, std::uint64_t width, std::uint64_t height,
                          int channels) {
  constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 27;
  if (width == 0 || height == 0 || width > kMaxPixels || height > kMaxPixels / width)
    throw io::FileError(
        fmt::format("{}: {} x {} pixels; 1 to 2^27 are taken", name, width, height));
  Picture picture;
  picture.width = static_cast<int>(width);
  picture.height = static_cast<int>(height);
  picture.channels = channels;
  picture.pixels.resize(static_cast<std::size_t>(width * height) *
                        static_cast<std::size_t>(channels));
  return picture;
}

}  // namespace k3::cli
