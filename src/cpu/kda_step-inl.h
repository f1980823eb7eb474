// SPDX-License-Identifier: Apache-2.0

// One KDA step of one head, as parts: convolution, norms, decay, dot products of the state's rows,
// their update, output norm. Every op that advances a state token by token is made of these, so
// that one step, a verify over several tokens and a replay of their commit agree bit for bit.
// Everything is fp32; dot products follow T128, other operations their order below.

#if defined(K3_CPU_KDA_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_STEP_INL_H_
#undef K3_CPU_KDA_STEP_INL_H_
#else
#define K3_CPU_KDA_STEP_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "contract/kda.h"
#include "cpu/bf16-inl.h"
#include "cpu/math-inl.h"
#include "cpu/t128-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace step {

inline constexpr int kD = kKdaHeadDim;
static_assert(kD == kT128Length);

/// State rows that one call of row_dots and update_rows takes.
inline constexpr int kRows = 4;

/// What a step needs of one token and head.
struct Head {
  HWY_ALIGN float q[kD];  ///< normalised and scaled
  HWY_ALIGN float k[kD];  ///< normalised
  HWY_ALIGN float v[kD];
  HWY_ALIGN float decay[kD];    ///< of the state's key channels, before this token
  HWY_ALIGN float q_split[kD];  ///< these three as t128_split lays them out
  HWY_ALIGN float k_split[kD];
  HWY_ALIGN float decay_split[kD];
  float qk;    ///< dot(k, q)
  float beta;  ///< sigmoid of the logit
};

/// The convolution's weights of 128 channels.
struct ConvWeights {
  const float* tap0;        ///< meets the oldest token
  std::int64_t tap_stride;  ///< to the next younger tap
  const float* bias;        ///< or null
};

/// The output gate and norm of one head.
struct OutputNorm {
  const bf16* gate;     ///< logits
  const float* weight;  ///< of the norm
  float eps;
};

/// fn(vector tag, first index) over 128 channels.
template <class Fn>
HWY_INLINE void for_channels(const Fn& fn) {
  const T128Tag d;
  for (int i = 0; i < kD; i += static_cast<int>(hn::Lanes(d))) fn(d, i);
}

/// 128 channels as fp32.
HWY_INLINE void widen(const bf16* from, float* to) {
  for_channels([&](auto d, int i) HWY_ATTR { hn::Store(load_bf16(d, from + i), d, to + i); });
}
HWY_INLINE void widen(const float* from, float* to) { std::memcpy(to, from, kD * sizeof(float)); }

/// y = SiLU(bias + sum over taps, oldest first), rounded; x[t] points at 128 channels of tap t.
HWY_INLINE void conv_silu(const ConvWeights& w, const bf16* const (&x)[kKdaConvWidth],
                          Rounding rounding, float* y) {
  for_channels([&](auto d, int i) HWY_ATTR {
    auto sum = w.bias != nullptr ? hn::LoadU(d, w.bias + i) : hn::Zero(d);
    for (int t = 0; t < kKdaConvWidth; ++t)
      sum = hn::MulAdd(load_bf16(d, x[t] + i), hn::LoadU(d, w.tap0 + t * w.tap_stride + i), sum);
    auto silu = hn::Mul(sum, sigmoid(d, sum));
    if (rounding == Rounding::kBF16) silu = round_to_bf16(d, silu);
    hn::Store(silu, d, y + i);
  });
}

/// Moves 128 channels of a window of three taps on by the token `x`.
HWY_INLINE void shift_window(bf16* tap0, std::int64_t tap_stride, const bf16* x) {
  std::memcpy(tap0, tap0 + tap_stride, kD * sizeof(bf16));
  std::memcpy(tap0 + tap_stride, tap0 + 2 * tap_stride, kD * sizeof(bf16));
  std::memcpy(tap0 + 2 * tap_stride, x, kD * sizeof(bf16));
}

/// x <- x / sqrt(sum x^2 + eps) * scale.
HWY_INLINE void normalise(float* x, float scale) {
  const float inverse_norm = 1.0F / std::sqrt(t128_dot(x, x) + kKdaL2Eps);
  for_channels([&](auto d, int i) HWY_ATTR {
    const auto unit = hn::Mul(hn::Load(d, x + i), hn::Set(d, inverse_norm));
    hn::Store(hn::Mul(unit, hn::Set(d, scale)), d, x + i);
  });
}

/// decay = exp(gate(g + bias)); `gate` maps a vector to log decays <= 0, which also go to
/// `log_decay` where that is not null; `bias` may be null.
template <class Gate>
HWY_INLINE void decays(const bf16* g, const float* bias, const Gate& gate, float* decay,
                       float* log_decay) {
  for_channels([&](auto d, int i) HWY_ATTR {
    auto x = load_bf16(d, g + i);
    if (bias != nullptr) x = hn::Add(x, hn::LoadU(d, bias + i));
    const auto log = gate(d, x);
    if (log_decay != nullptr) hn::StoreU(log, d, log_decay + i);
    hn::Store(exp_nonpositive(d, log), d, decay + i);
  });
}

