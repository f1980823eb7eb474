// SPDX-License-Identifier: Apache-2.0

// Several tokens of one head on a block of state rows, with outputs (a verify) or without (a
// replay): the arithmetic of kda_step-inl.h, scheduled so that the block stays in the first cache.
// The rows are transposed once, as T128 wants them, and a token costs one pass: the update of the
// token before, its decay, and its dot products with k and q.

#if defined(K3_CPU_KDA_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_CHAIN_INL_H_
#undef K3_CPU_KDA_CHAIN_INL_H_
#else
#define K3_CPU_KDA_CHAIN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "cpu/kda_step-inl.h"
#include "cpu/t128-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace step {

/// A token of a chain.
struct ChainToken {
  HWY_ALIGN float k_split[kD];      ///< normalised; these two as t128_split lays them out
  HWY_ALIGN float decay_split[kD];  ///< of the state's key channels, before this token
  HWY_ALIGN float v[kD];
  float beta;  ///< activated
};

/// A token that gives an output, too.
struct OutputToken : ChainToken {
  HWY_ALIGN float q_split[kD];  ///< normalised and scaled
  HWY_ALIGN float o[kD];        ///< unnormalised; comes with the rows
  float qk;                     ///< dot(k, q)
};

template <class Token>
inline constexpr bool kHasOutput = std::is_same_v<Token, OutputToken>;

/// kRows rows, each as t128_split lays it out, and what the last token's update still has to add.
struct ChainBlock {
  HWY_ALIGN float rows[kRows * kD];  ///< as read, then after the decay of the last token
  HWY_ALIGN float u[kRows];
};

/// What a state of this type keeps of fp32 values.
template <class StateT>
HWY_INLINE T128Vec kept(T128Vec x) {
  if constexpr (std::is_same_v<StateT, bf16>)
    return round_to_bf16(T128Tag(), x);
  else
    return x;
}

/// Group sums of a row: the vectors of its blocks of 32 elements.
using RowSums = T128Vec[4][kT128BlockVectors];

/// Two rows, or one row with two vectors, up to level 3.
HWY_INLINE T128Two chain_join(const RowSums& x, const RowSums& y) {
  T128Two blocks[4];
  for (int b = 0; b < 4; ++b) blocks[b] = t128_level1_of_two(x[b], y[b]);
  return t128_join_of_two(blocks);
}

/// Dot products of the decayed rows with k and q.
HWY_INLINE RowDots chain_dots(const RowSums (&k_sums)[kRows], const RowSums (&q_sums)[kRows]) {
  T128Two rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = chain_join(k_sums[r], q_sums[r]);
  const T128Two dots = t128_join_of_two(rows);
  return {t128_first(dots), t128_second(dots)};
}

/// With k alone.
HWY_INLINE T128QuadVec chain_dots(const RowSums (&k_sums)[kRows]) {
  const T128Two even = chain_join(k_sums[0], k_sums[2]);
  const T128Two odd = chain_join(k_sums[1], k_sums[3]);
  return t128_join(T128Quad(), t128_first(even), t128_first(odd), t128_second(even),
                   t128_second(odd));
}
static_assert(kRows == 4);

