// SPDX-License-Identifier: Apache-2.0

// out = x * (c, c) + swap(x) * (-s, s) on vectors of pairs. The factors of a token are laid out
// once and serve all heads of q and k.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vision_rope.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/f16-inl.h"
#include "cpu/parallel.h"
#include "cpu/vision_rope.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

constexpr int kColumns = 256;  ///< of a head at a time
constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);

template <class DF>
HWY_INLINE hn::Vec<DF> load(DF df, const bf16* from) {
  return load_bf16(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load(DF df, const f16* from) {
  return load_f16(df, from);
}
template <class DF>
HWY_INLINE void store(DF df, hn::Vec<DF> x, bf16* to) {
  store_bf16(df, x, to);
}
template <class DF>
HWY_INLINE void store(DF df, hn::Vec<DF> x, f16* to) {
  store_f16(df, x, to);
}

/// Both factors of each element of up to kColumns.
struct Factors {
  HWY_ALIGN float own[kColumns];    ///< c, c
  HWY_ALIGN float other[kColumns];  ///< -s, s
};

HWY_INLINE void lay_out(const float* freqs, int columns, Factors& factors) {
  for (int i = 0; i < columns; i += 2) {
    factors.own[i] = factors.own[i + 1] = freqs[i];
    factors.other[i] = -freqs[i + 1];
    factors.other[i + 1] = freqs[i + 1];
  }
}

/// `columns` elements, read before they are written: `to` may be `from`.
template <class T>
HWY_INLINE void rotate_row(const Factors& factors, const T* from, int columns, T* to) {
  const hn::ScalableTag<float> df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const auto rotated = [&](hn::Vec<decltype(df)> x, int i) HWY_ATTR {
    const auto swapped = hn::Mul(hn::Shuffle2301(x), hn::LoadU(df, factors.other + i));
    return hn::MulAdd(x, hn::LoadU(df, factors.own + i), swapped);
  };
  int i = 0;
  for (; i + lanes <= columns; i += lanes) store(df, rotated(load(df, from + i), i), to + i);
  if (i == columns) return;
  T rest[kMostLanes] = {};
  std::copy(from + i, from + columns, rest);
  store(df, rotated(load(df, rest), i), rest);
  std::copy(rest, rest + (columns - i), to + i);
}

/// A token of an interleaved tensor ends where no hardware looks for the next one.
template <class T>
HWY_INLINE void prefetch_row(const T* row, int columns) {
  constexpr int kLine = 64 / sizeof(T);
  for (int i = 0; i < columns; i += kLine) hwy::Prefetch(row + i);
}

template <class T>
HWY_INLINE void rotate_token(const VisionRopeProblem& p, std::int64_t t, Factors& factors) {
  for (int column = 0; column < p.D; column += kColumns) {
    const int columns = std::min(kColumns, p.D - column);
    lay_out(p.freqs + t * p.freqs_stride + column, columns, factors);
    const auto rotate_heads = [&](const RopeHeads<const void>& in, const RopeHeads<void>& out) {
      const T* const from = static_cast<const T*>(in.data) + t * in.stride_t + column;
      T* const to = static_cast<T*>(out.data) + t * out.stride_t + column;
      for (std::int64_t h = 0; h < p.H; ++h) {
        if (t + 1 < p.T) prefetch_row(from + in.stride_t + h * in.stride_h, columns);
        rotate_row(factors, from + h * in.stride_h, columns, to + h * out.stride_h);
      }
    };
    rotate_heads(p.q, p.q_out);
    rotate_heads(p.k, p.k_out);
  }
}

}  // namespace

void rotate_tokens(const VisionRopeProblem& p, std::int64_t begin, std::int64_t end) {
  Factors factors = {};
  for (std::int64_t t = begin; t < end; ++t)
    p.dtype == DType::kBF16 ? rotate_token<bf16>(p, t, factors) : rotate_token<f16>(p, t, factors);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(rotate_tokens);

constexpr double kElementTime = 3e-4;          ///< microseconds of one thread, roughly
constexpr std::int64_t kTaskElements = 32768;  ///< of q and k together

}  // namespace

void vision_rope(const VisionRopeProblem& p, const Target& target) {
  if (p.empty()) return;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_tokens);
  const double token_elements = 2.0 * p.H * p.D;
  const auto tokens =
      static_cast<std::int64_t>(std::max(1.0, static_cast<double>(kTaskElements) / token_elements));
  const std::int64_t num_tasks = (p.T - 1) / tokens + 1;
  const int threads =
      useful_threads(target.threads, kElementTime * token_elements * static_cast<double>(p.T));
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    rotate(p, task * tokens, std::min(p.T, (task + 1) * tokens));
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
