// SPDX-License-Identifier: Apache-2.0

// The token-parallel half of a chunk: norms, gates, decayed keys and queries, and the two
// triangular matrices. No difference of cumulative gates is ever exponentiated: every factor is a
// product of one-step decays in [0, 1], so nothing overflows, an underflow is always a true zero,
// and g = -inf needs no care.

#if defined(K3_CPU_KDA_PREFILL_FACTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_PREFILL_FACTORS_INL_H_
#undef K3_CPU_KDA_PREFILL_FACTORS_INL_H_
#else
#define K3_CPU_KDA_PREFILL_FACTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/kda_prefill_scratch.h"
#include "cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace prefill {

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

inline constexpr int kC = kPrefillChunk;
inline constexpr int kD = kKdaHeadDim;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

template <class DF>
HWY_INLINE hn::Vec<DF> load_f32(DF df, const float* from) {
  return hn::LoadU(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load_f32(DF df, const bf16* from) {
  return load_bf16(df, from);
}

template <class DF>
HWY_INLINE V4 fold_to_four(DF /*df*/, hn::Vec<DF> x) {
  if constexpr (hn::MaxLanes(DF()) == 4) {
    return x;
  } else {
    const hn::Half<DF> half;
    return fold_to_four(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

/// Lane c holds the sum of the lanes of x[c].
HWY_INLINE V4 sums_of_lanes(const V (&x)[4]) {
  const D df;
  const D4 d4;
  const V4 a = fold_to_four(df, x[0]);
  const V4 b = fold_to_four(df, x[1]);
  const V4 c = fold_to_four(df, x[2]);
  const V4 d = fold_to_four(df, x[3]);
  const V4 ab = hn::Add(hn::InterleaveLower(d4, a, b), hn::InterleaveUpper(d4, a, b));
  const V4 cd = hn::Add(hn::InterleaveLower(d4, c, d), hn::InterleaveUpper(d4, c, d));
  return hn::Add(hn::ConcatLowerLower(d4, cd, ab), hn::ConcatUpperUpper(d4, cd, ab));
}

/// rows x 128 values, each row scaled to norm 1 where l2norm, and by `scale`.
inline void load_rows(const bf16* from, std::int64_t token_stride, int rows, bool l2norm,
                      float scale, float (*to)[kD]) {
  const D df;
  const D4 d4;
  HWY_ALIGN float factors[kC];
  for (int first = 0; first < rows; first += 4) {
    V squares[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
    // Row after row: cold rows come in faster than from four places at once.
    for (int r = 0; r < 4 && first + r < rows; ++r) {
      for (int d = 0; d < kD; d += kLanes) {
        const V x = load_bf16(df, from + (first + r) * token_stride + d);
        squares[r] = hn::MulAdd(x, x, squares[r]);
        hn::Store(x, df, to[first + r] + d);
      }
    }
    const V4 norm = hn::Sqrt(hn::Add(sums_of_lanes(squares), hn::Set(d4, kKdaL2Eps)));
    const V4 factor = hn::Set(d4, scale);
    hn::Store(l2norm ? hn::Div(factor, norm) : factor, d4, factors + first);
  }
  for (int i = 0; i < rows; ++i) {
    const V factor = hn::Set(df, factors[i]);
    for (int d = 0; d < kD; d += kLanes)
      hn::Store(hn::Mul(hn::Load(df, to[i] + d), factor), df, to[i] + d);
  }
}

/// decay = exp(gate(g + dt_bias)); `gate` maps a vector to log decays. Two passes, because one long
/// chain per element leaves too few elements in the processor's window.
template <class G, class Gate>
HWY_INLINE void decay_rows(const G* g, std::int64_t token_stride, int rows, const float* dt_bias,
                           const Gate& gate, float (*decay)[kD]) {
  const D df;
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < kD; d += kLanes) {
      V x = load_f32(df, g + i * token_stride + d);
      if (dt_bias != nullptr) x = hn::Add(x, hn::LoadU(df, dt_bias + d));
      hn::Store(gate(x), df, decay[i] + d);
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < kD; d += kLanes)
      hn::Store(exp_nonpositive(df, hn::Load(df, decay[i] + d)), df, decay[i] + d);
  }
}

template <class G>
void activate_decays(const KdaPrefillProblem& p, int head, const G* g, int rows,
                     float (*decay)[kD]) {
  const D df;
  const std::int64_t stride = p.g_strides.token;
  if (!p.gate_in_kernel) {
    decay_rows(g, stride, rows, nullptr, [](V x) HWY_ATTR { return x; }, decay);
    return;
  }
  const float* dt_bias = p.dt_bias != nullptr ? p.dt_bias + std::int64_t{head} * kD : nullptr;
  const float rate = p.A_log != nullptr ? std::exp(p.A_log[head]) : 1.0F;
  const V a = hn::Set(df, rate);
  if (p.has_lower_bound) {
    const V bound = hn::Set(df, p.lower_bound);
    const auto gate = [=](V x) HWY_ATTR { return hn::Mul(bound, sigmoid(D(), hn::Mul(a, x))); };
    decay_rows(g, stride, rows, dt_bias, gate, decay);
  } else {
    const auto gate = [=](V x) HWY_ATTR { return hn::Neg(hn::Mul(a, softplus(D(), x))); };
    decay_rows(g, stride, rows, dt_bias, gate, decay);
  }
}

inline float widen(float x) { return x; }
inline float widen(bf16 x) { return to_float(x); }

template <class B>
void load_betas(const KdaPrefillProblem& p, const B* beta, int rows, float* to) {
  const D df;
  for (int i = 0; i < kC; ++i) to[i] = i < rows ? widen(beta[i * p.beta_strides.token]) : 0.0F;
  if (!p.beta_sigmoid) return;
  const V top = hn::Set(df, p.allow_neg_eigval ? 2.0F : 1.0F);
  for (int i = 0; i < kC; i += kLanes)
    hn::Store(hn::Mul(top, sigmoid(df, hn::Load(df, to + i))), df, to + i);
}

/// k_decayed, q_decayed, k_remaining and gamma from k, q and decay.
inline void decay_factors(int rows, PrefillScratch& s) {
  const D df;
  for (int d = 0; d < kD; d += kLanes) {
    V product = hn::Set(df, 1.0F);
    for (int i = 0; i < rows; ++i) {
      product = hn::Mul(product, hn::Load(df, s.decay[i] + d));
      hn::Store(hn::Mul(hn::Load(df, s.k[i] + d), product), df, s.k_decayed[i] + d);
      hn::Store(hn::Mul(hn::Load(df, s.q[i] + d), product), df, s.q_decayed[i] + d);
    }
    hn::Store(product, df, s.gamma + d);
    product = hn::Set(df, 1.0F);
    for (int i = rows - 1; i >= 0; --i) {
      hn::Store(hn::Mul(hn::Load(df, s.k[i] + d), product), df, s.k_remaining[i] + d);
      product = hn::Mul(product, hn::Load(df, s.decay[i] + d));
    }
  }
}

/// Row i of both matrices at columns j0 .. j0 + kCols - 1 <= i. Moves the walkers of these columns
/// from row i - 1 to row i; with kStarts the last column is i itself and its walker starts here.
template <int kCols, bool kStarts>
HWY_INLINE void pair_row(int i, int j0, PrefillScratch& s) {
  const D df;
  const D4 d4;
  V with_k[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  V with_q[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (int d = 0; d < kD; d += kLanes) {
    const V k = hn::Load(df, s.k[i] + d);
    const V q = hn::Load(df, s.q[i] + d);
    const V decay = hn::Load(df, s.decay[i] + d);
    for (int c = 0; c < kCols; ++c) {
      const bool starts = kStarts && c == kCols - 1;
      const V walker = starts ? k : hn::Mul(hn::Load(df, s.walkers[c] + d), decay);
      hn::Store(walker, df, s.walkers[c] + d);
      with_k[c] = hn::MulAdd(k, walker, with_k[c]);
      with_q[c] = hn::MulAdd(q, walker, with_q[c]);
    }
  }
  const V4 beta = hn::Set(d4, s.beta[i]);
  hn::Store(hn::Mul(beta, sums_of_lanes(with_k)), d4, s.solve_matrix[i] + j0);
  hn::Store(sums_of_lanes(with_q), d4, s.output_matrix[i] + j0);
}

inline void pair_matrices(int rows, PrefillScratch& s) {
  for (int j0 = 0; j0 < rows; j0 += 4) {
    pair_row<1, true>(j0, j0, s);
    if (j0 + 1 < rows) pair_row<2, true>(j0 + 1, j0, s);
    if (j0 + 2 < rows) pair_row<3, true>(j0 + 2, j0, s);
    if (j0 + 3 < rows) pair_row<4, true>(j0 + 3, j0, s);
    for (int i = j0 + 4; i < rows; ++i) pair_row<4, false>(i, j0, s);
  }
}

/// Everything about `rows` tokens that does not depend on the state. `token` counts in the batch
/// row.
inline void chunk_factors(const KdaPrefillProblem& p, std::int64_t batch, std::int64_t token,
                          int head, int rows, PrefillScratch& s) {
  const int qk_head = head / (p.HV / p.H);
  const auto at = [batch, token](const TokenStrides& strides, std::int64_t h) {
    return batch * strides.batch + token * strides.token + h * strides.head;
  };
  load_rows(p.q + at(p.q_strides, qk_head), p.q_strides.token, rows, p.qk_l2norm, p.scale, s.q);
  load_rows(p.k + at(p.k_strides, qk_head), p.k_strides.token, rows, p.qk_l2norm, 1.0F, s.k);

  const std::int64_t g_at = at(p.g_strides, head);
  if (p.g_dtype == DType::kF32)
    activate_decays(p, head, static_cast<const float*>(p.g) + g_at, rows, s.decay);
  else
    activate_decays(p, head, static_cast<const bf16*>(p.g) + g_at, rows, s.decay);

  const std::int64_t beta_at = at(p.beta_strides, head);
  if (p.beta_dtype == DType::kF32)
    load_betas(p, static_cast<const float*>(p.beta) + beta_at, rows, s.beta);
  else
    load_betas(p, static_cast<const bf16*>(p.beta) + beta_at, rows, s.beta);

  decay_factors(rows, s);
  pair_matrices(rows, s);
}

}  // namespace prefill
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
