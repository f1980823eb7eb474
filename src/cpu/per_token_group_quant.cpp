// SPDX-License-Identifier: Apache-2.0

// Quantisation by rows and groups. docs/per_token_group_quant.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/per_token_group_quant.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/group_quant-inl.h"
#include "cpu/per_token_group_quant.h"
#include "cpu/row_spans.h"
#include "cpu/scale_rows.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

/// In blocks of groups, step by step: a group's maximum, its scale and its first code hang on each
/// other, and other groups fill the wait.
template <QuantFormat kFormat, class T>
void quantise_groups_of(const PerTokenGroupQuantProblem& p, std::int64_t row, std::int64_t begin,
                        std::int64_t end) {
  constexpr std::int64_t kBlock = 32;
  const auto size = static_cast<std::size_t>(p.group_size);
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, end - first));
    const T* const x = static_cast<const T*>(p.input) + row * p.input_stride + first * p.group_size;
    std::uint8_t* const codes = p.output_q + row * p.q_stride + first * p.group_size;
    GroupAmax amax[kBlock];
    for (std::size_t i = 0; i < count; ++i) amax[i] = group_amax(x + i * size, size);
    GroupScale scales[kBlock];
    for (std::size_t i = 0; i < count; ++i) scales[i] = group_scale(kFormat, amax[i].amax);
    for (std::size_t i = 0; i < count; ++i)
      quantise_codes<kFormat>(x + i * size, size, scales[i], amax[i].finite, codes + i * size);
    store_scales(p.scales, row, first, static_cast<std::int64_t>(count), scales);
  }
}

template <QuantFormat kFormat>
void quantise_groups_as(const PerTokenGroupQuantProblem& p, std::int64_t row, std::int64_t begin,
                        std::int64_t end) {
  if (p.input_dtype == DType::kF32)
    quantise_groups_of<kFormat, float>(p, row, begin, end);
  else
    quantise_groups_of<kFormat, bf16>(p, row, begin, end);
}

}  // namespace

/// Groups [begin, end) of one row.
void quantise_groups(const PerTokenGroupQuantProblem& p, std::int64_t row, std::int64_t begin,
                     std::int64_t end) {
  switch (p.format) {
    case QuantFormat::kE4M3:
      return quantise_groups_as<QuantFormat::kE4M3>(p, row, begin, end);
    case QuantFormat::kE4M3UE8M0:
      return quantise_groups_as<QuantFormat::kE4M3UE8M0>(p, row, begin, end);
    case QuantFormat::kI8:
      return quantise_groups_as<QuantFormat::kI8>(p, row, begin, end);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(quantise_groups);

/// About 15 us of work.
constexpr std::int64_t kTaskValues = 32768;
constexpr double kValueTime = 4e-4;  ///< microseconds of one thread, roughly

}  // namespace

void per_token_group_quant(const PerTokenGroupQuantProblem& p, const Target& target) {
  if (p.T == 0 || p.D == 0) return;
  const auto quantise = HWY_DYNAMIC_DISPATCH(quantise_groups);
  const RowSpans shares = {.task_outputs = kTaskValues / p.group_size,
                           .output_time = kValueTime * static_cast<double>(p.group_size)};
  for_each_row_span(p.T, p.scales.num_groups, target.threads, shares,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
                      quantise(p, row, begin, begin + count);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
