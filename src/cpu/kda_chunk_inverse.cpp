// SPDX-License-Identifier: Apache-2.0

// (I + L)^-1 diag(beta) by forward substitution over rows. docs/kda_chunk_inverse.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_chunk_inverse.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/bf16-inl.h"
#include "cpu/kda_chunk_inverse.h"
#include "cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace chunk_inverse {

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int kC = kKdaChunkTokens;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
inline constexpr int kColumns = 2 * kLanes;  ///< at a time
inline constexpr int kRows = 4;  ///< solved together: each known row is loaded once for all
static_assert(kC % kColumns == 0);

struct Matrices {
  HWY_ALIGN float L[kC][kC];  ///< read below the diagonal only
  HWY_ALIGN float X[kC][kC];  ///< the inverse; zeros above the diagonal
};

HWY_INLINE V load_vector(const float* from) { return hn::LoadU(D(), from); }
HWY_INLINE V load_vector(const bf16* from) { return load_bf16(D(), from); }
HWY_INLINE void store_vector(V x, float* to) { hn::StoreU(x, D(), to); }
HWY_INLINE void store_vector(V x, bf16* to) { store_bf16(D(), x, to); }
inline float widen(float x) { return x; }
inline float widen(bf16 x) { return to_float(x); }

/// A vector pair of columns.
struct Pair {
  V low;
  V high;
};

HWY_INLINE void multiply_subtract(float factor, const Pair& x, Pair& sum) {
  const V f = hn::Set(D(), factor);
  sum.low = hn::NegMulAdd(f, x.low, sum.low);
  sum.high = hn::NegMulAdd(f, x.high, sum.high);
}

/// Row `row` of the unit matrix.
HWY_INLINE V unit_row(int row, int column) {
  const D df;
  const auto one_here =
      hn::Eq(hn::Iota(df, static_cast<float>(column)), hn::Set(df, static_cast<float>(row)));
  return hn::IfThenElseZero(one_here, hn::Set(df, 1.0F));
}

/// Rows first .. first + kRows - 1 of X in two vectors of columns, given those before. Each element
/// is one chain of multiply-adds in ascending order of the known rows.
HWY_INLINE void solve_columns(int first, int column, Matrices& m) {
  const D df;
  Pair x[kRows];
  for (int r = 0; r < kRows; ++r)
    x[r] = {unit_row(first + r, column), unit_row(first + r, column + kLanes)};
  // A row above the first of these columns holds zeros here.
  for (int j = column; j < first; ++j) {
    const float* const row = m.X[j] + column;
    const Pair known = {hn::Load(df, row), hn::Load(df, row + kLanes)};
    for (int r = 0; r < kRows; ++r) multiply_subtract(m.L[first + r][j], known, x[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < r; ++j) multiply_subtract(m.L[first + r][first + j], x[j], x[r]);
    float* const row = m.X[first + r] + column;
    hn::Store(x[r].low, df, row);
    hn::Store(x[r].high, df, row + kLanes);
  }
}

template <class T>
HWY_INLINE void load_matrix(const T* from, std::int64_t row_stride, Matrices& m) {
  for (int i = 1; i < kC; ++i)
    for (int j = 0; j < i; j += kLanes)
      hn::Store(load_vector(from + i * row_stride + j), D(), m.L[i] + j);
}

/// X diag(beta), with exact zeros above the diagonal whatever spread there from a NaN below it.
template <class T>
HWY_INLINE void store_matrix(const Matrices& m, const float* beta, T* to, std::int64_t row_stride) {
  const D df;
  for (int i = 0; i < kC; ++i) {
    const V row = hn::Set(df, static_cast<float>(i));
    for (int c = 0; c < kC; c += kLanes) {
      V x = hn::Zero(df);
      if (c <= i) {
        const auto above = hn::Gt(hn::Iota(df, static_cast<float>(c)), row);
        x = hn::IfThenZeroElse(above, hn::Mul(hn::Load(df, m.X[i] + c), hn::Load(df, beta + c)));
      }
      store_vector(x, to + i * row_stride + c);
    }
  }
}

template <class T>
HWY_INLINE void load_beta(const T* from, std::int64_t stride, float* beta) {
  for (int i = 0; i < kC; ++i) beta[i] = widen(from[i * stride]);
}

}  // namespace chunk_inverse

/// Matrix `index` of the batch. It is read before it is written: out may be L.
void chunk_inverse_matrix(const KdaChunkInverseProblem& p, int index) {
  using namespace chunk_inverse;
  Matrices m;
  HWY_ALIGN float beta[kC];
  const std::int64_t L_at = p.offset(p.L_strides, index);
  if (p.L_dtype == DType::kF32)
    load_matrix(static_cast<const float*>(p.L) + L_at, p.L_strides.row, m);
  else
    load_matrix(static_cast<const bf16*>(p.L) + L_at, p.L_strides.row, m);

  const std::int64_t beta_at = p.offset(p.beta_strides, index);
  if (p.beta == nullptr)
    std::fill_n(beta, kC, 1.0F);
  else if (p.beta_dtype == DType::kF32)
    load_beta(static_cast<const float*>(p.beta) + beta_at, p.beta_strides.row, beta);
  else
    load_beta(static_cast<const bf16*>(p.beta) + beta_at, p.beta_strides.row, beta);

  for (int first = 0; first < kC; first += kRows)
    for (int column = 0; column < first + kRows; column += kColumns)
      solve_columns(first, column, m);

  const std::int64_t out_at = p.offset(p.out_strides, index);
  if (p.out_dtype == DType::kF32)
    store_matrix(m, beta, static_cast<float*>(p.out) + out_at, p.out_strides.row);
  else
    store_matrix(m, beta, static_cast<bf16*>(p.out) + out_at, p.out_strides.row);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(chunk_inverse_matrix);

constexpr double kMatrixTime = 4.0;  ///< microseconds of one thread, roughly

}  // namespace

void kda_chunk_inverse(const KdaChunkInverseProblem& p, const Target& target) {
  const auto invert = HWY_DYNAMIC_DISPATCH(chunk_inverse_matrix);
  const int threads = useful_threads(target.threads, kMatrixTime * p.M);
  parallel_for(p.M, threads,
               [&](std::int64_t m, int /*thread*/) { invert(p, static_cast<int>(m)); });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
