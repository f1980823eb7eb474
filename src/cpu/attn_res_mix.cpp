// SPDX-License-Identifier: Apache-2.0

// A token's rows pass twice: once from memory for their scores, once from the L2 for the mixture.
// Vectors hold the even and the odd elements of a row apart, which makes widening bf16 one shift or
// one mask. docs/attn_res_mix.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_res_mix.cpp"
#include <hwy/foreach_target.h>

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
struct Pair {
  V even;
  V odd;
};

HWY_INLINE Pair load_pair(const bf16* from) {
  const auto words =
      hn::BitCast(kU32, hn::LoadU(kU16, reinterpret_cast<const std::uint16_t*>(from)));
  return {hn::BitCast(kF, hn::ShiftLeft<16>(words)),
          hn::BitCast(kF, hn::And(words, hn::Set(kU32, 0xFFFF0000U)))};
}

HWY_INLINE void store_pair(Pair x, bf16* to) {
  const auto words = hn::Or(bf16_bits(kF, x.even), hn::ShiftLeft<16>(bf16_bits(kF, x.odd)));
  hn::StoreU(hn::BitCast(kU16, words), kU16, reinterpret_cast<std::uint16_t*>(to));
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

/// Pairs at once: enough chains of multiply-adds to hide their latency.
constexpr int kUnroll = 4;

/// A row's sums against a part of c.
struct ScoreSums {
  V squares[kUnroll];
  V dots[kUnroll];
};

HWY_INLINE void add(Pair x, Pair c, int chain, ScoreSums& sums) {
  const int other = chain + kUnroll / 2;
  sums.squares[chain] = hn::MulAdd(x.even, x.even, sums.squares[chain]);
  sums.squares[other] = hn::MulAdd(x.odd, x.odd, sums.squares[other]);
  sums.dots[chain] = hn::MulAdd(x.even, c.even, sums.dots[chain]);
  sums.dots[other] = hn::MulAdd(x.odd, c.odd, sums.dots[other]);
}

HWY_INLINE float total(const V (&sums)[kUnroll]) {
  static_assert(kUnroll == 4);
  return hn::GetLane(
      hn::SumOfLanes(kF, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

/// Adds the sums over `count` elements of a row.
HWY_INLINE void add_part(const bf16* row, const float* c, int count, float& squares, float& dot) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  ScoreSums sums;
  for (int k = 0; k < kUnroll; ++k) sums.squares[k] = sums.dots[k] = hn::Zero(kF);
  int i = 0;
  for (; i + 2 * pair <= count; i += 2 * pair) {
    add(load_pair(row + i), load_split(c + i), 0, sums);
    add(load_pair(row + i + pair), load_split(c + i + pair), 1, sums);
  }
  for (; i + pair <= count; i += pair) add(load_pair(row + i), load_split(c + i), 0, sums);
  if (i < count) add(load_pair(Tail(row + i, count - i).elements), load_split(c + i), 0, sums);
  squares += total(sums.squares);
  dot += total(sums.dots);
}

/// weights[j] = softmax over the rows' scores. c is taken in parts that stay in the L1 while all
/// rows pass them.
void softmax_of_scores(const AttnResMixProblem& p, const TokenRows& rows, const float* c,
                       float* weights) {
  constexpr int kPart = 1024;
  float squares[kMaxBankRows + 1];
  std::fill_n(squares, rows.count, 0.0F);
  std::fill_n(weights, rows.count, 0.0F);
  for (int h = 0; h < p.H; h += kPart)
    for (int j = 0; j < rows.count; ++j)
      add_part(rows.row(j) + h, c + h, std::min(kPart, p.H - h), squares[j], weights[j]);

  float largest = -HUGE_VALF;
  for (int j = 0; j < rows.count; ++j) {
    weights[j] /= std::sqrt(squares[j] / static_cast<float>(p.H) + p.eps);
    largest = std::max(largest, weights[j]);  // a NaN is dropped here and comes back below
  }
  float sum = 0.0F;
  for (int j = 0; j < rows.count; ++j) {
    weights[j] = std::exp(weights[j] - largest);
    sum += weights[j];
  }
  for (int j = 0; j < rows.count; ++j) weights[j] /= sum;
}

/// The mixture of kPairs pairs from column h on goes to `mixed`; adds its squares.
template <int kPairs>
HWY_INLINE V mix_pairs(const TokenRows& rows, const float* weights, int h, float* mixed,
                       V squares) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  Pair sums[kPairs];
  for (int k = 0; k < kPairs; ++k) sums[k] = {hn::Zero(kF), hn::Zero(kF)};
  for (int j = 0; j < rows.count; ++j) {
    const auto weight = hn::Set(kF, weights[j]);
    const bf16* const row = rows.row(j) + h;
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
    const Pair x = load_pair(Tail(rows.row(j) + h, count).elements);
    sum.even = hn::MulAdd(weight, x.even, sum.even);
    sum.odd = hn::MulAdd(weight, x.odd, sum.odd);
  }
  store_split(sum, mixed + h);
  squares = hn::MulAdd(sum.even, sum.even, squares);
  return hn::MulAdd(sum.odd, sum.odd, squares);
}

/// mixed = sum_j weights[j] row_j, in the order of pairs. Returns the sum of its squares.
float mix_rows(const TokenRows& rows, const float* weights, int H, float* mixed) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  auto squares = hn::Zero(kF);
  int h = 0;
  for (; h + kUnroll * pair <= H; h += kUnroll * pair)
    squares = mix_pairs<kUnroll>(rows, weights, h, mixed, squares);
  for (; h + pair <= H; h += pair) squares = mix_pairs<1>(rows, weights, h, mixed, squares);
  if (h < H) squares = mix_tail(rows, weights, h, H - h, mixed, squares);
  return hn::GetLane(hn::SumOfLanes(kF, squares));
}

HWY_INLINE Pair scaled(const float* mixed, V factor, Pair weight) {
  const Pair x = load_split(mixed);
  return {hn::Mul(hn::Mul(x.even, factor), weight.even),
          hn::Mul(hn::Mul(x.odd, factor), weight.odd)};
}

void write_out(const float* mixed, float factor, const bf16* weight, int H, bf16* out) {
  const int pair = 2 * static_cast<int>(hn::Lanes(kF));
  const auto f = hn::Set(kF, factor);
  int h = 0;
  for (; h + pair <= H; h += pair) store_pair(scaled(mixed + h, f, load_pair(weight + h)), out + h);
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
    const int count = std::min(pair, p.H - h);
    Pair x = load_pair(Tail(p.score_weight + h, count).elements);
    if (p.score_proj != nullptr) {
      const Pair y = load_pair(Tail(p.score_proj + h, count).elements);
      x = {hn::Mul(x.even, y.even), hn::Mul(x.odd, y.odd)};
    }
    store_split(x, c + h);
  }
}

