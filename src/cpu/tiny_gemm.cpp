// SPDX-License-Identifier: Apache-2.0

// Rows of w times rows of x: kRows of the one and kTokens of the other at a time, one chain of
// multiply-adds an output. Which values are even and which odd does not matter to a sum of
// products. w streams from memory once; the passes over further rows of x find it in the cache.
// docs/tiny_gemm.md has the figures.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tiny_gemm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/parallel.h"
#include "cpu/tiny_gemm.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

/// The first `count` values and zeros; touches no memory beyond them.
template <class DF>
HWY_INLINE EvenOdd<DF> load_even_odd_n(DF df, const bf16* from, std::int64_t count) {
  HWY_ALIGN bf16 lanes[HWY_MAX_BYTES / sizeof(bf16)] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load_even_odd(df, lanes);
}

/// sums[row][token] = products of `kRows` rows of w with `kTokens` rows of x. The chain of an
/// output is the same for every kRows and kTokens.
template <int kRows, int kTokens>
HWY_INLINE void multiply(const TinyGemmProblem& p, std::int64_t row, int token,
                         float (&sums)[kRows][kTokens]) {
  using DF = hn::ScalableTag<float>;
  const DF df;
  const auto step = static_cast<std::int64_t>(2 * hn::Lanes(df));
  const bf16* const w = p.w + row * p.w_stride;
  const bf16* const x = p.x + token * p.x_stride;
  hn::Vec<DF> sum[kRows][kTokens];
  for (auto& of_row : sum)
    for (auto& s : of_row) s = hn::Zero(df);

  const auto add = [&](const auto& load) HWY_ATTR {
    EvenOdd<DF> b[kTokens];
    for (int m = 0; m < kTokens; ++m) b[m] = load(x + m * p.x_stride);
    for (int n = 0; n < kRows; ++n) {
      const auto a = load(w + n * p.w_stride);
      for (int m = 0; m < kTokens; ++m) {
        sum[n][m] = hn::MulAdd(a.even, b[m].even, sum[n][m]);
        sum[n][m] = hn::MulAdd(a.odd, b[m].odd, sum[n][m]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + step <= p.K; k += step)
    add([&](const bf16* from) HWY_ATTR { return load_even_odd(df, from + k); });
  if (k < p.K)
    add([&](const bf16* from) HWY_ATTR { return load_even_odd_n(df, from + k, p.K - k); });

  for (int n = 0; n < kRows; ++n)
    for (int m = 0; m < kTokens; ++m) sums[n][m] = hn::GetLane(hn::SumOfLanes(df, sum[n][m]));
}

template <int kRows, int kTokens>
HWY_INLINE void make_outputs(const TinyGemmProblem& p, std::int64_t row, int token) {
  float sums[kRows][kTokens];
  multiply(p, row, token, sums);
  for (int m = 0; m < kTokens; ++m)
    for (int n = 0; n < kRows; ++n) {
      const std::int64_t at = (token + m) * p.out_stride + row + n;
      if (p.out_dtype == DType::kF32)
        static_cast<float*>(p.out)[at] = sums[n][m];
      else
        static_cast<bf16*>(p.out)[at] = to_bf16(sums[n][m]);
    }
}

template <int kRows>
HWY_INLINE void make_columns(const TinyGemmProblem& p, std::int64_t row) {
  int token = 0;
  for (; token + 2 <= p.M; token += 2) make_outputs<kRows, 2>(p, row, token);
  if (token < p.M) make_outputs<kRows, 1>(p, row, token);
}

}  // namespace

/// The columns [begin, end) of out.
void columns_of_product(const TinyGemmProblem& p, std::int64_t begin, std::int64_t end) {
  std::int64_t row = begin;
  for (; row + 4 <= end; row += 4) make_columns<4>(p, row);
  for (; row < end; ++row) make_columns<1>(p, row);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(columns_of_product);

constexpr std::int64_t kTaskColumns = 8;
constexpr double kWeightTime = 1.5e-4;  ///< microseconds of one thread, roughly, to read one
constexpr double kProductTime = 8e-5;   ///< to multiply and add one

}  // namespace

void tiny_gemm(const TinyGemmProblem& p, const Target& target) {
  if (p.M == 0 || p.N == 0) return;
  const auto columns = HWY_DYNAMIC_DISPATCH(columns_of_product);
  const int threads = useful_threads(
      target.threads, static_cast<double>(p.N) * p.K * (kWeightTime + kProductTime * p.M));
  const std::int64_t num_tasks = (p.N + kTaskColumns - 1) / kTaskColumns;
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t begin = task * kTaskColumns;
    columns(p, begin, std::min<std::int64_t>(begin + kTaskColumns, p.N));
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
