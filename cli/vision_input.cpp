// SPDX-License-Identifier: Apache-2.0
#include "cli/vision_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/common.h"
#include "harness/driver.h"

namespace k3::cli {
namespace {

using harness::Bundle;
using harness::Tensor;

/// [1, 3, height, width] with the channels of a pixel side by side.
Tensor pixel_tensor(std::int64_t height, std::int64_t width) {
  return Tensor::strided(DType::kU8, {1, 3, height, width}, {3 * height * width, 1, 3 * width, 3});
}

/// The same bytes under exchanged axes of rows and columns.
Tensor with_axes_exchanged(const Tensor& image) {
  auto shape = image.shape();
  auto strides = image.strides();
  std::swap(shape[2], shape[3]);
  std::swap(strides[2], strides[3]);
  Tensor exchanged = Tensor::strided(image.dtype(), shape, strides);
  std::memcpy(exchanged.storage(), image.storage(), image.storage_bytes());
  return exchanged;
}

Tensor resized(const Tensor& image, const VisionSizes& sizes, harness::RunOn on) {
  const harness::Driver& driver = driver_named("image_resize");
  const std::int64_t width = image.shape()[3];
  const std::int64_t height = image.shape()[2];
  const bool columns_first =
      height - sizes.height > std::max<std::int64_t>(0, 2 * (width - sizes.width));
  Bundle bundle;
  bundle.tensors["image"] = columns_first ? with_axes_exchanged(image) : image;
  Tensor out = pixel_tensor(sizes.height, sizes.width);
  bundle.tensors["out"] = columns_first ? with_axes_exchanged(out) : out;
  const double microseconds = harness::run_once(driver, bundle, {.on = on});
  fmt::print("{} on {}: {:.1f} us\n", driver.name, name_of(on), microseconds);
  std::memcpy(out.storage(), bundle.tensors.at("out").storage(), out.storage_bytes());
  return out;
}

}  // namespace

VisionSizes vision_sizes(int width, int height) {
  constexpr double kMaxPatches = 65536.0;
  constexpr int kMaxSide = 512 * VisionSizes::kPatch;
  const double patches = static_cast<double>(std::max(1, width / VisionSizes::kPatch)) *
                         std::max(1, height / VisionSizes::kPatch);
  const double scale =
      std::min({1.0, std::sqrt(kMaxPatches / patches), static_cast<double>(kMaxSide) / width,
                static_cast<double>(kMaxSide) / height});
  const auto side = [&](int size) {
    return std::clamp(static_cast<int>(size * scale), 1, kMaxSide);
  };
  const auto padded = [](int size) {
    return (size + VisionSizes::kToken - 1) / VisionSizes::kToken * VisionSizes::kToken;
  };
  return {side(width), side(height), padded(side(width)), padded(side(height))};
}

Bundle vision_input(const std::string& path, const Colour& background, harness::RunOn on) {
  Picture picture = read_picture(path);
  const char* const with_alpha = picture.channels == 4 ? " with alpha" : "";
  compose(picture, background);
  const VisionSizes sizes = vision_sizes(picture.width, picture.height);
  const int rows = sizes.padded_height / VisionSizes::kPatch;
  const int columns = sizes.padded_width / VisionSizes::kPatch;
  fmt::print("picture of {} x {} pixels{}, resized to {} x {}, padded to {} x {}\n", picture.width,
             picture.height, with_alpha, sizes.width, sizes.height, sizes.padded_width,
             sizes.padded_height);
  fmt::print("grid of {} x {} patches, {} tokens\n", rows, columns, rows * columns / 4);

  Tensor image = pixel_tensor(picture.height, picture.width);
  std::memcpy(image.storage(), picture.pixels.data(), picture.pixels.size());
  if (sizes.width != picture.width || sizes.height != picture.height)
    image = resized(image, sizes, on);

  Bundle bundle;
  bundle.tensors["image"] = image;
  bundle.tensors["scale"] = Tensor::dense(DType::kF32, {1, 3, 1, 1});
  bundle.tensors["scale"].fill(1.0 / (255.0 * 0.5));  // a standard deviation of 0.5 of 255
  bundle.tensors["bias"] = Tensor::dense(DType::kF32, {1, 3, 1, 1});
  bundle.tensors["bias"].fill(-1.0);  // -mean / deviation
  bundle.scalars = {{"patch_size", std::to_string(VisionSizes::kPatch)},
                    {"padded_height", std::to_string(sizes.padded_height)},
                    {"padded_width", std::to_string(sizes.padded_width)}};
  return bundle;
}

}  // namespace k3::cli
