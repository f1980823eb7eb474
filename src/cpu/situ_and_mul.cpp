// SPDX-License-Identifier: Apache-2.0

// SiTU-GLU on fp32 vectors with one exponential and one division per output.
// docs/situ_and_mul.md has the roofline and the error of each step.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/situ_and_mul.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/math-inl.h"
#include "cpu/parallel.h"
#include "cpu/situ_and_mul.h"

#ifndef K3_CPU_SITU_AND_MUL_SOFT_CAP_
#define K3_CPU_SITU_AND_MUL_SOFT_CAP_
namespace k3::cpu {

/// cap * tanh(x / cap) as x R(x / cap) with x held to where tanh has become 1. Multiplying by x
/// itself keeps the relative accuracy for caps of any size, and its sign makes that of the cap
/// moot.
struct SoftCap {
  static constexpr float kSaturated = 7.0F;  ///< tanh(7) = 1 - 1.7e-6

  explicit SoftCap(float cap) {
    const float size = std::fabs(cap);
    prescale = size < 0x1p-64F ? 0x1p64F : 1.0F;
    inverse = 1.0F / (size * prescale);
    limit = std::min(kSaturated * size, FLT_MAX);
  }

  float limit;     ///< of |x|
  float prescale;  ///< keeps the inverse of a tiny cap finite
  float inverse;   ///< 1 / (|cap| * prescale)
};

}  // namespace k3::cpu
#endif  // K3_CPU_SITU_AND_MUL_SOFT_CAP_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

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

}  // namespace

/// `count` outputs of one row.
void activate_span(const bf16* gate, const bf16* up, bf16* out, std::int64_t count,
                   const SoftCap& gate_cap, const SoftCap* up_cap) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store_bf16(df, activate(df, load_bf16(df, gate + i), load_bf16(df, up + i), gate_cap, up_cap),
               out + i);
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  const auto tail = activate(df, load_bf16_n(df, gate + i, rest), load_bf16_n(df, up + i, rest),
                             gate_cap, up_cap);
  store_bf16_n(df, tail, out + i, rest);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(activate_span);

/// Outputs per task, about 15 us of work: several short rows, or a part of a long one.
constexpr std::int64_t kTaskOutputs = 8192;
constexpr double kOutputTime = 2e-3;  ///< microseconds of one thread, roughly

}  // namespace

void situ_and_mul(const SituAndMulProblem& p, const Target& target) {
  if (p.num_rows == 0 || p.D == 0) return;
  const auto activate = HWY_DYNAMIC_DISPATCH(activate_span);
  const SoftCap gate_cap(p.beta);
  const SoftCap up_cap(p.has_linear_beta ? p.linear_beta : 1.0F);
  const SoftCap* const up_cap_or_null = p.has_linear_beta ? &up_cap : nullptr;

  const std::int64_t span = std::min(p.D, kTaskOutputs);
  const std::int64_t spans_per_row = (p.D + span - 1) / span;
  const std::int64_t spans_per_task = kTaskOutputs / span;
  const std::int64_t num_spans = p.num_rows * spans_per_row;
  const int threads = useful_threads(
      target.threads, kOutputTime * static_cast<double>(p.num_rows) * static_cast<double>(p.D));
  const std::int64_t num_tasks = (num_spans + spans_per_task - 1) / spans_per_task;
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t end = std::min((task + 1) * spans_per_task, num_spans);
    for (std::int64_t i = task * spans_per_task; i < end; ++i) {
      const std::int64_t row = i / spans_per_row;
      const std::int64_t begin = i % spans_per_row * span;
      const bf16* const gate = p.input + row * p.input_stride + begin;
      activate(gate, gate + p.D, p.out + row * p.out_stride + begin, std::min(span, p.D - begin),
               gate_cap, up_cap_or_null);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