/// Makes the update of the token before (null: the rows are as read), then the decay of `token`,
/// and finds its correction and output. `row` is the head's row that the block begins with. Lanes
/// go one by one with all rows inside: what the tokens hold is loaded once for four rows.
template <class StateT, bool kFirst, class Token>
HWY_INLINE void take(const Token* before, Token& token, int row, ChainBlock& block) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  T128Vec u[kRows];
  if constexpr (!kFirst)
    for (int r = 0; r < kRows; ++r) u[r] = hn::Set(d, block.u[r]);
  RowSums k_sums[kRows];
  RowSums q_sums[kRows];
  for (std::size_t i = 0; i < kT128Vectors; ++i) {
    T128Vec k_sum[kRows];
    T128Vec q_sum[kRows];
    for (std::size_t e = 0; e < 4; ++e) {
      const std::size_t at = (4 * i + e) * lanes;
      const auto decay = hn::Load(d, token.decay_split + at);
      const auto k = hn::Load(d, token.k_split + at);
      for (int r = 0; r < kRows; ++r) {
        float* const x = block.rows + r * kD + at;
        auto h = hn::Load(d, x);
        if constexpr (!kFirst)
          h = kept<StateT>(hn::MulAdd(hn::Load(d, before->k_split + at), u[r], h));
        h = hn::Mul(h, decay);
        hn::Store(h, d, x);
        k_sum[r] = e == 0 ? hn::Mul(h, k) : hn::MulAdd(h, k, k_sum[r]);
        if constexpr (kHasOutput<Token>) {
          const auto q = hn::Load(d, token.q_split + at);
          q_sum[r] = e == 0 ? hn::Mul(h, q) : hn::MulAdd(h, q, q_sum[r]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      k_sums[r][i / kT128BlockVectors][i % kT128BlockVectors] = k_sum[r];
      if constexpr (kHasOutput<Token>)
        q_sums[r][i / kT128BlockVectors][i % kT128BlockVectors] = q_sum[r];
    }
  }
  const T128Quad quad;
  const auto correct = [&](T128QuadVec hk) HWY_ATTR {
    const auto v = hn::Load(quad, token.v + row);
    const auto correction = hn::Mul(hn::Sub(v, hk), hn::Set(quad, token.beta));
    hn::Store(correction, quad, block.u);
    return correction;
  };
  if constexpr (kHasOutput<Token>) {
    const RowDots dots = chain_dots(k_sums, q_sums);
    const auto o = hn::MulAdd(correct(dots.hk), hn::Set(quad, token.qk), dots.hq);
    hn::Store(o, quad, token.o + row);
  } else {
    correct(chain_dots(k_sums));
  }
}

template <class StateT>
HWY_INLINE void read_rows(const StateT* rows, ChainBlock& block) {
  for (int r = 0; r < kRows; ++r)
    for (std::size_t i = 0; i < kT128Vectors; ++i)
      t128_store_split(t128_load(rows + r * kD, i), i, block.rows + r * kD);
}

/// The rows after the update of `token`, the last one taken.
template <class StateT>
HWY_INLINE void write_rows(const ChainToken& token, const ChainBlock& block, StateT* rows) {
  for (int r = 0; r < kRows; ++r)
    for (std::size_t i = 0; i < kT128Vectors; ++i)
      t128_store(t128_mul_add(t128_load_split(token.k_split, i), hn::Set(T128Tag(), block.u[r]),
                              t128_load_split(block.rows + r * kD, i)),
                 i, rows + r * kD);
}

/// Takes `count` >= 1 tokens over rows [row, row + kBlocks * kRows) of a head, which stand at
/// `rows` and stay as they are there. After token t comes after(t, write), and write(to) stores the
/// rows. Blocks take turns: the sums of one, a long chain of additions, hide behind the pass over
/// the other.
template <int kBlocks, class StateT, class Token, class After>
HWY_INLINE void chain_rows(Token* tokens, int count, int row, const StateT* rows,
                           const After& after) {
  static_assert(kD % (kBlocks * kRows) == 0);
  ChainBlock blocks[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    read_rows(rows + b * kRows * kD, blocks[b]);
    take<StateT, true, Token>(nullptr, tokens[0], row + b * kRows, blocks[b]);
  }
  for (int t = 0;; ++t) {
    after(t, [&](StateT* to) HWY_ATTR {
      for (int b = 0; b < kBlocks; ++b) write_rows(tokens[t], blocks[b], to + b * kRows * kD);
    });
    if (t + 1 == count) break;
    for (int b = 0; b < kBlocks; ++b)
      take<StateT, false>(tokens + t, tokens[t + 1], row + b * kRows, blocks[b]);
  }
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
