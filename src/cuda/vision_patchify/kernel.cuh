// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/divider.h"
#include "cuda/common/launch.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// Patches of a strip of the image, one row of the grid: blockIdx.y is the row, z the image. The
/// threads along x go through the strip's output in order, one vector of kVec elements a thread, so
/// stores are whole lines; loads are units of kUnit pixels, and the sectors that two patches share
/// meet in the L1. No shared memory, no barrier.
///
/// Rows of pixels that are neighbours are asked for as far as the L2 ahead of time, by the CTAs of
/// a strip together: those of the strip a wave further on, and, where the CTA may have started
/// while its predecessor still runs, those of its own strip.
namespace k3::cuda {

inline constexpr int kPatchifyThreads = 256;

/// The patches of one launch.
struct PatchifyParams {
  const void* image;  ///< its pixel (0, 0) is that of the launch's first patch
  std::int64_t image_stride_b;
  std::int64_t image_stride_c;
  std::int64_t image_stride_y;
  std::int64_t image_stride_x;
  const void* scale;
  const void* bias;
  void* out;  ///< its patch 0 is the launch's first one
  std::int64_t out_stride_b;
  std::int64_t out_stride_row;  ///< between rows of the grid
  std::int64_t out_stride_patch;
  std::uint32_t rows;           ///< of pixels that exist, from the first patch on
  std::uint32_t columns;        ///< the same
  std::uint32_t strip_vectors;  ///< below 2^31
  std::uint32_t patch_vectors;  ///< C * P * P / kVec
  std::uint32_t P;
  std::uint32_t strip_lines;   ///< C * P
  std::uint32_t cta_lines;     ///< of them, that a CTA asks for
  std::uint32_t early_ctas;    ///< as many may start early
  std::uint32_t strips_ahead;  ///< a wave of CTAs
  Divider by_patch_vectors;
  Divider by_P;
};

__device__ inline float load_factor(const void* factors, std::uint32_t c, float) {
  return static_cast<const float*>(factors)[c];
}
__device__ inline float load_factor(const void* factors, std::uint32_t c, bf16) {
  return low_half(static_cast<const std::uint16_t*>(factors)[c]);
}

/// kUnit neighbours of a row; aligned to the unit.
template <int kUnit>
struct Pixels {
  float value[kUnit];
};

__device__ inline void load_unit(const float* at, Pixels<2>& to) {
  const float2 pair = *reinterpret_cast<const float2*>(at);
  to = {{pair.x, pair.y}};
}
__device__ inline void load_unit(const bf16* at, Pixels<2>& to) {
  const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(at);
  to = {{low_half(pair), high_half(pair)}};
}
__device__ inline void load_unit(const float* at, Pixels<1>& to) { to = {{*at}}; }
__device__ inline void load_unit(const bf16* at, Pixels<1>& to) { to = {{low_half(at->bits)}}; }
__device__ inline void load_unit(const std::uint8_t* at, Pixels<1>& to) {
  to = {{static_cast<float>(*at)}};
}

__device__ inline void store_vector(float* to, const float (&v)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
}
__device__ inline void store_vector(bf16* to, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
}
__device__ inline void store_vector(float* to, const float (&v)[1]) { *to = v[0]; }
__device__ inline void store_vector(bf16* to, const float (&v)[1]) {
  to->bits = static_cast<std::uint16_t>(pack_bf16(v[0], 0.0F));
}

/// This CTA's lines of strip `gy`, a line a warp.
template <class In, class Stride>
__device__ void prefetch_lines(const PatchifyParams& p, const In* image, std::uint32_t gy) {
  constexpr std::uint32_t kWarps = kPatchifyThreads / 32;
  constexpr std::uint32_t kCacheLine = 128 / sizeof(In);  // in pixels
  const std::uint32_t begin = blockIdx.x * p.cta_lines;
  const std::uint32_t end = min(begin + p.cta_lines, p.strip_lines);
  for (std::uint32_t line = begin + threadIdx.x / 32; line < end; line += kWarps) {
    const std::uint32_t c = p.by_P.quotient(line);
    const std::uint32_t y = gy * p.P + line - c * p.P;
    if (y >= p.rows) continue;
    const In* const row = image +
                          static_cast<std::uint64_t>(c) * static_cast<Stride>(p.image_stride_c) +
                          static_cast<std::uint64_t>(y) * static_cast<Stride>(p.image_stride_y);
    for (std::uint32_t x = threadIdx.x % 32 * kCacheLine; x < p.columns; x += 32 * kCacheLine)
      prefetch_l2(row + x);
  }
}

/// @tparam Factor  of scale and bias
/// @tparam Stride  of the image, unsigned: 32 bits where they fit, which saves half of the products
template <class In, class Factor, class Out, class Stride, int kVec, int kUnit>
__global__ __launch_bounds__(
    kPatchifyThreads,
    kThreadsOfSm /
        kPatchifyThreads) void vision_patchify_kernel(const __grid_constant__ PatchifyParams p) {
  constexpr int kUnits = kVec / kUnit;
  pdl_launch_dependents();
  const auto* const image = static_cast<const In*>(p.image) + blockIdx.z * p.image_stride_b;
  if constexpr (kUnit == 2) {
    const std::uint32_t cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (cta < p.early_ctas) prefetch_lines<In, Stride>(p, image, blockIdx.y);
    prefetch_lines<In, Stride>(p, image, blockIdx.y + p.strips_ahead);
    if (cta == 0 && threadIdx.x == 0) {
      prefetch_l2(p.scale);
      prefetch_l2(p.bias);
    }
  }
  const std::uint32_t index = blockIdx.x * kPatchifyThreads + threadIdx.x;
  if (index >= p.strip_vectors) return;
  const std::uint32_t gx = p.by_patch_vectors.quotient(index);
  const std::uint32_t element = (index - gx * p.patch_vectors) * kVec;
  const std::uint32_t line = p.by_P.quotient(element);
  std::uint32_t px = element - line * p.P;
  std::uint32_t c = p.by_P.quotient(line);
  std::uint32_t py = line - c * p.P;

  const auto stride_c = static_cast<Stride>(p.image_stride_c);
  const auto stride_y = static_cast<Stride>(p.image_stride_y);
  const auto stride_x = static_cast<Stride>(p.image_stride_x);
  const std::uint32_t x0 = gx * p.P;
  const std::uint32_t y0 = blockIdx.y * p.P;
  auto* const out = static_cast<Out*>(p.out) + blockIdx.z * p.out_stride_b +
                    blockIdx.y * p.out_stride_row + gx * p.out_stride_patch + element;

  const In* from[kUnits];  // null: past the image
  std::uint32_t channel[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const bool exists = y0 + py < p.rows && x0 + px < p.columns;
    from[i] = exists ? image + static_cast<std::uint64_t>(c) * stride_c +
                           static_cast<std::uint64_t>(y0 + py) * stride_y +
                           static_cast<std::uint64_t>(x0 + px) * stride_x
                     : nullptr;
    channel[i] = c;
    // A unit lies within one row of a patch.
    px += kUnit;
    if (px == p.P) {
      px = 0;
      if (++py == p.P) {
        py = 0;
        ++c;
      }
    }
  }

  pdl_wait();
  Pixels<kUnit> pixels[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    pixels[i] = {};
    if (from[i] != nullptr) load_unit(from[i], pixels[i]);
  }
  float scale[kUnits];
  float bias[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    // An even P has P * P elements a channel, a multiple of a vector.
    const int of = kUnit == 2 ? 0 : i;
    scale[i] = load_factor(p.scale, channel[of], Factor());
    bias[i] = load_factor(p.bias, channel[of], Factor());
  }
  float y[kVec];
#pragma unroll
  for (int i = 0; i < kUnits; ++i)
#pragma unroll
    for (int j = 0; j < kUnit; ++j) y[i * kUnit + j] = fmaf(pixels[i].value[j], scale[i], bias[i]);
  store_vector(out, y);
}

}  // namespace k3::cuda
