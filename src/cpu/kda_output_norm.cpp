// SPDX-License-Identifier: Apache-2.0

// The output norm of the decode ops as a pass of its own. docs/kda_output_norm.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_output_norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "cpu/head_tasks.h"
#include "cpu/kda_output_norm.h"
#include "cpu/kda_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// Heads [h_begin, h_end) of token n. A head is read before it is written: out may be raw.
void output_norm_heads(const KdaOutputNormProblem& p, std::int64_t n, int h_begin, int h_end) {
  HWY_ALIGN float o[step::kD];
  for (int h = h_begin; h < h_end; ++h) {
    const std::int64_t channel = std::int64_t{h} * step::kD;
    const step::OutputNorm norm = {
        .gate = p.gate + n * p.gate_stride + channel, .weight = p.weight, .eps = p.eps};
    step::widen(p.raw + n * p.raw_stride + channel, o);
    step::write_output(Rounding::kF32, &norm, o, p.out + n * p.out_stride + channel);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(output_norm_heads);

constexpr double kHeadTime = 0.15;  ///< microseconds of one thread, roughly

}  // namespace

void kda_output_norm(const KdaOutputNormProblem& p, const Target& target) {
  const auto norm = HWY_DYNAMIC_DISPATCH(output_norm_heads);
  for_heads(p.T, p.H, kHeadTime, target.threads,
            [&](std::int64_t n, int h_begin, int h_end) { norm(p, n, h_begin, h_end); });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
