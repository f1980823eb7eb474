// SPDX-License-Identifier: Apache-2.0

// A task makes a block of one channel: it resizes the rows that the block needs into scratch
// memory, then the columns of those. Lanes are rows in the first pass and pixels of a row in the
// second, so that a weight is one broadcast in both (docs/vision.md).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/image_resize.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/bicubic.h"
#include "cpu/image_resize.h"
#include "cpu/parallel.h"

#ifndef K3_CPU_IMAGE_RESIZE_PLAN_
#define K3_CPU_IMAGE_RESIZE_PLAN_
namespace k3::cpu {

/// More rows at once than any target has lanes.
inline constexpr int kResizeLanes = 16;

/// The taps of every output pixel along one axis, and their weights.
struct ResizeTable {
  int max_taps = 0;
  const ResizeTaps* taps = nullptr;
  const std::int32_t* weights = nullptr;  ///< [pixels, max_taps]

  [[nodiscard]] const std::int32_t* weights_of(int i) const {
    return weights + static_cast<std::int64_t>(i) * max_taps;
  }
};

/// A block of outputs of one channel, and the task's scratch memory.
struct ResizeBlock {
  std::int64_t b;
  std::int64_t c;
  int y_begin;
  int y_end;
  int x_begin;
  int x_end;
  std::uint8_t* columns;  ///< [input columns of the block, kResizeLanes]: rows side by side
  std::uint8_t* rows;     ///< [input rows of the block, x_end - x_begin]: resized rows
};

}  // namespace k3::cpu
#endif  // K3_CPU_IMAGE_RESIZE_PLAN_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::CappedTag<std::int32_t, kResizeLanes> kSums;
const hn::Rebind<std::uint8_t, decltype(kSums)> kBytes;
using Sums = hn::Vec<decltype(kSums)>;

/// 22 fractional bits, rounded by the half that the sum began with, saturated to a byte.
HWY_INLINE hn::Vec<decltype(kBytes)> to_bytes(Sums sums) {
  return hn::DemoteTo(kBytes, hn::ShiftRight<kResizeFractionBits>(sums));
}

/// The weighted sum of `count` vectors of bytes, `stride` bytes apart.
HWY_INLINE Sums weighted_sum(const std::uint8_t* bytes, std::int64_t stride,
                             const std::int32_t* weights, int count) {
  Sums sums = hn::Set(kSums, kResizeHalf);
  for (int i = 0; i < count; ++i, bytes += stride)
    sums = hn::Add(
        sums, hn::Mul(hn::PromoteTo(kSums, hn::LoadU(kBytes, bytes)), hn::Set(kSums, weights[i])));
  return sums;
}

/// Input rows [y, y + count) of the block, count <= lanes, to its resized rows from `row` on.
HWY_INLINE void resize_rows(const ImagePlanes<const std::uint8_t>& image, const ResizeTable& table,
                            const ResizeBlock& block, int y, int count, std::int64_t row) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kSums));
  const std::int64_t first = table.taps[block.x_begin].first;
  const ResizeTaps& last = table.taps[block.x_end - 1];
  const std::uint8_t* const from =
      image.data + block.b * image.stride_b + block.c * image.stride_c + y * image.stride_y;
  for (int lane = 0; lane < count; ++lane)
    for (std::int64_t x = first; x < last.first + last.count; ++x)
      block.columns[(x - first) * lanes + lane] = from[lane * image.stride_y + x * image.stride_x];

  const std::int64_t width = block.x_end - block.x_begin;
  std::uint8_t* const to = block.rows + row * width;
  HWY_ALIGN std::uint8_t made[kResizeLanes];
  for (std::int64_t x = 0; x < width; ++x) {
    const int out_x = block.x_begin + static_cast<int>(x);
    const ResizeTaps& taps = table.taps[out_x];
    const Sums sums = weighted_sum(block.columns + (taps.first - first) * lanes, lanes,
                                   table.weights_of(out_x), taps.count);
    hn::StoreU(to_bytes(sums), kBytes, made);
    for (int lane = 0; lane < count; ++lane) to[lane * width + x] = made[lane];
  }
}

/// Output row y of the block from its resized rows, of which the first is input row `first`.
HWY_INLINE void resize_columns(const ImagePlanes<std::uint8_t>& out, const ResizeTable& table,
                               const ResizeBlock& block, int y, int first) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kSums));
  const std::int64_t width = block.x_end - block.x_begin;
  const ResizeTaps& taps = table.taps[y];
  const std::int32_t* const weights = table.weights_of(y);
  const std::uint8_t* const rows = block.rows + (taps.first - first) * width;
  std::uint8_t* const to = out.data + block.b * out.stride_b + block.c * out.stride_c +
                           y * out.stride_y + block.x_begin * out.stride_x;
  HWY_ALIGN std::uint8_t made[kResizeLanes];
  for (std::int64_t x = 0; x < width; x += lanes) {
    // The last vector goes back over the one before it; a narrow block reads past its rows, into
    // scratch memory, and drops what that gives.
    const std::int64_t at = std::max<std::int64_t>(std::min(x, width - lanes), 0);
    const auto bytes = to_bytes(weighted_sum(rows + at, width, weights, taps.count));
    if (out.stride_x == 1 && at + lanes <= width) {
      hn::StoreU(bytes, kBytes, to + at);
      continue;
    }
    hn::StoreU(bytes, kBytes, made);
    for (std::int64_t i = 0; i < std::min(lanes, width - at); ++i)
      to[(at + i) * out.stride_x] = made[i];
  }
}

}  // namespace

