// SPDX-License-Identifier: Apache-2.0

// SiTU-GLU on fp32 vectors with one exponential and one division per output.
// docs/situ_and_mul.md has the error of each step.

#if defined(K3_CPU_SITU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_SITU_INL_H_
#undef K3_CPU_SITU_INL_H_
#else
#define K3_CPU_SITU_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/math-inl.h"
#include "cpu/situ_soft_cap.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A quotient whose division is still to come.
template <class DF>
struct Ratio {
  hn::Vec<DF> numerator;
  hn::Vec<DF> denominator;
};

/// tanh(t) / t for |t| <= SoftCap::kSaturated within 1.3e-6: a minimax rational function of t^2 for
/// the relative error.
template <class DF>
HWY_INLINE Ratio<DF> tanh_over_identity(DF df, hn::Vec<DF> t) {
  const auto z = hn::Mul(t, t);
  auto p = hn::MulAdd(hn::Set(df, 3.9958632e-6F), z, hn::Set(df, 2.2930871e-3F));
  p = hn::MulAdd(p, z, hn::Set(df, 1.2322053e-1F));
  p = hn::MulAdd(p, z, hn::Set(df, 9.9999899e-1F));
  auto q = hn::MulAdd(hn::Set(df, 1.4398427e-4F), z, hn::Set(df, 2.1151606e-2F));
  q = hn::MulAdd(q, z, hn::Set(df, 4.5654613e-1F));
  q = hn::MulAdd(q, z, hn::Set(df, 1.0F));
  return {p, q};
}

/// x within the limit of the cap; a NaN stays.
template <class DF>
HWY_INLINE hn::Vec<DF> hold(DF df, hn::Vec<DF> x, const SoftCap& cap) {
  const auto limit = hn::Set(df, cap.limit);
  return hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySignToAbs(limit, x), x);
}

/// For x held within the limit: soft(x) / x.
template <class DF>
HWY_INLINE Ratio<DF> soft_over_identity(DF df, hn::Vec<DF> x, const SoftCap& cap) {
  const auto scaled = hn::Mul(x, hn::Set(df, cap.prescale));
  return tanh_over_identity(df, hn::Mul(scaled, hn::Set(df, cap.inverse)));
}

/// `up_cap` is null where up passes unchanged.
template <class DF>
HWY_INLINE hn::Vec<DF> activate(DF df, hn::Vec<DF> gate, hn::Vec<DF> up, const SoftCap& gate_cap,
                                const SoftCap* up_cap) {
  const auto one = hn::Set(df, 1.0F);
  const auto held_gate = hold(df, gate, gate_cap);
  auto ratio = soft_over_identity(df, held_gate, gate_cap);

  // sigmoid(g) = 1 / (1 + e) for g >= 0 and e / (1 + e) below, with e = exp(-|g|). e is the square
  // of e_half, so that it can come in two factors, the second after up: none is subnormal down to
  // |g| = 174, where e alone would have vanished beside a large up.
  const auto e_half = exp_nonpositive(df, hn::Mul(hn::Abs(gate), hn::Set(df, -0.5F)));
  const auto sigmoid_factor = hn::IfThenElse(hn::Lt(gate, hn::Zero(df)), e_half, one);
  ratio.numerator = hn::Mul(ratio.numerator, sigmoid_factor);
  ratio.denominator = hn::Mul(ratio.denominator, hn::MulAdd(e_half, e_half, one));

  if (up_cap != nullptr) {
    up = hold(df, up, *up_cap);
    const auto up_ratio = soft_over_identity(df, up, *up_cap);
    ratio.numerator = hn::Mul(ratio.numerator, up_ratio.numerator);
    ratio.denominator = hn::Mul(ratio.denominator, up_ratio.denominator);
  }
  const auto quotient = hn::Mul(held_gate, hn::Div(ratio.numerator, ratio.denominator));
  return hn::Mul(hn::Mul(quotient, up), sigmoid_factor);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
