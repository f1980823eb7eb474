// SPDX-License-Identifier: Apache-2.0

// The recurrent half of a chunk, on one panel of kPanel columns of the state at a time:
//
//   X  = S^T [k_decayed; q_decayed]          products
//   N  = solve (I + L) N = beta (v - X_k)    forward substitution: safe for any keys and beta
//   out = X_q + output_matrix N
//   S  = diag(gamma) S + k_remaining^T N
//
// Each element of X, N, out and S is one chain of multiply-adds in ascending order, so its bits do
// not depend on the tiling, on the split of the columns, or on how many rows the chunk has.

#if defined(K3_CPU_KDA_PREFILL_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_PREFILL_CHUNK_INL_H_
#undef K3_CPU_KDA_PREFILL_CHUNK_INL_H_
#else
#define K3_CPU_KDA_PREFILL_CHUNK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/kda_prefill_factors-inl.h"
#include "cpu/kda_prefill_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace prefill {

/// Two vectors: with six rows that makes 12 accumulators, which cover the latency of two FMA units
/// and leave registers for the operands. On AVX2 a panel of the state is 8 KB and stays in L1.
inline constexpr int kPanel = 2 * kLanes;
static_assert(kD / kPrefillMaxParts % kPanel == 0);

/// A row of a panel.
struct Pair {
  V low;
  V high;
};

HWY_INLINE Pair load_pair(const float* from) {
  const D df;
  return {hn::Load(df, from), hn::Load(df, from + kLanes)};
}
HWY_INLINE void store_pair(const Pair& x, float* to) {
  const D df;
  hn::Store(x.low, df, to);
  hn::Store(x.high, df, to + kLanes);
}
HWY_INLINE void multiply_add(float factor, const Pair& x, Pair& sum) {
  const V f = hn::Set(D(), factor);
  sum.low = hn::MulAdd(f, x.low, sum.low);
  sum.high = hn::MulAdd(f, x.high, sum.high);
}
HWY_INLINE void multiply_subtract(float factor, const Pair& x, Pair& sum) {
  const V f = hn::Set(D(), factor);
  sum.low = hn::NegMulAdd(f, x.low, sum.low);
  sum.high = hn::NegMulAdd(f, x.high, sum.high);
}

/// products[kRows][kPanel] = factors[kRows][kD] panel[kD][kPanel]
template <int kRows>
HWY_INLINE void state_products(const float* factors, const float* panel, float* products) {
  Pair sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = {hn::Zero(D()), hn::Zero(D())};
  for (int d = 0; d < kD; ++d) {
    const Pair x = load_pair(panel + d * kPanel);
    for (int r = 0; r < kRows; ++r) multiply_add(factors[r * kD + d], x, sum[r]);
  }
  for (int r = 0; r < kRows; ++r) store_pair(sum[r], products + r * kPanel);
}

/// kRows rows of the solution, given those before `first`.
template <int kRows>
HWY_INLINE void solve_rows(const bf16* v, std::int64_t v_stride, int first, PrefillScratch& s) {
  const D df;
  Pair x[kRows];
  for (int r = 0; r < kRows; ++r) {
    const bf16* value = v + (first + r) * v_stride;
    const Pair predicted = load_pair(s.products + (first + r) * kPanel);
    const V beta = hn::Set(df, s.beta[first + r]);
    x[r].low = hn::Mul(beta, hn::Sub(load_bf16(df, value), predicted.low));
    x[r].high = hn::Mul(beta, hn::Sub(load_bf16(df, value + kLanes), predicted.high));
  }
  for (int j = 0; j < first; ++j) {
    const Pair known = load_pair(s.new_values + j * kPanel);
    for (int r = 0; r < kRows; ++r) multiply_subtract(s.solve_matrix[first + r][j], known, x[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < r; ++j) multiply_subtract(s.solve_matrix[first + r][first + j], x[j], x[r]);
    store_pair(x[r], s.new_values + (first + r) * kPanel);
  }
}

/// kRows rows of out, given the solution up to its row first + kRows - 1.
template <int kRows>
HWY_INLINE void output_rows(bf16* out, std::int64_t out_stride, int first,
                            const PrefillScratch& s) {
  const D df;
  Pair x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = load_pair(s.products + (kC + first + r) * kPanel);
  for (int j = 0; j < first; ++j) {
    const Pair known = load_pair(s.new_values + j * kPanel);
    for (int r = 0; r < kRows; ++r) multiply_add(s.output_matrix[first + r][j], known, x[r]);
  }
  for (int j = 0; j < kRows; ++j) {
    const Pair known = load_pair(s.new_values + (first + j) * kPanel);
    for (int r = j; r < kRows; ++r)
      multiply_add(s.output_matrix[first + r][first + j], known, x[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    bf16* to = out + (first + r) * out_stride;
    store_bf16(df, x[r].low, to);
    store_bf16(df, x[r].high, to + kLanes);
  }
}

/// kKeys rows of the panel, from key d on: decayed by gamma, then corrected by each token.
template <int kKeys>
HWY_INLINE void update_keys(int d, int rows, const PrefillScratch& s, float* panel) {
  const D df;
  Pair x[kKeys];
  for (int r = 0; r < kKeys; ++r) {
    const Pair before = load_pair(panel + (d + r) * kPanel);
    const V gamma = hn::Set(df, s.gamma[d + r]);
    x[r] = {hn::Mul(gamma, before.low), hn::Mul(gamma, before.high)};
  }
  for (int j = 0; j < rows; ++j) {
    const Pair value = load_pair(s.new_values + j * kPanel);
    for (int r = 0; r < kKeys; ++r) multiply_add(s.k_remaining[j][d + r], value, x[r]);
  }
  for (int r = 0; r < kKeys; ++r) store_pair(x[r], panel + (d + r) * kPanel);
}

inline void all_products(int rows, const float (*factors)[kD], const float* panel,
                         float* products) {
  int i = 0;
  for (; i + 6 <= rows; i += 6) state_products<6>(factors[i], panel, products + i * kPanel);
  if (i + 4 <= rows) {
    state_products<4>(factors[i], panel, products + i * kPanel);
    i += 4;
  }
  for (; i < rows; ++i) state_products<1>(factors[i], panel, products + i * kPanel);
}

/// Absorbs `rows` tokens into one panel and writes their out. v and out point at the panel's first
/// column of the first token.
inline void advance_panel(const bf16* v, std::int64_t v_stride, bf16* out, std::int64_t out_stride,
                          int rows, PrefillScratch& s, float* panel) {
  all_products(rows, s.k_decayed, panel, s.products);
  all_products(rows, s.q_decayed, panel, s.products + kC * kPanel);

  int i = 0;
  for (; i + 4 <= rows; i += 4) solve_rows<4>(v, v_stride, i, s);
  for (; i < rows; ++i) solve_rows<1>(v, v_stride, i, s);

  for (i = 0; i + 4 <= rows; i += 4) output_rows<4>(out, out_stride, i, s);
  for (; i < rows; ++i) output_rows<1>(out, out_stride, i, s);

  // 128 keys = 20 tiles of six and two of four.
  int d = 0;
  for (; d < 120; d += 6) update_keys<6>(d, rows, s, panel);
  for (; d < kD; d += 4) update_keys<4>(d, rows, s, panel);
}

}  // namespace prefill
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
