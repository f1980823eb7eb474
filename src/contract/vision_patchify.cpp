// SPDX-License-Identifier: Apache-2.0
#include "contract/vision_patchify.h"

#include <fmt/format.h>

#include "contract/checks.h"

namespace k3 {
namespace {

/// The grid's patches along one axis.
int patches_along(const Contract& contract, const char* argument, int padded, std::int64_t size,
                  int patch_size) {
  const auto text = [&] {
    return fmt::format("{} for {} pixels and patches of {}", padded, size, patch_size);
  };
  contract.require(padded >= size, argument, "must be at least the image's size", text);
  contract.require(padded % patch_size == 0, argument, "must be a multiple of patch_size", text);
  return padded / patch_size;
}

}  // namespace

std::span<const ArgRule<VisionPatchifyArgs>> vision_patchify_args() {
  using Args = VisionPatchifyArgs;
  constexpr DTypeSet kFloats = {DType::kF32, DType::kBF16};
  constexpr DTypeSet kPixels = {DType::kF32, DType::kBF16, DType::kU8};
  static const ArgRule<Args> rules[] = {
      {"image", Access::kRead, false, kPixels, {4}, &Args::image},
      {"scale", Access::kRead, false, kFloats, {4}, &Args::scale},
      {"bias", Access::kRead, false, kFloats, {4}, &Args::bias},
      {"out", Access::kWrite, false, kFloats, {5}, &Args::out},
  };
  return rules;
}

VisionPatchifyProblem check(const VisionPatchifyArgs& args, Purpose purpose) {
  const Contract contract("vision_patchify", purpose);
  const ConstTensorView& image = args.image;
  contract.tensors(vision_patchify_args(), args);
  contract.require(args.scale.dtype == DType::kF32 || image.dtype == DType::kBF16, "scale",
                   "must be f32 unless image is bf16", args.scale);
  contract.require(args.bias.dtype == args.scale.dtype, "bias", "must have the dtype of scale",
                   args.bias);
  contract.require(args.out.dtype == DType::kBF16 || image.dtype != DType::kBF16, "out",
                   "must be bf16 where image is", args.out);
  contract.require(args.patch_size >= 1, "patch_size", "must be at least 1",
                   [&] { return fmt::format("{}", args.patch_size); });

  VisionPatchifyProblem p;
  p.B = image.shape[0];
  p.C = contract.small("image", "C", image.shape[1]);
  p.H = image.shape[2];
  p.W = image.shape[3];
  p.P = args.patch_size;
  p.grid_height = patches_along(contract, "padded_height", args.padded_height, p.H, p.P);
  p.grid_width = patches_along(contract, "padded_width", args.padded_width, p.W, p.P);
  const __int128 patch_elements = __int128{p.C} * p.P * p.P;
  contract.require(patch_elements < __int128{1} << 31, "patch_size",
                   "must leave the elements of a patch within 31 bits",
                   [&] { return fmt::format("{} with {} channels", p.P, p.C); });
  p.patch_elements = static_cast<int>(patch_elements);

  contract.shape("scale", args.scale, {{"1", 1}, {"C", p.C}, {"1", 1}, {"1", 1}});
  contract.shape("bias", args.bias, {{"1", 1}, {"C", p.C}, {"1", 1}, {"1", 1}});
  contract.shape("out", args.out,
                 {{"B", p.B},
                  {"padded_height/P * padded_width/P", std::int64_t{p.grid_height} * p.grid_width},
                  {"C", p.C},
                  {"P", p.P},
                  {"P", p.P}});
  contract.dense_from("scale", args.scale, 0);
  contract.dense_from("bias", args.bias, 0);
  contract.dense_from("out", args.out, 2);
  contract.overlaps(vision_patchify_args(), args);

  p.image_dtype = image.dtype;
  p.image = image.data;
  p.image_stride_b = image.strides[0];
  p.image_stride_c = image.strides[1];
  p.image_stride_y = image.strides[2];
  p.image_stride_x = image.strides[3];
  p.affine_dtype = args.scale.dtype;
  p.scale = args.scale.data;
  p.bias = args.bias.data;
  p.out_dtype = args.out.dtype;
  p.out = args.out.data;
  p.out_stride_b = args.out.strides[0];
  p.out_stride_patch = args.out.strides[1];
  p.device = image.device;
  return p;
}

}  // namespace k3
