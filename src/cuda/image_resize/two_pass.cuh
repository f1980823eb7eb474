// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/image_resize.h"
#include "core/bicubic.h"
#include "cuda/common/divider.h"
#include "cuda/common/pdl.cuh"
#include "cuda/image_resize/pixel.cuh"

/// Any size and stride. Three kernels in a row, each a thread an output and no shared memory:
/// the weights of both axes, the rows, the columns.
namespace k3::cuda::resize_two_pass {

inline constexpr int kThreads = 256;

/// The taps of the outputs along one axis, in the workspace.
struct Table {
  ResizeAxis axis;
  int pixels;
  int max_taps;
  int2* taps;             ///< [pixels]: first, count
  std::int32_t* weights;  ///< [max_taps, pixels]
};

/// Pixels of the x axis, then of the y axis.
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ Table x, const __grid_constant__ Table y) {
  pdl_launch_dependents();
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Table& table = i < x.pixels ? x : y;
  if (i >= x.pixels) i -= x.pixels;
  if (i >= table.pixels) return;
  const ResizeTaps taps = table.axis.taps(static_cast<int>(i));
  pdl_wait();  // what ran before may still use the workspace
  table.taps[i] = {taps.first, taps.count};
  table.axis.weights(taps, [&](int tap, std::int32_t weight) {
    table.weights[std::int64_t{tap} * table.pixels + i] = weight;
  });
}

/// One pass along an axis of [planes, lines, pixels]: x for the rows, y for the columns.
struct Pass {
  Table table;
  const std::uint8_t* from;
  std::uint8_t* to;
  int channels;  ///< blockIdx.z is the plane, the image times channels plus the channel
  // Strides between images, channels, lines, and pixels along the axis.
  std::int64_t from_b, from_c, from_line, from_pixel;
  std::int64_t to_b, to_c, to_line, to_pixel;
  int lines;
  bool threads_along_lines;  ///< neighbouring threads take neighbouring lines, not pixels
};

__global__ void __launch_bounds__(kThreads) pass_kernel(const __grid_constant__ Pass p) {
  pdl_launch_dependents();
  const std::int64_t along = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t b = static_cast<int>(blockIdx.z) / p.channels;
  const std::int64_t c = static_cast<int>(blockIdx.z) % p.channels;
  const std::uint8_t* const from = p.from + b * p.from_b + c * p.from_c;
  std::uint8_t* const to = p.to + b * p.to_b + c * p.to_c;
  const int across = p.threads_along_lines ? p.table.pixels : p.lines;
  if (along >= (p.threads_along_lines ? p.lines : p.table.pixels)) return;
  pdl_wait();
  for (std::int64_t other = blockIdx.y; other < across; other += gridDim.y) {
    const std::int64_t line = p.threads_along_lines ? along : other;
    const std::int64_t pixel = p.threads_along_lines ? other : along;
    const int2 taps = p.table.taps[pixel];
    const std::uint8_t* at = from + line * p.from_line + taps.x * p.from_pixel;
    std::int32_t sum = kResizeHalf;
    for (int tap = 0; tap < taps.y; ++tap)
      sum += p.table.weights[std::int64_t{tap} * p.table.pixels + pixel] * at[tap * p.from_pixel];
    to[line * p.to_line + pixel * p.to_pixel] = resized_pixel(sum);
  }
}

}  // namespace k3::cuda::resize_two_pass
