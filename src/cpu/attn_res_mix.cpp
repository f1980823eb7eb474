// SPDX-License-Identifier: Apache-2.0

// A token's rows pass twice, for their scores and for the mixture, both times from the L2: each
// pass asks for half of the next token's rows. Vectors hold the even and the odd elements of a row
// apart, which makes widening bf16 one shift or one mask. docs/attn_res_mix.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_res_mix.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/attn_res_mix.h"
#include "cpu/bf16-inl.h"
#include "cpu/parallel.h"

#ifndef K3_CPU_ATTN_RES_MIX_ROWS_
#define K3_CPU_ATTN_RES_MIX_ROWS_
namespace k3::cpu {

/// The rows of one token, the prefix last.
struct TokenRows {
  TokenRows(const AttnResMixProblem& p, std::int64_t t)
      : bank(p.bank + t * p.bank_token_stride),
        bank_stride(p.bank_row_stride),
        prefix(p.prefix + t * p.prefix_stride),
        count(p.num_bank_rows + 1) {}

  [[nodiscard]] const bf16* row(int j) const {
    return j + 1 < count ? bank + j * bank_stride : prefix;
  }

  const bf16* bank;
  std::int64_t bank_stride;
  const bf16* prefix;
  int count;
};

}  // namespace k3::cpu
#endif  // K3_CPU_ATTN_RES_MIX_ROWS_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace mix {

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;
constexpr DF kF;
constexpr hn::RebindToUnsigned<DF> kU32;
constexpr hn::Repartition<std::uint16_t, DF> kU16;

/// The even and the odd ones of 2 Lanes(kF) consecutive elements.
using Pair = EvenOdd<DF>;

HWY_INLINE Pair load_pair(const bf16* from) { return load_even_odd(kF, from); }

/// `kStream`: past the caches, `to` aligned to a vector.
template <bool kStream = false>
HWY_INLINE void store_pair(Pair x, bf16* to) {
  auto words = hn::OrAnd(hn::ShiftRight<16>(rounded_high_halves(x.even)),
                         rounded_high_halves(x.odd), hn::Set(kU32, 0xFFFF0000U));
  // Where one is a NaN, or, needlessly, both are infinities of opposite sign.
  if (HWY_UNLIKELY(!hn::AllFalse(kF, hn::IsNaN(hn::Add(x.even, x.odd)))))
    words = hn::Or(bf16_bits(kF, x.even), hn::ShiftLeft<16>(bf16_bits(kF, x.odd)));
  auto* const bits = reinterpret_cast<std::uint16_t*>(to);
  if constexpr (kStream)
    hn::Stream(hn::BitCast(kU16, words), kU16, bits);
  else
    hn::StoreU(hn::BitCast(kU16, words), kU16, bits);
}

/// fp32 vectors in the order of pairs.
HWY_INLINE Pair load_split(const float* from) {
  return {hn::LoadU(kF, from), hn::LoadU(kF, from + hn::Lanes(kF))};
}
HWY_INLINE void store_split(Pair x, float* to) {
  hn::StoreU(x.even, kF, to);
  hn::StoreU(x.odd, kF, to + hn::Lanes(kF));
}

/// The last elements of a row, fewer than a pair has: zeros follow them.
struct Tail {
  Tail() = default;
  Tail(const bf16* from, int count) {
    std::memcpy(elements, from, sizeof(bf16) * static_cast<std::size_t>(count));
  }
  HWY_ALIGN bf16 elements[HWY_MAX_BYTES / sizeof(bf16)] = {};
};

/// The first `count` elements of a pair, or all, and zeros.
HWY_INLINE Pair load_pair(const bf16* from, int count) {
  return count < 2 * static_cast<int>(hn::Lanes(kF)) ? load_pair(Tail(from, count).elements)
                                                     : load_pair(from);
}

/// Elements of two cache lines, of which a pass asks for one of the next token.
constexpr int kStep = 64;

/// Into the L2.
HWY_INLINE void prefetch(const bf16* at) { __builtin_prefetch(at, 0, 2); }

/// Rows of one token that pass together: c is loaded once for all of them.
template <int kRows>
struct ScoreSums {
  V squares[kRows][2];
  V dots[kRows][2];
};

template <int kRows>
HWY_INLINE void add(int row, Pair x, Pair c, ScoreSums<kRows>& sums) {
  sums.squares[row][0] = hn::MulAdd(x.even, x.even, sums.squares[row][0]);
  sums.squares[row][1] = hn::MulAdd(x.odd, x.odd, sums.squares[row][1]);
  sums.dots[row][0] = hn::MulAdd(x.even, c.even, sums.dots[row][0]);
  sums.dots[row][1] = hn::MulAdd(x.odd, c.odd, sums.dots[row][1]);
}

HWY_INLINE float total(const V (&sums)[2]) {
  return hn::GetLane(hn::SumOfLanes(kF, hn::Add(sums[0], sums[1])));
}

