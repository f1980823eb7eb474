// SPDX-License-Identifier: Apache-2.0

// Patches are made one after the other, each from all of its rows. Pixels that are no neighbours,
// or reach past the image, are gathered first. A large output is put together in the cache, a few
// patches at a time, and stored past it: a plain store would read each line of the output first
// (docs/vision.md).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vision_patchify.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/bf16-inl.h"
#include "cpu/parallel.h"
#include "cpu/row_spans.h"
#include "cpu/vision_patchify.h"

#ifndef K3_CPU_VISION_PATCHIFY_TASK_
#define K3_CPU_VISION_PATCHIFY_TASK_
namespace k3::cpu {

/// Patches [gx_begin, gx_end) of row gy of the grid of image b.
struct PatchTask {
  std::int64_t b;
  int gy;
  int gx_begin;
  int gx_end;
  int staged;  ///< patches to store at once past the cache; 0 stores each where it is made
};

inline constexpr int kPatchRows = 64;             ///< rows of a patch at a time
inline constexpr std::int64_t kLinePixels = 256;  ///< of each row at a time
inline constexpr std::int64_t kStagingBytes = 5 * 1024;

}  // namespace k3::cpu
#endif  // K3_CPU_VISION_PATCHIFY_TASK_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kMostLanes = 8;  ///< of the vectors that make a row of a patch

template <class DF>
HWY_INLINE hn::Vec<DF> load_pixels(DF df, const float* from) {
  return hn::LoadU(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load_pixels(DF df, const bf16* from) {
  return load_bf16(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load_pixels(DF df, const std::uint8_t* from) {
  const hn::RebindToSigned<DF> di32;
  const hn::Rebind<std::uint8_t, DF> du8;
  return hn::ConvertTo(df, hn::PromoteTo(di32, hn::LoadU(du8, from)));
}
template <class DF>
HWY_INLINE void store_elements(DF df, hn::Vec<DF> x, float* to) {
  hn::StoreU(x, df, to);
}
template <class DF>
HWY_INLINE void store_elements(DF df, hn::Vec<DF> x, bf16* to) {
  store_bf16(df, x, to);
}

#if HWY_NATIVE_FMA
template <class DF>
HWY_INLINE hn::Vec<DF> fused_multiply_add(DF /*df*/, hn::Vec<DF> x, hn::Vec<DF> scale,
                                          hn::Vec<DF> bias) {
  return hn::MulAdd(x, scale, bias);
}
#else
/// a + b rounded to odd: where it is inexact, the last bit is set. Rounding that to fp32, with 29
/// bits fewer, gives what rounding the exact sum would.
template <class DD>
HWY_INLINE hn::Vec<DD> add_to_odd(DD dd, hn::Vec<DD> a, hn::Vec<DD> b) {
  const hn::RebindToSigned<DD> di64;
  const auto sum = hn::Add(a, b);
  const auto part = hn::Sub(sum, a);
  const auto error = hn::Add(hn::Sub(a, hn::Sub(sum, part)), hn::Sub(b, part));
  // False where the error is NaN, beside an infinite sum.
  const auto inexact = hn::Or(hn::Gt(error, hn::Zero(dd)), hn::Lt(error, hn::Zero(dd)));
  const auto bits = hn::BitCast(di64, sum);
  const auto one = hn::Set(di64, 1);
  const auto is_even = hn::Eq(hn::And(bits, one), hn::Zero(di64));
  const auto toward_zero = hn::Xor(bits, hn::BitCast(di64, error));  // negative: signs differ
  const auto odd =
      hn::IfThenElse(hn::Lt(toward_zero, hn::Zero(di64)), hn::Sub(bits, one), hn::Add(bits, one));
  const auto adjust = hn::And(hn::RebindMask(di64, inexact), is_even);
  return hn::BitCast(dd, hn::IfThenElse(adjust, odd, bits));
}

/// In double the product is exact.
template <class DF>
HWY_INLINE hn::Vec<DF> fused_multiply_add(DF df, hn::Vec<DF> x, hn::Vec<DF> scale,
                                          hn::Vec<DF> bias) {
  const hn::Half<DF> half;
  const hn::Rebind<double, decltype(half)> dd;
  const auto part = [&](hn::Vec<decltype(half)> x_half, hn::Vec<decltype(half)> scale_half,
                        hn::Vec<decltype(half)> bias_half) {
    const auto product = hn::Mul(hn::PromoteTo(dd, x_half), hn::PromoteTo(dd, scale_half));
    return hn::DemoteTo(half, add_to_odd(dd, product, hn::PromoteTo(dd, bias_half)));
  };
  const auto low =
      part(hn::LowerHalf(half, x), hn::LowerHalf(half, scale), hn::LowerHalf(half, bias));
  const auto high =
      part(hn::UpperHalf(half, x), hn::UpperHalf(half, scale), hn::UpperHalf(half, bias));
  return hn::Combine(df, high, low);
}
#endif

/// `count` pixels as neighbours in `line`, and zeros up to `size`.
template <class In>
HWY_INLINE void gather(const In* pixels, std::int64_t stride, std::int64_t count, std::int64_t size,
                       In* line) {
  if (stride == 1)
    std::copy(pixels, pixels + count, line);
  else
    for (std::int64_t x = 0; x < count; ++x) line[x] = pixels[x * stride];
  std::fill(line + count, line + size, In{});
}

/// The same of three channels that interleave, to lines `pitch` apart.
HWY_INLINE void gather_three(const std::uint8_t* pixels, std::int64_t count, std::int64_t size,
                             std::uint8_t* line, std::int64_t pitch) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t x = 0;
  for (; x + lanes <= count; x += lanes) {
    hn::Vec<decltype(d)> c0;
    hn::Vec<decltype(d)> c1;
    hn::Vec<decltype(d)> c2;
    hn::LoadInterleaved3(d, pixels + 3 * x, c0, c1, c2);
    hn::StoreU(c0, d, line + x);
    hn::StoreU(c1, d, line + pitch + x);
    hn::StoreU(c2, d, line + 2 * pitch + x);
  }
  for (int c = 0; c < 3; ++c)
    gather<std::uint8_t>(pixels + 3 * x + c, 3, count - x, size - x, line + c * pitch + x);
}

/// `width` elements of a row of a patch. The last vector may go back over those before it: what a
/// vector stores does not depend on where it begins.
template <class In, class Out>
HWY_INLINE void normalise(const In* pixels, std::int64_t width, float scale, float bias, Out* out) {
  const hn::CappedTag<float, kMostLanes> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const auto scales = hn::Set(df, scale);
  const auto biases = hn::Set(df, bias);
  const auto put = [&](const In* from, Out* to) HWY_ATTR {
    store_elements(df, fused_multiply_add(df, load_pixels(df, from), scales, biases), to);
  };
  if (width < lanes) {
    In few[kMostLanes] = {};
    Out made[kMostLanes];
    std::copy(pixels, pixels + width, few);
    put(few, made);
    std::copy(made, made + width, out);
    return;
  }
  for (std::int64_t x = 0; x + lanes <= width; x += lanes) put(pixels + x, out + x);
  if (width % lanes != 0) put(pixels + width - lanes, out + width - lanes);
}

/// Stores past the cache, but for the ends that do not fill a vector.
HWY_INLINE void stream_bytes(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t at = unaligned_head(to, bytes, step);
  std::memcpy(to, from, static_cast<std::size_t>(at));
  for (; at + step <= bytes; at += step)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from) + at), d,
               reinterpret_cast<std::uint8_t*>(to) + at);
  std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
}

