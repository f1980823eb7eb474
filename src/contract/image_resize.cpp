// SPDX-License-Identifier: Apache-2.0
#include "contract/image_resize.h"

#include "contract/checks.h"

namespace k3 {
namespace {

constexpr std::int64_t kMaxSide = std::int64_t{1} << 24;

template <class Byte, class View>
ImagePlanes<Byte> planes_of(const Contract& contract, const char* argument, const View& view) {
  contract.require(view.shape[2] <= kMaxSide && view.shape[3] <= kMaxSide, argument,
                   "must have at most 2^24 rows and columns", view);
  return {static_cast<Byte*>(view.data),
          static_cast<int>(view.shape[2]),
          static_cast<int>(view.shape[3]),
          view.strides[0],
          view.strides[1],
          view.strides[2],
          view.strides[3]};
}

}  // namespace

std::span<const ArgRule<ImageResizeArgs>> image_resize_args() {
  using Args = ImageResizeArgs;
  static const ArgRule<Args> rules[] = {
      {"image", Access::kRead, false, {DType::kU8}, {4}, &Args::image},
      {"out", Access::kWrite, false, {DType::kU8}, {4}, &Args::out},
  };
  return rules;
}

ImageResizeProblem check(const ImageResizeArgs& args, Purpose purpose) {
  const Contract contract("image_resize", purpose);
  contract.tensors(image_resize_args(), args);
  ImageResizeProblem p;
  p.B = args.image.shape[0];
  p.C = args.image.shape[1];
  p.image = planes_of<const std::uint8_t>(contract, "image", args.image);
  p.out = planes_of<std::uint8_t>(contract, "out", args.out);
  contract.require(args.out.shape[0] == p.B, "out", "must hold as many images as image", args.out);
  contract.require(args.out.shape[1] == p.C, "out", "must have the channels of image", args.out);
  contract.require(p.empty() || (p.image.height > 0 && p.image.width > 0), "image",
                   "must have pixels where out has", args.image);
  contract.overlaps(image_resize_args(), args);
  p.device = args.image.device;
  return p;
}

}  // namespace k3
