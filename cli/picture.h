// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

/// Pictures from files, as 8-bit pixels.
namespace k3::cli {

using Colour = std::array<std::uint8_t, 3>;

struct Picture {
  int width = 0;
  int height = 0;
  int channels = 0;                  ///< 3 colours, or 4 with alpha
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
};

/// A PNG or JPEG file. Grey and palette become colours, 16 bits keep the upper 8; colour profiles
/// and orientation marks play no role.
/// @throws io::FileError naming the file and what is wrong with it, UnsupportedError where this
/// build cannot decode the format
Picture read_picture(const std::string& path);

/// Lays the picture over one colour and drops its alpha.
void compose(Picture& picture, const Colour& background);

namespace picture {

/// Decoders of an open file, one format each; `name` is for their errors.
Picture read_png(std::FILE* file, const std::string& name);
Picture read_jpeg(std::FILE* file, const std::string& name);

/// Makes room for a picture of the size that a file's header gives.
/// @throws io::FileError where that is nothing, or more than 2^27 pixels
Picture allocate(const std::string& name, std::uint64_t width, std::uint64_t height, int channels);

}  // namespace picture
}  // namespace k3::cli
