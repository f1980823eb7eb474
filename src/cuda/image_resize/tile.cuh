// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/image_resize.h"
#include "core/bicubic.h"
#include "cuda/common/pdl.cuh"
#include "cuda/image_resize/pixel.cuh"

/// A CTA makes a tile of kSamples / kChannels by kRows output pixels, kSamples bytes a row, a
/// thread for each. Phases, with a barrier between any two:
///
///   weights   of the tile's columns and rows, to shared memory (reads no image: before the wait)
///   rows      each thread resizes its sample of the input rows that the tile needs, kBatch rows
///             at a time, from global memory (neighbours meet in the L1) to shared memory
///   columns   each thread resizes its column of those, to the output
namespace k3::cuda::resize_tile {

inline constexpr int kSamples = 192;  ///< a multiple of 3 and of a warp
inline constexpr int kBatch = 8;

struct Params {
  ImagePlanes<const std::uint8_t> image;  ///< less than 2^31 bytes from end to end
  ImagePlanes<std::uint8_t> out;
  ResizeAxis x_axis;
  ResizeAxis y_axis;
  int groups;  ///< of kChannels channels; blockIdx.z is the image times groups, plus the group
  int max_input_rows;
};

/// Shared memory, in this order.
///   x_weights  [x_axis.max_taps][kSamples / kChannels] int32
///   y_weights  [kRows][y_axis.max_taps] int32
///   rows       [max_input_rows][kSamples] bytes
inline std::size_t shared_bytes(const Params& p, int channels, int tile_rows) {
  return (static_cast<std::size_t>(p.x_axis.max_taps()) * (kSamples / channels) +
          static_cast<std::size_t>(tile_rows) * p.y_axis.max_taps()) *
             sizeof(std::int32_t) +
         static_cast<std::size_t>(p.max_input_rows) * kSamples;
}

template <int kChannels, int kRows>
__global__ __launch_bounds__(kSamples) void resize_tile_kernel(const __grid_constant__ Params p) {
  constexpr int kColumns = kSamples / kChannels;
  extern __shared__ std::int32_t shared[];
  __shared__ int2 x_taps[kColumns];  // first, count
  __shared__ int2 y_taps[kRows];
  std::int32_t* const x_weights = shared;
  std::int32_t* const y_weights = x_weights + p.x_axis.max_taps() * kColumns;
  auto* const rows = reinterpret_cast<std::uint8_t*>(y_weights + kRows * p.y_axis.max_taps());

  pdl_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  const int x0 = static_cast<int>(blockIdx.x) * kColumns;
  const int y0 = static_cast<int>(blockIdx.y) * kRows;
  const int num_rows = min(kRows, p.out.height - y0);

  for (int i = thread; i < kColumns + kRows; i += kSamples) {
    // Pixels past the edge repeat the last one: they are computed and dropped.
    if (i < kColumns) {
      const ResizeTaps taps = p.x_axis.taps(min(x0 + i, p.out.width - 1));
      x_taps[i] = {taps.first, taps.count};
      p.x_axis.weights(taps, [&](int tap, std::int32_t w) { x_weights[tap * kColumns + i] = w; });
    } else {
      const int y = i - kColumns;
      const ResizeTaps taps = p.y_axis.taps(min(y0 + y, p.out.height - 1));
      y_taps[y] = {taps.first, taps.count};
      p.y_axis.weights(
          taps, [&](int tap, std::int32_t w) { y_weights[y * p.y_axis.max_taps() + tap] = w; });
    }
  }
  __syncthreads();  // weights -> rows

  const int column = thread / kChannels;
  const std::int64_t b = static_cast<int>(blockIdx.z) / p.groups;
  const int group = static_cast<int>(blockIdx.z) % p.groups;
  const int first_row = y_taps[0].x;
  const int input_rows = y_taps[num_rows - 1].x + y_taps[num_rows - 1].y - first_row;

  const int2 taps = x_taps[column];
  const std::uint8_t* const image = p.image.data + b * p.image.stride_b;
  const auto stride_y = static_cast<std::uint32_t>(p.image.stride_y);
  const auto stride_x = static_cast<std::uint32_t>(p.image.stride_x);
  const std::uint32_t first =
      (group * kChannels + thread % kChannels) * static_cast<std::uint32_t>(p.image.stride_c) +
      first_row * stride_y + taps.x * stride_x;
  pdl_wait();
  for (int row = 0; row < input_rows; row += kBatch) {
    std::uint32_t at[kBatch];
    std::int32_t sum[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      at[j] = first + min(row + j, input_rows - 1) * stride_y;
      sum[j] = kResizeHalf;
    }
    // Low tiles are few and wait for their loads: several taps are under way. Of high tiles there
    // are enough, and registers count.
#pragma unroll(kRows == 8 ? 4 : 1)
    for (int tap = 0; tap < taps.y; ++tap) {
      const std::int32_t weight = x_weights[tap * kColumns + column];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        sum[j] += weight * image[at[j]];
        at[j] += stride_x;
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (row + j < input_rows) rows[(row + j) * kSamples + thread] = resized_pixel(sum[j]);
  }
  __syncthreads();  // rows -> columns

  if (x0 + column >= p.out.width) return;
  const std::int64_t c = group * kChannels + thread % kChannels;
  std::uint8_t* const out = p.out.data + b * p.out.stride_b + c * p.out.stride_c +
                            y0 * p.out.stride_y + (x0 + column) * p.out.stride_x;
  for (int y = 0; y < num_rows; ++y) {
    const std::uint8_t* const from = rows + (y_taps[y].x - first_row) * kSamples + thread;
    std::int32_t sum = kResizeHalf;
#pragma unroll(kRows == 8 ? 4 : 1)
    for (int tap = 0; tap < y_taps[y].y; ++tap)
      sum += y_weights[y * p.y_axis.max_taps() + tap] * from[tap * kSamples];
    out[y * p.out.stride_y] = resized_pixel(sum);
  }
}

}  // namespace k3::cuda::resize_tile
