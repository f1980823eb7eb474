// SPDX-License-Identifier: Apache-2.0

// Several tokens of one head on a block of state rows, as a replay takes them: the arithmetic of
// kda_step-inl.h, scheduled so that the block stays in the first cache. The rows are transposed
// once, as T128 wants them, and a token costs one pass: its decay, its dot products with k and the
// update of the token before.

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

/// Makes the update of the token before (null: the rows are as read), then the decay of `token`,
/// and finds its correction. `row` is the head's row that the block begins with. Lanes go one by
/// one with all rows inside: what the tokens hold is loaded once for four rows.
template <class StateT, bool kFirst>
HWY_INLINE void take(const ChainToken* before, const ChainToken& token, int row,
                     ChainBlock& block) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  T128Vec u[kRows];
  if constexpr (!kFirst)
    for (int r = 0; r < kRows; ++r) u[r] = hn::Set(d, block.u[r]);
  T128Vec sums[kRows][kT128Vectors];
  for (std::size_t i = 0; i < kT128Vectors; ++i) {
    T128Vec sum[kRows];
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
        sum[r] = e == 0 ? hn::Mul(h, k) : hn::MulAdd(h, k, sum[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) sums[r][i] = sum[r];
  }
  const T128Quad quad;
  const T128QuadVec hk = t128_finish(
      {t128_blocks(sums[0]), t128_blocks(sums[1]), t128_blocks(sums[2]), t128_blocks(sums[3])});
  const auto v = hn::Load(quad, token.v + row);
  hn::Store(hn::Mul(hn::Sub(v, hk), hn::Set(quad, token.beta)), quad, block.u);
}
static_assert(kRows == 4);

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

/// Blocks that take turns: the sums of one, a long chain of additions, hide behind the pass over
/// the other.
inline constexpr int kChainBlocks = 2;
inline constexpr int kChainRows = kChainBlocks * kRows;
static_assert(kD % kChainRows == 0);

/// Rows [row, row + kChainRows) of a head after `count` >= 1 tokens. `tracked` receives the rows
/// after token `track` where that is one of them.
template <class StateT>
HWY_INLINE void chain_rows(const ChainToken* tokens, int count, int row, StateT* rows, int track,
                           StateT* tracked) {
  ChainBlock blocks[kChainBlocks];
  for (int b = 0; b < kChainBlocks; ++b) {
    read_rows(rows + b * kRows * kD, blocks[b]);
    take<StateT, true>(nullptr, tokens[0], row + b * kRows, blocks[b]);
  }
  const auto write = [&](int t, StateT* to) HWY_ATTR {
    for (int b = 0; b < kChainBlocks; ++b) write_rows(tokens[t], blocks[b], to + b * kRows * kD);
  };
  for (int t = 0; t < count; ++t) {
    if (t == track) write(t, tracked);
    if (t + 1 == count) break;
    for (int b = 0; b < kChainBlocks; ++b)
      take<StateT, false>(tokens + t, tokens[t + 1], row + b * kRows, blocks[b]);
  }
  write(count - 1, rows);
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