void mix_token(const AttnResMixProblem& p, std::int64_t t, const float* c, float* mixed) {
  const TokenRows rows(p, t);
  float weights[kMaxBankRows + 1];
  mix::softmax_of_scores(p, rows, c, weights);
  const float squares = mix::mix_rows(rows, weights, p.H, mixed);
  const float inverse_rms = 1.0F / std::sqrt(squares / static_cast<float>(p.H) + p.eps);
  mix::write_out(mixed, inverse_rms, p.out_norm_weight, p.H, p.out + t * p.out_stride);
  if (p.write_prefix)
    std::memcpy(p.bank + t * p.bank_token_stride + p.num_bank_rows * p.bank_row_stride, rows.prefix,
                sizeof(bf16) * static_cast<std::size_t>(p.H));
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(make_score_vector);
HWY_EXPORT(mix_token);

constexpr double kElementTime = 1e-4;  ///< microseconds of one thread, roughly

/// Floats of a vector in the order of pairs, whole cache lines on every target.
std::int64_t split_size(const AttnResMixProblem& p) { return (p.H + 63LL) / 64 * 64; }

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
  const auto mix = HWY_DYNAMIC_DISPATCH(mix_token);
  const double elements =
      static_cast<double>(problem.T) * problem.H * (problem.num_bank_rows + 1.0);
  parallel_for(problem.T, useful_threads(target.threads, kElementTime * elements),
               [&](std::int64_t t, int thread) {
                 mix(problem, t, c, c + (thread + 1) * split_size(problem));
               });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
