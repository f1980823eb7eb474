// SPDX-License-Identifier: Apache-2.0

// Elementary functions on fp32 vectors, within about 2 ulp over their whole range. NaN gives NaN.
// The polynomials are Chebyshev interpolants computed in double; their own error is below 7e-8
// relative to the function.

#if defined(K3_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_MATH_INL_H_
#undef K3_CPU_MATH_INL_H_
#else
#define K3_CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace detail {

/// Adding it rounds to an integer, which then stands in the low mantissa bits, plus 127: the biased
/// exponent of a power of two. 1.5 * 2^23 keeps negative integers in the same binade.
inline constexpr float kRoundAndBias = 12582912.0F + 127.0F;

/// exp(x) = 2^n exp_r with exp_r in [0.7, 1.42].
template <class DF>
struct ExpReduced {
  hn::Vec<DF> exp_r;
  hn::Vec<hn::RebindToSigned<DF>> biased;  ///< n + 127 in the low 9 bits
};

/// Needs |x| < 2^21; a NaN stays in `exp_r`.
template <class DF>
HWY_INLINE ExpReduced<DF> exp_reduce(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto magic = hn::Set(df, kRoundAndBias);
  const auto shifted = hn::MulAdd(x, hn::Set(df, 1.44269504F), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln2 in two parts; n * high is exact, so the reduction needs no fused multiply-add.
  auto r = hn::NegMulAdd(n, hn::Set(df, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4F), r);

  // Pairs of terms instead of Horner's chain: loops over exp are bound by latency.
  const auto r2 = hn::Mul(r, r);
  const auto p01 = hn::MulAdd(hn::Set(df, 1.6666577e-1F), r, hn::Set(df, 0.5F));
  auto p24 = hn::MulAdd(hn::Set(df, 8.3631791e-3F), r, hn::Set(df, 4.1666555e-2F));
  p24 = hn::MulAdd(hn::Set(df, 1.3926184e-3F), r2, p24);
  const auto p = hn::MulAdd(p24, r2, p01);
  return {hn::Add(hn::MulAdd(p, r2, r), hn::Set(df, 1.0F)), hn::BitCast(di, shifted)};
}

/// 2^n for n in [-126, 127], inf for 128.
template <class DF>
HWY_INLINE hn::Vec<DF> power_of_two(DF df, hn::Vec<hn::RebindToSigned<DF>> biased) {
  return hn::BitCast(df, hn::ShiftLeft<23>(biased));
}

/// As IfThenElse on purpose: Min and Max of a NaN differ between instruction sets.
template <class DF>
HWY_INLINE hn::Vec<DF> clamp_keeping_nan(DF df, hn::Vec<DF> x, float low, float high) {
  x = hn::IfThenElse(hn::Lt(x, hn::Set(df, low)), hn::Set(df, low), x);
  return hn::IfThenElse(hn::Gt(x, hn::Set(df, high)), hn::Set(df, high), x);
}

}  // namespace detail

/// exp(x) for every x: subnormal results included, inf past the range.
template <class DF>
HWY_INLINE hn::Vec<DF> exp(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto reduced = detail::exp_reduce(df, detail::clamp_keeping_nan(df, x, -105.0F, 90.0F));
  // Two factors, because n leaves the exponent range where the result is subnormal or infinite.
  const auto bias = hn::BitCast(di, hn::Set(df, detail::kRoundAndBias));
  const auto n = hn::Sub(reduced.biased, bias);
  const auto half = hn::ShiftRight<1>(n);
  const auto one = hn::Set(di, 127);
  const auto first = hn::Mul(reduced.exp_r, detail::power_of_two(df, hn::Add(half, one)));
  return hn::Mul(first, detail::power_of_two(df, hn::Add(hn::Sub(n, half), one)));
}

/// exp(x) for x <= 0; results below about 2^-126 are flushed to 0. exp(0) = 1 and exp(-inf) = 0.
template <class DF>
HWY_INLINE hn::Vec<DF> exp_nonpositive(DF df, hn::Vec<DF> x) {
  const auto flushed = hn::Lt(x, hn::Set(df, -87.3F));
  const auto reduced = detail::exp_reduce(df, x);
  const auto scaled = hn::Mul(reduced.exp_r, detail::power_of_two(df, reduced.biased));
  return hn::IfThenZeroElse(flushed, scaled);
}

/// 1 / (1 + exp(-x)): no cancellation at either end, 0 at -inf and 1 at +inf.
template <class DF>
HWY_INLINE hn::Vec<DF> sigmoid(DF df, hn::Vec<DF> x) {
  const auto one = hn::Set(df, 1.0F);
  // Within these bounds one factor 2^n is enough: past them 1 + exp(-x) is 1, or inf.
  const auto bounded = detail::clamp_keeping_nan(df, x, -88.9F, 87.3F);
  const auto reduced = detail::exp_reduce(df, hn::Neg(bounded));
  const auto power = detail::power_of_two(df, reduced.biased);
  return hn::Div(one, hn::MulAdd(reduced.exp_r, power, one));
}

/// log(1 + u) for u in [0, 1], as 2 atanh(u / (2 + u)).
template <class DF>
HWY_INLINE hn::Vec<DF> log1p_unit(DF df, hn::Vec<DF> u) {
  const auto s = hn::Div(u, hn::Add(hn::Set(df, 2.0F), u));
  const auto z = hn::Mul(s, s);
  auto p = hn::MulAdd(hn::Set(df, 1.1612164e-1F), z, hn::Set(df, 1.0853288e-1F));
  p = hn::MulAdd(p, z, hn::Set(df, 1.4296179e-1F));
  p = hn::MulAdd(p, z, hn::Set(df, 1.9999853e-1F));
  p = hn::MulAdd(p, z, hn::Set(df, 3.3333334e-1F));
  const auto twice = hn::Add(s, s);
  return hn::MulAdd(hn::Mul(p, z), twice, twice);
}

/// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)): never overflows, x itself for large x.
template <class DF>
HWY_INLINE hn::Vec<DF> softplus(DF df, hn::Vec<DF> x) {
  const auto zero = hn::Zero(df);
  const auto positive = hn::IfThenElse(hn::Lt(x, zero), zero, x);
  return hn::Add(positive, log1p_unit(df, exp(df, hn::Neg(hn::Abs(x)))));
}

/// Odd, tanh(+-inf) = +-1, relative accuracy kept near 0.
template <class DF>
HWY_INLINE hn::Vec<DF> tanh(DF df, hn::Vec<DF> x) {
  const auto magnitude = hn::Abs(x);
  const auto one = hn::Set(df, 1.0F);

  const auto z = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(df, 2.0389156e-3F), z, hn::Set(df, -8.0892100e-3F));
  p = hn::MulAdd(p, z, hn::Set(df, 2.1679992e-2F));
  p = hn::MulAdd(p, z, hn::Set(df, -5.3946702e-2F));
  p = hn::MulAdd(p, z, hn::Set(df, 1.3333242e-1F));
  p = hn::MulAdd(p, z, hn::Set(df, -3.3333333e-1F));
  const auto near_zero = hn::MulAdd(hn::Mul(p, z), magnitude, magnitude);

  const auto exp_2x = exp(df, hn::Add(magnitude, magnitude));
  const auto far = hn::Sub(one, hn::Div(hn::Set(df, 2.0F), hn::Add(exp_2x, one)));
  const auto is_near = hn::Lt(magnitude, hn::Set(df, 0.65F));
  return hn::CopySignToAbs(hn::IfThenElse(is_near, near_zero, far), x);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
