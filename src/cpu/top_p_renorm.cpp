// SPDX-License-Identifier: Apache-2.0

// The pivot of a row is found by its bits, ten at a time from the top: each pass adds up the masses
// of the values that agree with the pivot so far, by their next ten bits, and takes the first digit
// with which enough is reached. What masses are, and that no order of additions matters:
// include/k3/ops/top_p_renorm.h. docs/top_p_renorm.md has the figures.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/top_p_renorm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "cpu/parallel.h"
#include "cpu/top_p_renorm.h"

#ifndef K3_CPU_TOP_P_RENORM_ROW_
#define K3_CPU_TOP_P_RENORM_ROW_
namespace k3::cpu {

constexpr int kDigitBits = 10;
constexpr int kDigits = 1 << kDigitBits;

/// One row of the problem.
struct TopPRow {
  const float* probs;
  float* out;
  std::int64_t V;
  int mass_bits;
  std::uint64_t wanted;  ///< mass that the pivot has to reach
};

/// Values between 0 and 1 have the order of their bits.
inline std::uint32_t key_of(float probability) { return std::bit_cast<std::uint32_t>(probability); }

}  // namespace k3::cpu
#endif  // K3_CPU_TOP_P_RENORM_ROW_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;

/// What counts of a value: NaN and negative values as 0, values above 1 as 1.
HWY_INLINE FloatVec probability(FloatVec x) {
  const FloatTag df;
  const auto positive = hn::IfThenElseZero(hn::Gt(x, hn::Zero(df)), x);
  return hn::Min(positive, hn::Set(df, 1.0F));
}

/// Calls f(i, vector, count) for the row's probabilities from element i on; past `count` the last
/// vector holds zeros.
template <class F>
HWY_INLINE void for_vectors(const TopPRow& row, const F& f) {
  const FloatTag df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  std::int64_t i = 0;
  for (; i + lanes <= row.V; i += lanes) f(i, probability(hn::LoadU(df, row.probs + i)), lanes);
  if (i == row.V) return;
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy_n(row.probs + i, row.V - i, rest);
  f(i, probability(hn::Load(df, rest)), row.V - i);
}

/// masses[d] = mass of the values whose bits above `shift` + kDigitBits are `prefix`, and whose
/// next digit is d.
HWY_INLINE void add_masses(const TopPRow& row, std::uint32_t prefix, int shift,
                           std::uint64_t (&masses)[kDigits]) {
  const FloatTag df;
  const WordTag du32;
  // Neighbours with one digit would wait for each other's sum, so they have two to take turns in.
  std::uint64_t sums[2][kDigits] = {};
  const float unit = std::ldexp(1.0F, row.mass_bits);
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  for_vectors(row, [&](std::int64_t, FloatVec x, std::int64_t count) HWY_ATTR {
    if (shift + kDigitBits < 30) {
      const auto above = hn::ShiftRightSame(hn::BitCast(du32, x), shift + kDigitBits);
      if (hn::AllFalse(du32, hn::Eq(above, hn::Set(du32, prefix)))) return;
    }
    hn::Store(x, df, values);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t key = key_of(values[i]);
      if (key >> (shift + kDigitBits) != prefix) continue;
      sums[i % 2][key >> shift & (kDigits - 1)] += static_cast<std::uint64_t>(values[i] * unit);
    }
  });
  for (int d = 0; d < kDigits; ++d) masses[d] = sums[0][d] + sums[1][d];
}

}  // namespace

void renorm_row(const TopPRow& row) {
  const FloatTag df;
  std::uint64_t masses[kDigits];
  std::uint32_t pivot = 0;  // its bits so far
  std::uint64_t below = 0;  // mass of the values that are smaller in those
  std::uint64_t total = 0;
  std::uint64_t wanted = row.wanted;
  for (int shift = 20; shift >= 0; shift -= kDigitBits) {
    add_masses(row, pivot, shift, masses);
    if (shift == 20) {
      for (const std::uint64_t mass : masses) total += mass;
      // The largest value that has a mass is where all of it is reached.
      wanted = std::min(wanted, total);
    }
    std::uint32_t digit = 0;
    while (below + masses[digit] < wanted) below += masses[digit++];
    pivot = pivot << kDigitBits | digit;
  }

  const auto kept = static_cast<float>(total - below);
  const auto smallest = hn::Set(df, std::bit_cast<float>(pivot));
  const auto sum = hn::Set(df, kept > 0.0F ? std::ldexp(kept, -row.mass_bits) : 1.0F);
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  for_vectors(row, [&](std::int64_t i, FloatVec x, std::int64_t count) HWY_ATTR {
    auto share = hn::IfThenElseZero(hn::Ge(x, smallest), hn::Div(x, sum));
    if (kept == 0.0F) share = hn::Zero(df);
    if (count == lanes) {
      hn::StoreU(share, df, row.out + i);
    } else {
      hn::Store(share, df, rest);
      std::copy_n(rest, count, row.out + i);
    }
  });
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(renorm_row);

constexpr double kValueTime = 2e-3;  ///< microseconds of one thread, roughly

}  // namespace

void top_p_renorm(const TopPRenormProblem& p, const Target& target) {
  if (p.V == 0) return;
  const auto renorm = HWY_DYNAMIC_DISPATCH(renorm_row);
  const int threads = useful_threads(target.threads, kValueTime * static_cast<double>(p.B) * p.V);
  parallel_for(p.B, threads, [&](std::int64_t b, int /*thread*/) {
    const double top_p = p.top_ps != nullptr ? p.top_ps[b * p.top_ps_stride] : p.top_p;
    TopPRow row;
    row.probs = p.probs + b * p.probs_stride;
    row.out = p.out + b * p.out_stride;
    row.V = p.V;
    row.mass_bits = p.mass_bits();
    row.wanted = static_cast<std::uint64_t>(std::ceil(std::ldexp(1.0 - top_p, row.mass_bits)));
    renorm(row);
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
