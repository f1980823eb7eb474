// SPDX-License-Identifier: Apache-2.0

// Quantisation by rows and groups. docs/per_token_group_quant.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/per_token_group_quant.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "cpu/group_quant-inl.h"
#include "cpu/per_token_group_quant.h"
#include "cpu/row_spans.h"
#include "cpu/scale_rows.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

/// group_scale of the groups' largest magnitudes, a vector at a time.
template <QuantFormat kFormat>
HWY_INLINE void scales_of(const float* amax, GroupScales& scales) {
  const hn::CappedTag<float, GroupScales::kMost> df;
  const hn::RebindToUnsigned<decltype(df)> du32;
  const hn::RebindToSigned<decltype(df)> di32;
  constexpr float kMax = kFormat == QuantFormat::kI8 ? 127.0F : kMaxE4M3;
  for (std::size_t i = 0; i < GroupScales::kMost; i += hn::Lanes(df)) {
    const auto held =
        hn::Min(hn::Max(hn::Load(df, amax + i), hn::Set(df, kLeastAmax)), hn::Set(df, FLT_MAX));
    const auto scale = hn::Mul(held, hn::Set(df, 1.0F / kMax));
    if constexpr (kFormat == QuantFormat::kE4M3UE8M0) {
      const auto byte =
          hn::ShiftRight<23>(hn::Add(hn::BitCast(du32, scale), hn::Set(du32, 0x7FFFFF)));
      const auto reciprocal = hn::ShiftLeft<23>(hn::Sub(hn::Set(du32, 254), byte));
      hn::StoreU(hn::BitCast(df, hn::ShiftLeft<23>(byte)), df, scales.stored + i);
      hn::StoreU(hn::BitCast(df, reciprocal), df, scales.multiplier + i);
      hn::StoreU(hn::BitCast(di32, byte), di32, scales.byte + i);
    } else {
      hn::StoreU(scale, df, scales.stored + i);
      hn::StoreU(hn::Div(hn::Set(df, kMax), held), df, scales.multiplier + i);
      hn::StoreU(hn::Zero(di32), di32, scales.byte + i);
    }
  }
}

/// In blocks of groups, step by step: a group's maximum, its scale and its first code hang on each
/// other, and other groups fill the wait.
template <QuantFormat kFormat, class T>
void quantise_groups_of(const PerTokenGroupQuantProblem& p, std::int64_t row, std::int64_t begin,
                        std::int64_t end) {
  constexpr std::int64_t kBlock = GroupScales::kMost;
  const auto size = static_cast<std::size_t>(p.group_size);
  HWY_ALIGN float amax[kBlock] = {};
  GroupScales scales;
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, end - first));
    const T* const x = static_cast<const T*>(p.input) + row * p.input_stride + first * p.group_size;
    std::uint8_t* const codes = p.output_q + row * p.q_stride + first * p.group_size;
    const std::uint32_t not_finite = group_amaxes(x, size, count, amax);
    scales_of<kFormat>(amax, scales);
    for (std::size_t i = 0; i < count; ++i)
      quantise_codes<kFormat>(x + i * size, size, scales[static_cast<std::int64_t>(i)],
                              (not_finite >> i & 1) == 0, codes + i * size);
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
