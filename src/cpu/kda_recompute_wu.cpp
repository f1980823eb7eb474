// SPDX-License-Identifier: Apache-2.0

// W and U of a chunk: a lower triangular matrix times 64 rows of 128. docs/kda_recompute_wu.md has
// the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_recompute_wu.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/bf16-inl.h"
#include "cpu/kda_recompute_wu.h"
#include "cpu/math-inl.h"
#include "cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace recompute_wu {

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int kC = kKdaChunkTokens;
inline constexpr int kD = kKdaHeadDim;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
/// Two vectors of columns at a time: with six rows, 12 accumulators.
inline constexpr int kColumns = 2 * kLanes;
static_assert(kD % kColumns == 0);

struct Scratch {
  HWY_ALIGN float A[kC][kC];     ///< read on and below the diagonal only
  HWY_ALIGN float rows[kC][kD];  ///< beta k exp(g), then beta v
  float beta[kC];
};

inline float widen(float x) { return x; }
inline float widen(bf16 x) { return to_float(x); }

template <class T>
HWY_INLINE void load_beta(const T* from, std::int64_t stride, int rows, float* beta) {
  for (int i = 0; i < rows; ++i) beta[i] = widen(from[i * stride]);
}

template <class T>
HWY_INLINE void load_matrix(const T* from, std::int64_t stride, int rows, float (*A)[kC]) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j <= i; ++j) A[i][j] = widen(from[i * stride + j]);
}

HWY_INLINE void load_keys(const bf16* k, std::int64_t k_stride, const float* g,
                          std::int64_t g_stride, int rows, Scratch& s) {
  const D df;
  for (int i = 0; i < rows; ++i) {
    const V beta = hn::Set(df, s.beta[i]);
    for (int d = 0; d < kD; d += kLanes) {
      const V decay = exp_nonpositive(df, hn::LoadU(df, g + i * g_stride + d));
      const V decayed = hn::Mul(load_bf16(df, k + i * k_stride + d), decay);
      hn::Store(hn::Mul(beta, decayed), df, s.rows[i] + d);
    }
  }
}

HWY_INLINE void load_values(const bf16* v, std::int64_t stride, int rows, Scratch& s) {
  const D df;
  for (int i = 0; i < rows; ++i) {
    const V beta = hn::Set(df, s.beta[i]);
    for (int d = 0; d < kD; d += kLanes)
      hn::Store(hn::Mul(beta, load_bf16(df, v + i * stride + d)), df, s.rows[i] + d);
  }
}

/// A vector pair of columns.
struct Pair {
  V low;
  V high;
};

/// Rows [kFirst, kRows) of sum += their column of A times a token's row.
template <int kRows, int kFirst>
HWY_INLINE void add_token(const float (*A)[kC], const float* row, int token, Pair* sum) {
  const D df;
  const V low = hn::Load(df, row);
  const V high = hn::Load(df, row + kLanes);
  for (int r = kFirst; r < kRows; ++r) {
    const V factor = hn::Set(df, A[r][token]);
    sum[r].low = hn::MulAdd(factor, low, sum[r].low);
    sum[r].high = hn::MulAdd(factor, high, sum[r].high);
  }
}

/// The tokens of the rows themselves: row r takes those up to its own.
template <int kRows, int kFirst = 0>
HWY_INLINE void add_own_tokens(const float (*A)[kC], const float* row, int token, Pair* sum) {
  add_token<kRows, kFirst>(A, row, token, sum);
  if constexpr (kFirst + 1 < kRows) add_own_tokens<kRows, kFirst + 1>(A, row + kD, token + 1, sum);
}

/// kRows rows of the product from `first` on, in a pair of vectors of columns. Each element is one
/// chain of multiply-adds in ascending order of the tokens.
template <int kRows>
HWY_INLINE void product_rows(const Scratch& s, int first, int column, bf16* to,
                             std::int64_t stride) {
  const D df;
  Pair sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = {hn::Zero(df), hn::Zero(df)};
  for (int j = 0; j < first; ++j) add_token<kRows, 0>(s.A + first, s.rows[j] + column, j, sum);
  add_own_tokens<kRows>(s.A + first, s.rows[first] + column, first, sum);
  for (int r = 0; r < kRows; ++r) {
    bf16* const row = to + (first + r) * stride + column;
    store_bf16(df, sum[r].low, row);
    store_bf16(df, sum[r].high, row + kLanes);
  }
}

/// A times `rows`, to the first row of an output.
HWY_INLINE void product(const Scratch& s, int rows, bf16* to, std::int64_t stride) {
  for (int column = 0; column < kD; column += kColumns) {
    int i = 0;
    for (; i + 6 <= rows; i += 6) product_rows<6>(s, i, column, to, stride);
    if (i + 4 <= rows) {
      product_rows<4>(s, i, column, to, stride);
      i += 4;
    }
    for (; i < rows; ++i) product_rows<1>(s, i, column, to, stride);
  }
}

}  // namespace recompute_wu

void recompute_wu_chunk(const KdaRecomputeWuProblem& p, const Chunk& chunk, int head) {
  using namespace recompute_wu;
  Scratch s;
  const int rows = chunk.rows;
  const auto at = [&](const TokenStrides& strides, std::int64_t h) {
    return chunk.batch * strides.batch + chunk.token * strides.token + h * strides.head;
  };
  const std::int64_t beta_at = at(p.beta_strides, head);
  if (p.beta == nullptr)
    std::fill_n(s.beta, rows, 1.0F);
  else if (p.beta_dtype == DType::kF32)
    load_beta(static_cast<const float*>(p.beta) + beta_at, p.beta_strides.token, rows, s.beta);
  else
    load_beta(static_cast<const bf16*>(p.beta) + beta_at, p.beta_strides.token, rows, s.beta);

  const std::int64_t A_at = at(p.A_strides, head);
  if (p.A_dtype == DType::kF32)
    load_matrix(static_cast<const float*>(p.A) + A_at, p.A_strides.token, rows, s.A);
  else
    load_matrix(static_cast<const bf16*>(p.A) + A_at, p.A_strides.token, rows, s.A);

  load_keys(p.k + at(p.k_strides, head / (p.HV / p.H)), p.k_strides.token,
            p.g + at(p.g_strides, head), p.g_strides.token, rows, s);
  product(s, rows, p.w + at(p.w_strides, head), p.w_strides.token);
  load_values(p.v + at(p.v_strides, head), p.v_strides.token, rows, s);
  product(s, rows, p.u + at(p.u_strides, head), p.u_strides.token);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(recompute_wu_chunk);

constexpr double kTokenTime = 0.5;  ///< microseconds of one thread for a token of a head, roughly

}  // namespace

void kda_recompute_wu(const KdaRecomputeWuProblem& p, const Target& target) {
  if (p.sequences.N == 0 || p.sequences.T == 0) return;
  const auto run_chunk = HWY_DYNAMIC_DISPATCH(recompute_wu_chunk);
  const std::int64_t tokens = p.sequences.packed ? p.sequences.T : p.sequences.N * p.sequences.T;
  const int threads =
      useful_threads(target.threads, kTokenTime * static_cast<double>(tokens) * p.HV);
  parallel_for(p.sequences.num_chunk_slots() * p.HV, threads,
               [&](std::int64_t task, int /*thread*/) {
                 const Chunk chunk = chunk_of_slot(p.sequences, task / p.HV);
                 if (chunk.rows > 0) run_chunk(p, chunk, static_cast<int>(task % p.HV));
               });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