HWY_INLINE float affine_value(const VisionPatchifyProblem& p, const void* values, int c) {
  return p.affine_dtype == DType::kF32 ? static_cast<const float*>(values)[c]
                                       : to_float(static_cast<const bf16*>(values)[c]);
}

/// Pixels [x, x + size) of some rows of a patch, each row's `size` neighbours, and their map.
template <class In>
struct PatchRows {
  const In* pixels[kPatchRows];
  float scale[kPatchRows];
  float bias[kPatchRows];
  In gathered[kPatchRows * kLinePixels];

  /// Rows [row, row + count) in the order of a patch: of channel 0, of channel 1, ...
  HWY_INLINE void take(const VisionPatchifyProblem& p, const PatchTask& task, int row, int count,
                       std::int64_t x, std::int64_t size) {
    const std::int64_t across = std::clamp<std::int64_t>(p.W - x, 0, size);
    const bool of_three = sizeof(In) == 1 && p.C == 3 && p.image_stride_c == 1 &&
                          p.image_stride_x == 3 && count == 3 * p.P;
    for (int r = 0; r < count; ++r) {
      const int c = (row + r) / p.P;
      const std::int64_t y = std::int64_t{task.gy} * p.P + (row + r) % p.P;
      const std::int64_t exist = y < p.H ? across : 0;
      scale[r] = affine_value(p, p.scale, c);
      bias[r] = affine_value(p, p.bias, c);
      pixels[r] = exist == 0
                      ? nullptr
                      : static_cast<const In*>(p.image) + task.b * p.image_stride_b +
                            c * p.image_stride_c + y * p.image_stride_y + x * p.image_stride_x;
      if (p.image_stride_x == 1 && exist == size) continue;
      In* const line = gathered + r * kLinePixels;
      if constexpr (sizeof(In) == 1)
        if (of_three && c == 0) gather_three(pixels[r], exist, size, line, p.P * kLinePixels);
      if (!of_three) gather<In>(pixels[r], p.image_stride_x, exist, size, line);
      pixels[r] = line;
    }
  }
};

/// Into the L2: the rows of a patch may fall into few sets of the L1.
template <class In>
HWY_INLINE void prefetch(const In* at) {
  __builtin_prefetch(at, 0, 2);
}