/// The safe gate, lower_bound * sigmoid(a x).
HWY_INLINE void bounded_decays(const bf16* g, const float* bias, float a, float lower_bound,
                               float* decay, float* log_decay = nullptr) {
  const auto gate = [=](auto d, auto x) HWY_ATTR {
    return hn::Mul(hn::Set(d, lower_bound), sigmoid(d, hn::Mul(hn::Set(d, a), x)));
  };
  decays(g, bias, gate, decay, log_decay);
}

/// -a * softplus(x).
HWY_INLINE void softplus_decays(const bf16* g, const float* bias, float a, float* decay,
                                float* log_decay = nullptr) {
  const auto gate = [=](auto d, auto x)
                        HWY_ATTR { return hn::Mul(hn::Set(d, -a), softplus(d, x)); };
  decays(g, bias, gate, decay, log_decay);
}

/// The gate of a problem with or without a lower bound.
template <class Problem>
HWY_INLINE void raw_decays(const Problem& p, const bf16* g, const float* bias, float a,
                           float* decay) {
  if (p.has_lower_bound)
    bounded_decays(g, bias, a, p.lower_bound, decay);
  else
    softplus_decays(g, bias, a, decay);
}

HWY_INLINE float beta_of(bf16 logit) { return 1.0F / (1.0F + std::exp(-to_float(logit))); }

/// Fills what follows from q, k and decay.
HWY_INLINE void finish(Head& head) {
  t128_split(head.q, head.q_split);
  t128_split(head.k, head.k_split);
  t128_split(head.decay, head.decay_split);
  head.qk = t128_dot(head.k, head.q);
}

/// Dot products of kRows rows, one row per lane.
struct RowDots {
  T128QuadVec hk;  ///< dot(decayed row, k)
  T128QuadVec hq;  ///< dot(decayed row, q)
};

template <class StateT>
HWY_INLINE RowDots row_dots(const Head& head, const StateT* rows) {
  T128QuadVec k_blocks[kRows];
  T128QuadVec q_blocks[kRows];
  for (int r = 0; r < kRows; ++r) {
    T128Vec k_sums[kT128Vectors];
    T128Vec q_sums[kT128Vectors];
    for (std::size_t i = 0; i < kT128Vectors; ++i) {
      const T128Elements decayed =
          t128_mul(t128_load(rows + r * kD, i), t128_load_split(head.decay_split, i));
      k_sums[i] = t128_group_sums(decayed, t128_load_split(head.k_split, i));
      q_sums[i] = t128_group_sums(decayed, t128_load_split(head.q_split, i));
    }
    k_blocks[r] = t128_blocks(k_sums);
    q_blocks[r] = t128_blocks(q_sums);
  }
  return {t128_finish(k_blocks), t128_finish(q_blocks)};
}

/// The correction u = (v - h.k) beta of rows [row, row + kRows).
HWY_INLINE T128QuadVec correction(const Head& head, const RowDots& dots, int row) {
  const T128Quad d;
  return hn::Mul(hn::Sub(hn::Load(d, head.v + row), dots.hk), hn::Set(d, head.beta));
}

/// The output of the same rows, (S + u k^T) q = h.q + u k.q: no pass over the new state.
HWY_INLINE T128QuadVec output(const Head& head, const RowDots& dots, T128QuadVec u) {
  return hn::MulAdd(u, hn::Set(T128Quad(), head.qk), dots.hq);
}

HWY_INLINE void store_state(T128Tag d, T128Vec x, float* to) { hn::StoreU(x, d, to); }
HWY_INLINE void store_state(T128Tag d, T128Vec x, bf16* to) { store_bf16(d, x, to); }

/// rows <- rows * decay + u k^T.
template <class StateT>
HWY_INLINE void update_rows(const Head& head, T128QuadVec u, StateT* rows) {
  HWY_ALIGN float u_of_row[kRows];
  hn::Store(u, T128Quad(), u_of_row);
  for_channels([&](auto d, int i) HWY_ATTR {
    const auto k = hn::Load(d, head.k + i);
    const auto decay = hn::Load(d, head.decay + i);
    for (int r = 0; r < kRows; ++r) {
      StateT* const at = rows + r * kD + i;
      const auto decayed = hn::Mul(t128_load_vector(at), decay);
      store_state(d, hn::MulAdd(k, hn::Set(d, u_of_row[r]), decayed), at);
    }
  });
}

/// out = bf16(o), after the output norm and gate where there are any. Rounds `o` in place.
HWY_INLINE void write_output(Rounding rounding, const OutputNorm* norm, float* o, bf16* out) {
  if (rounding == Rounding::kBF16)
    for_channels([&](auto d, int i)
                     HWY_ATTR { hn::Store(round_to_bf16(d, hn::Load(d, o + i)), d, o + i); });
  if (norm == nullptr) {
    for_channels([&](auto d, int i) HWY_ATTR { store_bf16(d, hn::Load(d, o + i), out + i); });
    return;
  }
  const float inverse_rms = 1.0F / std::sqrt(t128_dot(o, o) / kD + norm->eps);
  for_channels([&](auto d, int i) HWY_ATTR {
    auto y = hn::Mul(hn::Load(d, o + i), hn::Set(d, inverse_rms));
    y = hn::Mul(y, hn::LoadU(d, norm->weight + i));
    store_bf16(d, hn::Mul(y, sigmoid(d, load_bf16(d, norm->gate + i))), out + i);
  });
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
