// SPDX-License-Identifier: Apache-2.0

// Several tokens of one head on a block of state rows, as a replay takes them: the arithmetic of
// kda_step-inl.h, scheduled so that the block stays in the first cache. The rows are transposed
// once, as T128 wants them, and a token costs one pass: its decay, its dot products with k and the
// update of the token before.

#if defined(K3_CPU_KDA_VERIFY_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_VERIFY_CHAIN_INL_H_
#undef K3_CPU_KDA_VERIFY_CHAIN_INL_H_
#else
#define K3_CPU_KDA_VERIFY_CHAIN_INL_H_
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

/// kRows rows after a token's decay, and the correction that its update still has to make.
struct ChainBlock {
  HWY_ALIGN float decayed[kRows * kD];  ///< each row as t128_split lays it out
  HWY_ALIGN float u[kRows];
};

/// Elements `i` of row `r` after the token's update.
HWY_INLINE T128Elements updated(const ChainToken& token, const ChainBlock& block, int r,
                                std::size_t i) {
  return t128_mul_add(t128_load_split(token.k_split, i), hn::Set(T128Tag(), block.u[r]),
                      t128_load_split(block.decayed + r * kD, i));
}

/// What a state of this type keeps of them.
template <class StateT>
HWY_INLINE T128Elements kept(const T128Elements& x) {
  if constexpr (std::is_same_v<StateT, bf16>) {
    const T128Tag d;
    return {round_to_bf16(d, x.e0), round_to_bf16(d, x.e1), round_to_bf16(d, x.e2),
            round_to_bf16(d, x.e3)};
  } else {
    return x;
  }
}

/// Decays the rows that `state(r, i)` gives, for rows [row, row + kRows) of the head, and finds the
/// token's correction.
template <class State>
HWY_INLINE void take(const ChainToken& token, int row, const State& state, ChainBlock& block) {
  T128Vec sums[kRows][kT128Vectors];
  for (std::size_t i = 0; i < kT128Vectors; ++i) {
    for (int r = 0; r < kRows; ++r) {
      const T128Elements decayed = t128_mul(state(r, i), t128_load_split(token.decay_split, i));
      t128_store_split(decayed, i, block.decayed + r * kD);
      sums[r][i] = t128_group_sums(decayed, t128_load_split(token.k_split, i));
    }
  }
  const T128Quad d;
  const T128QuadVec hk = t128_finish(
      {t128_blocks(sums[0]), t128_blocks(sums[1]), t128_blocks(sums[2]), t128_blocks(sums[3])});
  const auto v = hn::Load(d, token.v + row);
  hn::Store(hn::Mul(hn::Sub(v, hk), hn::Set(d, token.beta)), d, block.u);
}
static_assert(kRows == 4);

template <class StateT>
HWY_INLINE void store_updated(const ChainToken& token, const ChainBlock& block, StateT* rows) {
  for (int r = 0; r < kRows; ++r)
    for (std::size_t i = 0; i < kT128Vectors; ++i)
      t128_store(updated(token, block, r, i), i, rows + r * kD);
}

/// Rows [row, row + kRows) of a head after `count` >= 1 tokens. `tracked` receives the rows after
/// token `track` where that is one of them.
template <class StateT>
HWY_INLINE void chain_rows(const ChainToken* tokens, int count, int row, StateT* rows, int track,
                           StateT* tracked) {
  ChainBlock block;
  take(
      tokens[0], row, [&](int r, std::size_t i) HWY_ATTR { return t128_load(rows + r * kD, i); },
      block);
  for (int t = 0;; ++t) {
    if (t == track) store_updated(tokens[t], block, tracked);
    if (t + 1 == count) break;
    take(
        tokens[t + 1], row,
        [&](int r, std::size_t i)
            HWY_ATTR { return kept<StateT>(updated(tokens[t], block, r, i)); },
        block);
  }
  store_updated(tokens[count - 1], block, rows);
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
