// SPDX-License-Identifier: Apache-2.0

// SiTU-GLU and fp8 quantisation, one group of 128 at a time through a buffer of fp32.
// docs/situ_mul_quant.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/situ_mul_quant.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/group_quant-inl.h"
#include "cpu/parallel.h"
#include "cpu/scale_rows.h"
#include "cpu/situ-inl.h"
#include "cpu/situ_mul_quant.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

/// Runs of 16 columns, 8 of gate and 8 of up, taken apart.
HWY_INLINE void take_apart(const bf16* runs, bf16* gate, bf16* up) {
  for (int j = 0; j < kSituGroup; j += 8) {
    std::copy_n(runs + 2 * j, 8, gate + j);
    std::copy_n(runs + 2 * j + 8, 8, up + j);
  }
}

template <QuantFormat kFormat>
void quantise_row_as(const SituMulQuantProblem& p, const bf16* row, std::uint8_t* codes,
                     const ScaleRows& scales, std::int64_t t, const SoftCap& gate_cap,
                     const SoftCap& up_cap) {
  const hn::CappedTag<float, kSituGroup> df;
  HWY_ALIGN bf16 gate_columns[kSituGroup];
  HWY_ALIGN bf16 up_columns[kSituGroup];
  HWY_ALIGN float values[kSituGroup];
  for (std::int64_t g = 0; g < scales.num_groups; ++g) {
    const std::int64_t column = g * kSituGroup;
    const bf16* gate = row + column;
    const bf16* up = row + p.N + column;
    if (p.swizzle) {
      take_apart(row + 2 * column, gate_columns, up_columns);
      gate = gate_columns;
      up = up_columns;
    }
    for (std::size_t i = 0; i < kSituGroup; i += hn::Lanes(df)) {
      const auto value =
          activate(df, load_bf16(df, gate + i), load_bf16(df, up + i), gate_cap, &up_cap);
      hn::Store(p.round_to_bf16 ? round_to_bf16(df, value) : value, df, values + i);
    }
    store_scale(scales, t, g, quantise_group<kFormat>(values, kSituGroup, codes + column));
  }
}

}  // namespace

/// Row t of one expert, whose scales begin at `scales`.
void quantise_situ_row(const SituMulQuantProblem& p, const bf16* row, std::uint8_t* codes,
                       const ScaleRows& scales, std::int64_t t, const SoftCap& gate_cap,
                       const SoftCap& up_cap) {
  if (p.format == QuantFormat::kE4M3UE8M0)
    quantise_row_as<QuantFormat::kE4M3UE8M0>(p, row, codes, scales, t, gate_cap, up_cap);
  else
    quantise_row_as<QuantFormat::kE4M3>(p, row, codes, scales, t, gate_cap, up_cap);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(quantise_situ_row);

/// Outputs per task, about 15 us of work, and experts that a task may pass over for each row of it.
constexpr std::int64_t kTaskOutputs = 8192;
constexpr std::int64_t kExpertsPerRow = 512;
constexpr double kOutputTime = 1.5e-3;  ///< microseconds of one thread, roughly

}  // namespace

void situ_mul_quant(const SituMulQuantProblem& p, const Target& target) {
  if (p.N == 0) return;
  const auto quantise = HWY_DYNAMIC_DISPATCH(quantise_situ_row);
  const SoftCap gate_cap(p.beta);
  const SoftCap up_cap(p.linear_beta);

  std::int64_t live = 0;
  for (std::int64_t e = 0; e < p.E; ++e) live += p.live_rows(e);
  const std::int64_t rows_per_task =
      std::max<std::int64_t>(kTaskOutputs / p.N, 1) + p.E / kExpertsPerRow;
  const int threads = useful_threads(
      target.threads, kOutputTime * static_cast<double>(live) * static_cast<double>(p.N));
  parallel_for((live + rows_per_task - 1) / rows_per_task, threads,
               [&](std::int64_t task, int /*thread*/) {
                 const std::int64_t end = std::min((task + 1) * rows_per_task, live);
                 std::int64_t e = 0;
                 std::int64_t t = task * rows_per_task;  // rows past those of the experts before e
                 for (std::int64_t row = t; row < end; ++row, ++t) {
                   for (; t >= p.live_rows(e); ++e) t -= p.live_rows(e);
                   ScaleRows scales = p.scales;
                   scales.data = static_cast<float*>(scales.data) + e * p.scale_expert_stride;
                   quantise(p, p.input + e * p.input_expert_stride + t * p.input_row_stride,
                            p.output_q + e * p.q_expert_stride + t * p.q_row_stride, scales, t,
                            gate_cap, up_cap);
                 }
               });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
