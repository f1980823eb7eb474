// SPDX-License-Identifier: Apache-2.0
#include "cuda/vision_patchify/vision_patchify.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/common/alignment.h"
#include "cuda/common/early_ctas.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/vision_patchify/kernel.cuh"

namespace k3::cuda {
namespace {

constexpr std::int64_t kMaxVectors = (std::int64_t{1} << 31) - 1;  ///< of a strip, along x
constexpr std::int64_t kMaxGridYZ = 65535;

/// Strips, images and patches past what a grid takes go into further launches.
template <class In, class Factor, class Out, class Stride, int kVec, int kUnit>
cudaError_t launch_all(const VisionPatchifyProblem& problem, const Target& target) {
  const std::int64_t P = problem.P;
  PatchifyParams p;
  p.image_stride_b = problem.image_stride_b;
  p.image_stride_c = problem.image_stride_c;
  p.image_stride_y = problem.image_stride_y;
  p.image_stride_x = problem.image_stride_x;
  p.scale = problem.scale;
  p.bias = problem.bias;
  p.out_stride_b = problem.out_stride_b;
  p.out_stride_row = problem.grid_width * problem.out_stride_patch;
  p.out_stride_patch = problem.out_stride_patch;
  p.patch_vectors = static_cast<std::uint32_t>(problem.patch_elements / kVec);
  p.P = static_cast<std::uint32_t>(P);
  p.strip_lines = static_cast<std::uint32_t>(problem.C * P);
  p.early_ctas = early_ctas(target, kPatchifyThreads);
  p.by_patch_vectors = Divider(p.patch_vectors);
  p.by_P = Divider(p.P);

  const std::int64_t max_patches = kMaxVectors / p.patch_vectors;
  for (std::int64_t b = 0; b < problem.B; b += kMaxGridYZ)
    for (std::int64_t gy = 0; gy < problem.grid_height; gy += kMaxGridYZ)
      for (std::int64_t gx = 0; gx < problem.grid_width; gx += max_patches) {
        const std::int64_t patches = std::min(max_patches, problem.grid_width - gx);
        p.image = static_cast<const In*>(problem.image) + b * problem.image_stride_b +
                  gy * P * problem.image_stride_y + gx * P * problem.image_stride_x;
        p.out = static_cast<Out*>(problem.out) + b * p.out_stride_b + gy * p.out_stride_row +
                gx * p.out_stride_patch;
        p.rows = static_cast<std::uint32_t>(std::max<std::int64_t>(problem.H - gy * P, 0));
        p.columns = static_cast<std::uint32_t>(std::max<std::int64_t>(problem.W - gx * P, 0));
        p.strip_vectors = static_cast<std::uint32_t>(patches * p.patch_vectors);
        const unsigned strip_ctas = (p.strip_vectors - 1) / kPatchifyThreads + 1;
        p.cta_lines = (p.strip_lines - 1) / strip_ctas + 1;
        p.strips_ahead = (ctas_of_wave(target, kPatchifyThreads) - 1) / strip_ctas + 1;
        LaunchConfig config = launch_config(target);
        config.grid =
            dim3(strip_ctas, static_cast<unsigned>(std::min(kMaxGridYZ, problem.grid_height - gy)),
                 static_cast<unsigned>(std::min(kMaxGridYZ, problem.B - b)));
        config.block = dim3(kPatchifyThreads);
        const cudaError_t error =
            launch(vision_patchify_kernel<In, Factor, Out, Stride, kVec, kUnit>, config, p);
        if (error != cudaSuccess) return error;
      }
  return cudaSuccess;
}

/// Pairs have strides of 32 bits.
template <int kVec, int kUnit>
cudaError_t launch_for_dtypes(const VisionPatchifyProblem& p, const Target& target) {
  using Stride = std::conditional_t<kUnit == 2, std::uint32_t, std::uint64_t>;
  const bool to_f32 = p.out_dtype == DType::kF32;
  if (p.image_dtype == DType::kBF16)
    return p.affine_dtype == DType::kF32
               ? launch_all<bf16, float, bf16, Stride, kVec, kUnit>(p, target)
               : launch_all<bf16, bf16, bf16, Stride, kVec, kUnit>(p, target);
  if (p.image_dtype == DType::kF32)
    return to_f32 ? launch_all<float, float, float, Stride, kVec, kUnit>(p, target)
                  : launch_all<float, float, bf16, Stride, kVec, kUnit>(p, target);
  if constexpr (kUnit == 1)
    return to_f32 ? launch_all<std::uint8_t, float, float, Stride, kVec, kUnit>(p, target)
                  : launch_all<std::uint8_t, float, bf16, Stride, kVec, kUnit>(p, target);
  else
    return cudaErrorInvalidValue;  // refused: no pairs of bytes
}

template <int kVec, int kUnit>
void run(const VisionPatchifyProblem& p, const Target& target) {
  if (p.empty()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK((launch_for_dtypes<kVec, kUnit>(p, target)));
}

/// An axis of one index has no stride to speak of.
std::int64_t stride_of(std::int64_t size, std::int64_t stride) { return size > 1 ? stride : 0; }

}  // namespace

const char* vision_patchify_quads_refusal(const VisionPatchifyProblem& p, const Target&) {
  if (p.patch_elements % 4 != 0) return "the elements of a patch are not a multiple of 4";
  const std::int64_t patches = std::int64_t{p.grid_height} * p.grid_width;
  if (!quads_aligned(p.out, p.out_dtype, stride_of(p.B, p.out_stride_b),
                     stride_of(patches, p.out_stride_patch)))
    return "out or its strides are not aligned to 4 elements";
  return nullptr;
}

const char* vision_patchify_pairs_refusal(const VisionPatchifyProblem& p, const Target& target) {
  if (p.image_dtype == DType::kU8) return "image is u8";
  if (p.P % 2 != 0) return "patch_size is odd";
  if (p.W % 2 != 0) return "the width of image is odd";
  if (p.image_stride_x != 1) return "the rows of image are not contiguous";
  if (!rows_aligned(p.image, p.image_dtype, 2 * size_of(p.image_dtype),
                    stride_of(p.B, p.image_stride_b), stride_of(p.C, p.image_stride_c),
                    stride_of(p.H, p.image_stride_y)))
    return "image or its strides are not aligned to 2 pixels";
  constexpr std::int64_t kMaxStride = (std::int64_t{1} << 32) - 1;
  if (p.image_stride_c > kMaxStride || p.image_stride_y > kMaxStride)
    return "a stride of image within a batch is past 2^32 elements";
  return vision_patchify_quads_refusal(p, target);
}

void vision_patchify_pairs(const VisionPatchifyProblem& problem, const Target& target) {
  run<4, 2>(problem, target);
}
void vision_patchify_quads(const VisionPatchifyProblem& problem, const Target& target) {
  run<4, 1>(problem, target);
}
void vision_patchify_scalar(const VisionPatchifyProblem& problem, const Target& target) {
  run<1, 1>(problem, target);
}

}  // namespace k3::cuda