void resize_block(const ImageResizeProblem& p, const ResizeTable& x_table,
                  const ResizeTable& y_table, const ResizeBlock& block) {
  const int lanes = static_cast<int>(hn::Lanes(kSums));
  const int first = y_table.taps[block.y_begin].first;
  const ResizeTaps& last = y_table.taps[block.y_end - 1];
  const int end = last.first + last.count;
  for (int y = first; y < end; y += lanes)
    resize_rows(p.image, x_table, block, y, std::min(lanes, end - y), y - first);
  for (int y = block.y_begin; y < block.y_end; ++y) resize_columns(p.out, y_table, block, y, first);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(resize_block);

constexpr std::size_t kAlignment = 64;
constexpr double kTapTime = 4e-4;  ///< microseconds of one thread for a tap of a pixel, roughly

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Input pixels that `count` neighbouring outputs take.
std::int64_t span_of(const ResizeAxis& axis, int size, int out_size, std::int64_t count) {
  const std::int64_t moved = count * size / out_size + 1;
  return std::min<std::int64_t>(size, moved + axis.max_taps());
}

/// Where everything lies in the workspace. Blocks are as large as keeps the rows of one in the L2.
struct Plan {
  ResizeAxis x_axis;
  ResizeAxis y_axis;
  int block_width = 0;
  int block_height = 0;
  std::size_t x_table_bytes = 0;
  std::size_t y_table_bytes = 0;
  std::size_t columns_bytes = 0;  ///< of a thread
  std::size_t rows_bytes = 0;     ///< of a thread

  explicit Plan(const ImageResizeProblem& p)
      : x_axis(p.image.width, p.out.width), y_axis(p.image.height, p.out.height) {
    constexpr int kBlockWidth = 1024;
    constexpr int kBlockHeight = 64;
    block_width = std::min(p.out.width, kBlockWidth);
    block_height = std::min(p.out.height, kBlockHeight);
    x_table_bytes = table_bytes(x_axis, p.out.width);
    y_table_bytes = table_bytes(y_axis, p.out.height);
    columns_bytes = aligned(static_cast<std::size_t>(
        kResizeLanes * span_of(x_axis, p.image.width, p.out.width, block_width)));
    rows_bytes = aligned(static_cast<std::size_t>(
        block_width * span_of(y_axis, p.image.height, p.out.height, block_height) + kResizeLanes));
  }
  static std::size_t table_bytes(const ResizeAxis& axis, int pixels) {
    return aligned(static_cast<std::size_t>(pixels) *
                   (sizeof(ResizeTaps) + sizeof(std::int32_t) * axis.max_taps()));
  }
};

/// Fills a table of `pixels` outputs in `memory`.
ResizeTable make_table(const ResizeAxis& axis, int pixels, int threads, std::byte* memory) {
  const int max_taps = axis.max_taps();
  auto* const taps = reinterpret_cast<ResizeTaps*>(memory);
  auto* const weights = reinterpret_cast<std::int32_t*>(taps + pixels);
  constexpr int kPixels = 256;  // of a task
  parallel_for((pixels - 1) / kPixels + 1, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t end = std::min<std::int64_t>(pixels, (task + 1) * kPixels);
    for (std::int64_t i = task * kPixels; i < end; ++i) {
      taps[i] = axis.taps(static_cast<int>(i));
      axis.weights(taps[i],
                   [&](int tap, std::int32_t weight) { weights[i * max_taps + tap] = weight; });
    }
  });
  return {max_taps, taps, weights};
}

}  // namespace

std::size_t image_resize_workspace(const ImageResizeProblem& p, const Target& target) {
  if (p.empty()) return 0;
  const Plan plan(p);
  return plan.x_table_bytes + plan.y_table_bytes +
         static_cast<std::size_t>(target.threads) * (plan.columns_bytes + plan.rows_bytes);
}

void image_resize(const ImageResizeProblem& p, const Target& target) {
  if (p.empty()) return;
  const auto resize = HWY_DYNAMIC_DISPATCH(resize_block);
  const Plan plan(p);
  const double planes = static_cast<double>(p.B) * static_cast<double>(p.C);
  const double taps = plan.x_axis.max_taps() * static_cast<double>(p.image.height) +
                      plan.y_axis.max_taps() * static_cast<double>(p.out.height);
  const int threads = useful_threads(target.threads, kTapTime * planes * p.out.width * taps);

  auto* memory = static_cast<std::byte*>(target.workspace.data);
  const ResizeTable x_table = make_table(plan.x_axis, p.out.width, threads, memory);
  memory += plan.x_table_bytes;
  const ResizeTable y_table = make_table(plan.y_axis, p.out.height, threads, memory);
  memory += plan.y_table_bytes;

  const std::int64_t across = (p.out.width - 1) / plan.block_width + 1;
  const std::int64_t down = (p.out.height - 1) / plan.block_height + 1;
  parallel_for(p.B * p.C * down * across, threads, [&](std::int64_t task, int thread) {
    std::byte* const scratch =
        memory + static_cast<std::size_t>(thread) * (plan.columns_bytes + plan.rows_bytes);
    const std::int64_t plane = task / (down * across);
    const int y = static_cast<int>(task / across % down) * plan.block_height;
    const int x = static_cast<int>(task % across) * plan.block_width;
    resize(p, x_table, y_table,
           {.b = plane / p.C,
            .c = plane % p.C,
            .y_begin = y,
            .y_end = std::min(y + plan.block_height, p.out.height),
            .x_begin = x,
            .x_end = std::min(x + plan.block_width, p.out.width),
            .columns = reinterpret_cast<std::uint8_t*>(scratch),
            .rows = reinterpret_cast<std::uint8_t*>(scratch + plan.columns_bytes)});
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
