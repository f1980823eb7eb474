// SPDX-License-Identifier: Apache-2.0

// out = x * (c, c) + swap(x) * (-s, s) on vectors of pairs. The factors of a token are laid out
// once and serve all heads of q and k. Large outputs that are not their inputs go past the caches.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vision_rope.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/bf16-inl.h"
#include "cpu/f16-inl.h"
#include "cpu/parallel.h"
#include "cpu/row_spans.h"
#include "cpu/vision_rope.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

constexpr int kColumns = 256;  ///< of a head at a time
constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);
/// What a vector of fp32 becomes; shorter than 16 bytes it cannot pass the caches by.
constexpr std::size_t kStreamBytes = hn::MaxLanes(hn::ScalableTag<float>()) * sizeof(bf16);

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

/// `columns` elements, read before they are written: `to` may be `from`. `kStream`: vectors of bf16
/// past the caches, `to` aligned to kStreamBytes.
template <bool kStream, class T>
HWY_INLINE void rotate_row(const Factors& factors, const T* from, int columns, T* to) {
  const hn::ScalableTag<float> df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const auto rotated = [&](hn::Vec<decltype(df)> x, int i) HWY_ATTR {
    const auto swapped = hn::Mul(hn::Shuffle2301(x), hn::LoadU(df, factors.other + i));
    return hn::MulAdd(x, hn::LoadU(df, factors.own + i), swapped);
  };
  int i = 0;
  if constexpr (kStream && std::is_same_v<T, bf16>) {
    const hn::RebindToSigned<decltype(df)> di32;
    const hn::Rebind<std::uint16_t, decltype(df)> du16;
    for (; i + lanes <= columns; i += lanes) {
      const auto bits = bf16_bits(df, rotated(load(df, from + i), i));
      hn::Stream(hn::DemoteTo(du16, hn::BitCast(di32, bits)), du16,
                 reinterpret_cast<std::uint16_t*>(to + i));
    }
  }
  for (; i + lanes <= columns; i += lanes) store(df, rotated(load(df, from + i), i), to + i);
  if (i == columns) return;
  T rest[kMostLanes] = {};
  std::copy(from + i, from + columns, rest);
  store(df, rotated(load(df, rest), i), rest);
  std::copy(rest, rest + (columns - i), to + i);
}

/// A token of an interleaved tensor ends where no hardware looks for the next one. Into the L2.
template <class T>
HWY_INLINE void prefetch_row(const T* row, int columns) {
  constexpr int kLine = 64 / sizeof(T);
  for (int i = 0; i < columns; i += kLine) __builtin_prefetch(row + i, 0, 2);
}

/// `stream`: past the caches.
template <class T>
HWY_INLINE void rotate_token(const VisionRopeProblem& p, std::int64_t t, bool stream,
                             Factors& factors) {
  for (int column = 0; column < p.D; column += kColumns) {
    const int columns = std::min(kColumns, p.D - column);
    lay_out(p.freqs + t * p.freqs_stride + column, columns, factors);
    const auto rotate_heads = [&](const RopeHeads<const void>& in, const RopeHeads<void>& out) {
      const T* const from = static_cast<const T*>(in.data) + t * in.stride_t + column;
      T* const to = static_cast<T*>(out.data) + t * out.stride_t + column;
      for (std::int64_t h = 0; h < p.H; ++h) {
        if (t + 1 < p.T) prefetch_row(from + in.stride_t + h * in.stride_h, columns);
        T* const row = to + h * out.stride_h;
        if (stream && reinterpret_cast<std::uintptr_t>(row) % kStreamBytes == 0)
          rotate_row<(kStreamBytes >= 16)>(factors, from + h * in.stride_h, columns, row);
        else
          rotate_row<false>(factors, from + h * in.stride_h, columns, row);
      }
    };
    rotate_heads(p.q, p.q_out);
    rotate_heads(p.k, p.k_out);
  }
}

}  // namespace

void rotate_tokens(const VisionRopeProblem& p, std::int64_t begin, std::int64_t end, bool stream) {
  Factors factors = {};
  for (std::int64_t t = begin; t < end; ++t)
    p.dtype == DType::kBF16 ? rotate_token<bf16>(p, t, stream, factors)
                            : rotate_token<f16>(p, t, stream, factors);
  if (stream) hwy::FlushStream();
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(rotate_tokens);

constexpr double kElementTime = 3e-4;          ///< microseconds of one thread, roughly
constexpr std::int64_t kTaskElements = 65536;  ///< of q and k together

}  // namespace

void vision_rope(const VisionRopeProblem& p, const Target& target) {
  if (p.empty()) return;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_tokens);
  const double token_elements = 2.0 * p.H * p.D;
  const bool stream = !p.in_place && stream_outputs(p.T, 2LL * p.H * p.D);
  const auto tokens =
      static_cast<std::int64_t>(std::max(1.0, static_cast<double>(kTaskElements) / token_elements));
  const std::int64_t num_tasks = (p.T - 1) / tokens + 1;
  const int threads =
      useful_threads(target.threads, kElementTime * token_elements * static_cast<double>(p.T));
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    rotate(p, task * tokens, std::min(p.T, (task + 1) * tokens), stream);
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
