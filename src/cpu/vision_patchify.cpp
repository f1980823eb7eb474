// SPDX-License-Identifier: Apache-2.0

// Each row of an image is cut into rows of patches; pixels that are no neighbours, or reach past
// the image, are gathered first. Large outputs are put together in the cache, a few patches at a
// time, and stored past it: a plain store would read each line of the output first
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
  bool past_cache;  ///< the patches are neighbours in memory and fit kStagingBytes
};

inline constexpr std::size_t kStagingBytes = 176 * 1024;  ///< with the lines, within a 32 KiB L1
inline constexpr std::int64_t kLinePixels = 2048;

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

/// Pixels of one channel of a row.
template <class In>
struct PixelRow {
  const In* pixels;
  std::int64_t stride;
  std::int64_t count;    ///< that exist
  int channel_of_three;  ///< where three channels interleave; else -1
};

/// `size` neighbours in `line`, zeros for those that do not exist.
template <class In>
HWY_INLINE void gather(const PixelRow<In>& row, std::int64_t size, In* line) {
  std::int64_t x = 0;
  if constexpr (sizeof(In) == 1) {
    const hn::ScalableTag<std::uint8_t> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; row.channel_of_three >= 0 && x + lanes <= row.count; x += lanes) {
      hn::Vec<decltype(d)> c0;
      hn::Vec<decltype(d)> c1;
      hn::Vec<decltype(d)> c2;
      hn::LoadInterleaved3(d, row.pixels + 3 * x - row.channel_of_three, c0, c1, c2);
      hn::StoreU(row.channel_of_three == 0 ? c0 : row.channel_of_three == 1 ? c1 : c2, d, line + x);
    }
  }
  for (; x < row.count; ++x) line[x] = row.pixels[x * row.stride];
  std::fill(line + x, line + size, In{});
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
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to)) % step;
  std::int64_t at = std::min(bytes, past == 0 ? 0 : step - past);
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

/// Row py of channel c of the task's patches, to `out`, whose patches are `out_stride` apart.
template <class In, class Out>
HWY_INLINE void patch_rows(const VisionPatchifyProblem& p, const PatchTask& task, int c, int py,
                           Out* out, std::int64_t out_stride) {
  HWY_ALIGN In line[kLinePixels];
  const float scale = affine_value(p, p.scale, c);
  const float bias = affine_value(p, p.bias, c);
  const bool of_three =
      sizeof(In) == 1 && p.C == 3 && p.image_stride_c == 1 && p.image_stride_x == 3;
  const std::int64_t y = std::int64_t{task.gy} * p.P + py;
  const std::int64_t row_offset =
      task.b * p.image_stride_b + c * p.image_stride_c + y * p.image_stride_y;
  out += (std::int64_t{c} * p.P + py) * p.P;

  const std::int64_t begin = std::int64_t{task.gx_begin} * p.P;
  const std::int64_t end = std::int64_t{task.gx_end} * p.P;
  // A line holds whole patches, or a part of one.
  const bool whole = p.P <= kLinePixels;
  const std::int64_t piece = whole ? kLinePixels / p.P * p.P : kLinePixels;
  for (std::int64_t x = begin; x < end;) {
    const std::int64_t in_patch = x % p.P;
    const std::int64_t size = std::min({piece, end - x, whole ? piece : p.P - in_patch});
    const std::int64_t count = y < p.H ? std::clamp<std::int64_t>(p.W - x, 0, size) : 0;
    const In* pixels =
        count > 0 ? static_cast<const In*>(p.image) + row_offset + x * p.image_stride_x : nullptr;
    if (p.image_stride_x != 1 || count < size) {
      gather<In>({pixels, p.image_stride_x, count, of_three ? c : -1}, size, line);
      pixels = line;
    }
    // The row below comes next, from another page as a rule: there nothing else fetches ahead.
    const std::int64_t next_row = pixels != line && y + 1 < p.H ? p.image_stride_y : 0;
    Out* to = out + (x - begin) / p.P * out_stride + in_patch;
    const std::int64_t width = std::min<std::int64_t>(p.P, size);
    for (std::int64_t i = 0; i < size; i += width, to += out_stride) {
      if (next_row != 0) hwy::Prefetch(pixels + i + next_row);
      normalise(pixels + i, width, scale, bias, to);
    }
    x += size;
  }
}

template <class In, class Out>
void make_patches(const VisionPatchifyProblem& p, const PatchTask& task) {
  HWY_ALIGN Out staging[kStagingBytes / sizeof(Out)];
  const std::int64_t first = std::int64_t{task.gy} * p.grid_width + task.gx_begin;
  Out* const out = static_cast<Out*>(p.out) + task.b * p.out_stride_b + first * p.out_stride_patch;
  for (int c = 0; c < p.C; ++c)
    for (int py = 0; py < p.P; ++py)
      patch_rows<In>(p, task, c, py, task.past_cache ? staging : out,
                     task.past_cache ? p.patch_elements : p.out_stride_patch);
  if (!task.past_cache) return;
  stream_bytes(reinterpret_cast<const std::byte*>(staging), reinterpret_cast<std::byte*>(out),
               std::int64_t{task.gx_end - task.gx_begin} * p.patch_elements *
                   static_cast<std::int64_t>(sizeof(Out)));
  hwy::FlushStream();
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

constexpr double kElementTime = 5e-4;  ///< microseconds of one thread, roughly
/// A smaller output may stay in the cache for who reads it next.
constexpr double kPastCacheBytes = 4.0 * (1 << 20);
/// Elements of a task that writes its patches in place, at most where patches are smaller.
constexpr std::int64_t kTaskElements = 8192;

}  // namespace

void vision_patchify(const VisionPatchifyProblem& p, const Target& target) {
  if (p.empty()) return;
  const auto run_task = HWY_DYNAMIC_DISPATCH(run_patch_task);
  const double elements = static_cast<double>(p.B) * p.grid_height * p.grid_width *
                          static_cast<double>(p.patch_elements);
  const auto element_bytes = static_cast<std::int64_t>(size_of(p.out_dtype));
  const std::int64_t staged =
      static_cast<std::int64_t>(kStagingBytes) / (element_bytes * p.patch_elements);
  const bool past_cache = elements * static_cast<double>(element_bytes) >= kPastCacheBytes &&
                          staged > 0 && p.out_stride_patch == p.patch_elements;
  const std::int64_t patches = std::clamp<std::int64_t>(
      past_cache ? staged : kTaskElements / p.patch_elements, 1, p.grid_width);
  const std::int64_t tasks_per_row = (p.grid_width + patches - 1) / patches;

  const int threads = useful_threads(target.threads, kElementTime * elements);
  parallel_for(p.B * p.grid_height * tasks_per_row, threads, [&](std::int64_t i, int /*thread*/) {
    const std::int64_t row = i / tasks_per_row;
    const std::int64_t gx = i % tasks_per_row * patches;
    run_task(p, {.b = row / p.grid_height,
                 .gy = static_cast<int>(row % p.grid_height),
                 .gx_begin = static_cast<int>(gx),
                 .gx_end = static_cast<int>(std::min<std::int64_t>(gx + patches, p.grid_width)),
                 .past_cache = past_cache});
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
