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
#include "cpu/row_spans.h"
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

constexpr RowSpans kShares = {.task_outputs = 8192, .output_time = 2e-3};  // 15 us a task

}  // namespace

void situ_and_mul(const SituAndMulProblem& p, const Target& target) {
  const auto activate = HWY_DYNAMIC_DISPATCH(activate_span);
  const SoftCap gate_cap(p.beta);
  const SoftCap up_cap(p.has_linear_beta ? p.linear_beta : 1.0F);
  const SoftCap* const up_cap_or_null = p.has_linear_beta ? &up_cap : nullptr;

  for_each_row_span(p.num_rows, p.D, target.threads, kShares,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
                      const bf16* const gate = p.input + row * p.input_stride + begin;
                      activate(gate, gate + p.D, p.out + row * p.out_stride + begin, count,
                               gate_cap, up_cap_or_null);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