/// squares[j] and dots[j] of kRows rows from `first` on.
template <int kRows>
HWY_INLINE void score_rows(const TokenRows& rows, const TokenRows& next, int first, const float* c,
                           int H, float* squares, float* dots) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  ScoreSums<kRows> sums;
  const bf16* row[kRows];
  const bf16* ahead[kRows];
  for (int j = 0; j < kRows; ++j) {
    row[j] = rows.row(first + j);
    ahead[j] = next.row(first + j);
    for (int k = 0; k < 2; ++k) sums.squares[j][k] = sums.dots[j][k] = hn::Zero(kF);
  }
  int h = 0;
  for (; h + pair <= H; h += pair) {
    if (h % kStep == 0)
      for (int j = 0; j < kRows; ++j) prefetch(ahead[j] + h / 2);
    const Pair c_here = load_split(c + h);
    for (int j = 0; j < kRows; ++j) add(j, load_pair(row[j] + h), c_here, sums);
  }
  if (h < H) {
    const Pair c_here = load_split(c + h);
    for (int j = 0; j < kRows; ++j) add(j, load_pair(row[j] + h, H - h), c_here, sums);
  }
  for (int j = 0; j < kRows; ++j) {
    squares[first + j] = total(sums.squares[j]);
    dots[first + j] = total(sums.dots[j]);
  }
}

/// weights[j] = softmax over the rows' scores.
void softmax_of_scores(const AttnResMixProblem& p, const TokenRows& rows, const TokenRows& next,
                       const float* c, float* weights) {
  float squares[kMaxBankRows + 1];
  int j = 0;
  for (; j + 3 <= rows.count; j += 3) score_rows<3>(rows, next, j, c, p.H, squares, weights);
  if (j + 2 == rows.count) score_rows<2>(rows, next, j, c, p.H, squares, weights);
  if (j + 1 == rows.count) score_rows<1>(rows, next, j, c, p.H, squares, weights);

  float largest = -HUGE_VALF;
  for (j = 0; j < rows.count; ++j) {
    weights[j] /= std::sqrt(squares[j] / static_cast<float>(p.H) + p.eps);
    largest = std::max(largest, weights[j]);  // a NaN is dropped here and comes back below
  }
  float sum = 0.0F;
  for (j = 0; j < rows.count; ++j) {
    weights[j] = std::exp(weights[j] - largest);
    sum += weights[j];
  }
  for (j = 0; j < rows.count; ++j) weights[j] /= sum;
}

/// Pairs of columns mixed at once: enough chains of multiply-adds to hide their latency.
constexpr int kUnroll = 4;

/// The mixture of kPairs pairs from column h on goes to `mixed`; adds its squares.
template <int kPairs>
HWY_INLINE V mix_pairs(const TokenRows& rows, const TokenRows& next, const float* weights, int h,
                       int H, float* mixed, V squares) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  Pair sums[kPairs];
  for (int k = 0; k < kPairs; ++k) sums[k] = {hn::Zero(kF), hn::Zero(kF)};
  for (int j = 0; j < rows.count; ++j) {
    const auto weight = hn::Set(kF, weights[j]);
    const bf16* const row = rows.row(j) + h;
    for (int i = 0; i < kPairs * pair; i += kStep) prefetch(next.row(j) + (H + h + i) / 2);
    for (int k = 0; k < kPairs; ++k) {
      const Pair x = load_pair(row + k * pair);
      sums[k].even = hn::MulAdd(weight, x.even, sums[k].even);
      sums[k].odd = hn::MulAdd(weight, x.odd, sums[k].odd);
    }
  }
  for (int k = 0; k < kPairs; ++k) {
    store_split(sums[k], mixed + h + k * pair);
    squares = hn::MulAdd(sums[k].even, sums[k].even, squares);
    squares = hn::MulAdd(sums[k].odd, sums[k].odd, squares);
  }
  return squares;
}

/// The last pair, of `count` elements.
HWY_INLINE V mix_tail(const TokenRows& rows, const float* weights, int h, int count, float* mixed,
                      V squares) {
  Pair sum = {hn::Zero(kF), hn::Zero(kF)};
  for (int j = 0; j < rows.count; ++j) {
    const auto weight = hn::Set(kF, weights[j]);
    const Pair x = load_pair(rows.row(j) + h, count);
    sum.even = hn::MulAdd(weight, x.even, sum.even);
    sum.odd = hn::MulAdd(weight, x.odd, sum.odd);
  }
  store_split(sum, mixed + h);
  squares = hn::MulAdd(sum.even, sum.even, squares);
  return hn::MulAdd(sum.odd, sum.odd, squares);
}

/// mixed = sum_j weights[j] row_j, in the order of pairs. Returns the sum of its squares.
float mix_rows(const TokenRows& rows, const TokenRows& next, const float* weights, int H,
               float* mixed) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  auto squares = hn::Zero(kF);
  int h = 0;
  for (; h + kUnroll * pair <= H; h += kUnroll * pair)
    squares = mix_pairs<kUnroll>(rows, next, weights, h, H, mixed, squares);
  for (; h + pair <= H; h += pair)
    squares = mix_pairs<1>(rows, next, weights, h, H, mixed, squares);
  if (h < H) squares = mix_tail(rows, weights, h, H - h, mixed, squares);
  return hn::GetLane(hn::SumOfLanes(kF, squares));
}

