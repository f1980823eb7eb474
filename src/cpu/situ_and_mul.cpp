// SPDX-License-Identifier: Apache-2.0

// SiTU-GLU. docs/situ_and_mul.md has the roofline.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/situ_and_mul.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/parallel.h"
#include "cpu/situ-inl.h"
#include "cpu/situ_and_mul.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

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