template <class In, class Out>
void make_patches(const VisionPatchifyProblem& p, const PatchTask& task) {
  constexpr std::int64_t kLine = 64 / sizeof(In);
  constexpr std::int64_t kAhead = 8 * kLine;
  HWY_ALIGN Out staging[kStagingBytes / sizeof(Out)];
  PatchRows<In> rows;
  Out* const out = static_cast<Out*>(p.out) + task.b * p.out_stride_b +
                   std::int64_t{task.gy} * p.grid_width * p.out_stride_patch;
  const std::int64_t end = std::int64_t{task.gx_end} * p.P;
  // A piece of a line holds whole patches, or a part of one.
  const bool whole = p.P <= kLinePixels;
  const std::int64_t piece = whole ? kLinePixels / p.P * p.P : kLinePixels;
  const int num_rows = p.C * p.P;
  for (int row = 0; row < num_rows; row += kPatchRows) {
    const int count = std::min(kPatchRows, num_rows - row);
    std::int64_t first_staged = task.gx_begin;
    const std::int64_t begin = std::int64_t{task.gx_begin} * p.P;
    for (std::int64_t x = begin; x < end;) {
      const std::int64_t in_patch = x % p.P;
      const std::int64_t size = std::min({piece, end - x, whole ? piece : p.P - in_patch});
      rows.take(p, task, row, count, x, size);
      if (x == begin)
        for (std::int64_t i = 0; i < kAhead; i += kLine)
          for (int r = 0; r < count; ++r) prefetch(rows.pixels[r] + i);
      const std::int64_t width = std::min<std::int64_t>(p.P, size);
      std::int64_t gx = x / p.P;
      for (std::int64_t i = 0; i < size; i += width, ++gx) {
        Out* const to = (task.staged > 0 ? staging + (gx - first_staged) * p.patch_elements
                                         : out + gx * p.out_stride_patch) +
                        std::int64_t{row} * p.P + in_patch;
        for (int r = 0; r < count; ++r) {
          // There are more rows than the hardware follows.
          prefetch(rows.pixels[r] + i + kAhead);
          normalise(rows.pixels[r] + i, width, rows.scale[r], rows.bias[r], to + r * p.P);
        }
        if (task.staged == 0 || (gx + 1 < task.gx_end && gx + 1 < first_staged + task.staged))
          continue;
        stream_bytes(
            reinterpret_cast<const std::byte*>(staging),
            reinterpret_cast<std::byte*>(out + first_staged * p.out_stride_patch),
            (gx + 1 - first_staged) * p.patch_elements * static_cast<std::int64_t>(sizeof(Out)));
        first_staged = gx + 1;
      }
      x += size;
    }
  }
  if (task.staged > 0) hwy::FlushStream();
}

}  // namespace

void run_patch_task(const VisionPatchifyProblem& p, const PatchTask& task) {
  const bool to_f32 = p.out_dtype == DType::kF32;
  if (p.image_dtype == DType::kBF16)
    make_patches<bf16, bf16>(p, task);
  else if (p.image_dtype == DType::kF32)
    to_f32 ? make_patches<float, float>(p, task) : make_patches<float, bf16>(p, task);
  else
    to_f32 ? make_patches<std::uint8_t, float>(p, task) : make_patches<std::uint8_t, bf16>(p, task);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(run_patch_task);

constexpr double kElementTime = 3e-4;  ///< microseconds of one thread, roughly
/// A smaller output may stay in the cache for who reads it next.
constexpr double kPastCacheBytes = 4.0 * (1 << 20);
/// Of a task, about 15 us of work; one patch where it has more. Each begins with cold rows.
constexpr std::int64_t kTaskElements = 65536;

}  // namespace

void vision_patchify(const VisionPatchifyProblem& p, const Target& target) {
  if (p.empty()) return;
  const auto run_task = HWY_DYNAMIC_DISPATCH(run_patch_task);
  const double elements = static_cast<double>(p.B) * p.grid_height * p.grid_width *
                          static_cast<double>(p.patch_elements);
  const auto element_bytes = static_cast<std::int64_t>(size_of(p.out_dtype));
  const bool past_cache = elements * static_cast<double>(element_bytes) >= kPastCacheBytes &&
                          p.out_stride_patch == p.patch_elements && p.C * p.P <= kPatchRows;
  const auto staged =
      static_cast<int>(past_cache ? kStagingBytes / (element_bytes * p.patch_elements) : 0);
  const std::int64_t patches =
      std::clamp<std::int64_t>(kTaskElements / p.patch_elements, 1, p.grid_width);
  const std::int64_t tasks_per_row = (p.grid_width + patches - 1) / patches;

  const int threads = useful_threads(target.threads, kElementTime * elements);
  parallel_for(p.B * p.grid_height * tasks_per_row, threads, [&](std::int64_t i, int /*thread*/) {
    const std::int64_t row = i / tasks_per_row;
    const std::int64_t gx = i % tasks_per_row * patches;
    run_task(p, {.b = row / p.grid_height,
                 .gy = static_cast<int>(row % p.grid_height),
                 .gx_begin = static_cast<int>(gx),
                 .gx_end = static_cast<int>(std::min<std::int64_t>(gx + patches, p.grid_width)),
                 .staged = staged});
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