HWY_INLINE Pair scaled(const float* mixed, V factor, Pair weight) {
  const Pair x = load_split(mixed);
  return {hn::Mul(hn::Mul(x.even, factor), weight.even),
          hn::Mul(hn::Mul(x.odd, factor), weight.odd)};
}

template <bool kStream>
void write_out(const float* mixed, float factor, const bf16* weight, int H, bf16* out) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  const auto f = hn::Set(kF, factor);
  int h = 0;
  for (; h + pair <= H; h += pair)
    store_pair<kStream>(scaled(mixed + h, f, load_pair(weight + h)), out + h);
  if (h == H) return;
  Tail tail(weight + h, H - h);
  store_pair(scaled(mixed + h, f, load_pair(tail.elements)), tail.elements);
  std::memcpy(out + h, tail.elements, sizeof(bf16) * static_cast<std::size_t>(H - h));
}

}  // namespace mix

/// c in the order of pairs, zeros behind its end up to a whole pair.
void make_score_vector(const AttnResMixProblem& p, float* c) {
  using namespace mix;
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  for (int h = 0; h < p.H; h += pair) {
    Pair x = load_pair(p.score_weight + h, p.H - h);
    if (p.score_proj != nullptr) {
      const Pair y = load_pair(p.score_proj + h, p.H - h);
      x = {hn::Mul(x.even, y.even), hn::Mul(x.odd, y.odd)};
    }
    store_split(x, c + h);
  }
}

/// Tokens [begin, end), one after the other.
void mix_tokens(const AttnResMixProblem& p, std::int64_t begin, std::int64_t end, bool stream,
                const float* c, float* mixed) {
  float weights[kMaxBankRows + 1];
  for (std::int64_t t = begin; t < end; ++t) {
    const TokenRows rows(p, t);
    const TokenRows next(p, std::min(t + 1, end - 1));
    mix::softmax_of_scores(p, rows, next, c, weights);
    const float squares = mix::mix_rows(rows, next, weights, p.H, mixed);
    const float inverse_rms = 1.0F / std::sqrt(squares / static_cast<float>(p.H) + p.eps);
    bf16* const out = p.out + t * p.out_stride;
    if (stream)
      mix::write_out<true>(mixed, inverse_rms, p.out_norm_weight, p.H, out);
    else
      mix::write_out<false>(mixed, inverse_rms, p.out_norm_weight, p.H, out);
    if (p.write_prefix)
      std::memcpy(p.bank + t * p.bank_token_stride + p.num_bank_rows * p.bank_row_stride,
                  rows.prefix, sizeof(bf16) * static_cast<std::size_t>(p.H));
  }
  if (stream) hwy::FlushStream();
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(make_score_vector);
HWY_EXPORT(mix_tokens);

constexpr double kElementTime = 1e-4;  ///< microseconds of one thread, roughly

/// Tokens in a row of one thread at most: enough for the first, which nobody has asked for ahead of
/// time, not to count.
constexpr std::int64_t kMaxTaskTokens = 16;

/// Floats of a vector in the order of pairs, whole cache lines on every target.
std::int64_t split_size(const AttnResMixProblem& p) { return (p.H + 63LL) / 64 * 64; }

/// An output that the caches cannot hold is written past them, which saves reading it first.
bool streams(const AttnResMixProblem& p) {
  constexpr double kCacheBytes = 32 << 20;
  constexpr std::int64_t kLine = 64 / sizeof(bf16);
  return sizeof(bf16) * static_cast<double>(p.T) * p.H >= kCacheBytes && p.H % kLine == 0 &&
         p.out_stride % kLine == 0 && reinterpret_cast<std::uintptr_t>(p.out) % 64 == 0;
}

}  // namespace

/// c, and the mixture of each thread's token.
std::size_t attn_res_mix_workspace_size(const AttnResMixProblem& problem, const Target& target) {
  return sizeof(float) * static_cast<std::size_t>(split_size(problem)) *
         (1 + static_cast<std::size_t>(target.threads));
}

void attn_res_mix(const AttnResMixProblem& problem, const Target& target) {
  if (problem.T == 0) return;
  auto* const c = static_cast<float*>(target.workspace.data);
  HWY_DYNAMIC_DISPATCH(make_score_vector)(problem, c);
  const auto mix = HWY_DYNAMIC_DISPATCH(mix_tokens);
  const bool stream = streams(problem);
  const double elements =
      static_cast<double>(problem.T) * problem.H * (problem.num_bank_rows + 1.0);
  const int threads = useful_threads(target.threads, kElementTime * elements);
  const std::int64_t tokens = std::clamp<std::int64_t>(problem.T / threads, 1, kMaxTaskTokens);
  parallel_for((problem.T - 1) / tokens + 1, threads, [&](std::int64_t task, int thread) {
    mix(problem, task * tokens, std::min(problem.T, (task + 1) * tokens), stream, c,
        c + (thread + 1) * split_size(problem));
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
