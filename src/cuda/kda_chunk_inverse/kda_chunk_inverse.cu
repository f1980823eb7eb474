// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_chunk_inverse/kda_chunk_inverse.h"

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/quad.cuh"

/// One CTA a matrix, fp32 on the CUDA cores throughout.
///
///   threads  0-127 load and store, rows of 64 in consecutive lanes
///            0-63  a column each of the four diagonal blocks, substituted in registers
///            0-127 the joins, four columns of one row at a time
///   L        strictly lower part, zeros elsewhere; alive until the last join
///   X        the inverse; a join keeps its product B X of the moment in the block across the
///            diagonal from the one it makes, which nothing else reads
///   beta     alive from the load to the store
///
/// Everything is in shared memory before anything is written, so out may be L.
namespace k3::cuda {
namespace {

constexpr int kC = kKdaChunkTokens;
constexpr int kBlock = 16;  ///< of the diagonal, substituted by itself
constexpr int kThreads = 128;
/// A row of shared memory. 4 mod 32: consecutive rows start four banks apart, rows are aligned to
/// quads, and the two diagonal blocks of a warp (16 * 68 + 16 words apart) lie in different banks.
constexpr int kPitch = kC + 4;

struct Shared {
  alignas(16) float L[kC][kPitch];
  alignas(16) float X[kC][kPitch];
  float beta[kC];
};

template <class T>
__device__ void load_matrix(const T* from, std::int64_t row_stride, Shared& s) {
  for (int at = static_cast<int>(threadIdx.x); at < kC * kC; at += kThreads) {
    const int row = at / kC;
    const int column = at % kC;
    // By select: what stands on or above the diagonal may be NaN.
    s.L[row][column] = column < row ? widen(from[row * row_stride + column]) : 0.0F;
  }
}

__device__ void load_beta(const KdaChunkInverseProblem& p, std::int64_t offset, Shared& s) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kC) return;
  const std::int64_t at = offset + i * p.beta_strides.row;
  if (p.beta == nullptr)
    s.beta[i] = 1.0F;
  else if (p.beta_dtype == DType::kF32)
    s.beta[i] = static_cast<const float*>(p.beta)[at];
  else
    s.beta[i] = widen(static_cast<const bf16*>(p.beta)[at]);
}

/// Thread c < 64 substitutes column c of its diagonal block of 16.
__device__ void invert_diagonal_blocks(Shared& s) {
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kC) return;
  const int base = column / kBlock * kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    x[i] = base + i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int j = 0; j < i; ++j) x[i] = fmaf(-s.L[base + i][base + j], x[j], x[i]);
    s.X[base + i][column] = x[i];
  }
}

__device__ inline float4& quad_at(float (&rows)[kC][kPitch], int row, int column) {
  return *reinterpret_cast<float4*>(&rows[row][column]);
}

/// Joins the inverses X (above) and Y (below) of neighbouring blocks of kHalf rows on the diagonal:
/// the block below X becomes -Y (B X), with B that block of L. All threads.
template <int kHalf>
__device__ void join_blocks(Shared& s) {
  constexpr int kQuads = kHalf / 4;  ///< of a row
  constexpr int kTasks = kC / (2 * kHalf) * kHalf * kQuads;
  static_assert(kTasks % kThreads == 0);
  // Of X and Y only blocks on or below the diagonal count: across it stand older products.
  for (int task = static_cast<int>(threadIdx.x); task < kTasks; task += kThreads) {
    const int base = task / (kHalf * kQuads) * 2 * kHalf;
    const int row = task / kQuads % kHalf;
    const int column = task % kQuads * 4;
    float4 sum = {};
#pragma unroll 8
    for (int k = column / kBlock * kBlock; k < kHalf; ++k)
      sum = fma(quad_at(s.X, base + k, base + column), s.L[base + kHalf + row][base + k], sum);
    quad_at(s.X, base + row, base + kHalf + column) = sum;
  }
  __syncthreads();  // B X is whole
  for (int task = static_cast<int>(threadIdx.x); task < kTasks; task += kThreads) {
    const int base = task / (kHalf * kQuads) * 2 * kHalf;
    const int row = task / kQuads % kHalf;
    const int column = task % kQuads * 4;
    float4 sum = {};
#pragma unroll 8
    for (int k = 0; k < row / kBlock * kBlock + kBlock; ++k)
      sum = fma(quad_at(s.X, base + k, base + kHalf + column),
                -s.X[base + kHalf + row][base + kHalf + k], sum);
    quad_at(s.X, base + kHalf + row, base + column) = sum;
  }
  __syncthreads();  // the join is whole, and its product may go
}

__device__ inline void store_element(float* to, float x) { *to = x; }
__device__ inline void store_element(bf16* to, float x) { *to = narrow(x); }

template <class T>
__device__ void store_matrix(const Shared& s, T* to, std::int64_t row_stride) {
  for (int at = static_cast<int>(threadIdx.x); at < kC * kC; at += kThreads) {
    const int row = at / kC;
    const int column = at % kC;
    const float x = column <= row ? s.X[row][column] * s.beta[column] : 0.0F;
    store_element(to + row * row_stride + column, x);
  }
}

__device__ std::int64_t offset_of(const KdaChunkInverseProblem& p, const MatrixStrides& strides,
                                  int m) {
  const int inner = m / p.sizes[2];
  return inner / p.sizes[1] * strides.batch[0] + inner % p.sizes[1] * strides.batch[1] +
         m % p.sizes[2] * strides.batch[2];
}

template <class LT, class OutT>
__global__ __launch_bounds__(kThreads) void kda_chunk_inverse_kernel(
    const __grid_constant__ KdaChunkInverseProblem p) {
  __shared__ Shared s;
  pdl_launch_dependents();
  const int m = static_cast<int>(blockIdx.x);
  pdl_wait();
  load_matrix(static_cast<const LT*>(p.L) + offset_of(p, p.L_strides, m), p.L_strides.row, s);
  load_beta(p, offset_of(p, p.beta_strides, m), s);
  __syncthreads();  // L and beta are there
  invert_diagonal_blocks(s);
  __syncthreads();  // the diagonal blocks of X are there
  join_blocks<kBlock>(s);
  join_blocks<2 * kBlock>(s);
  store_matrix(s, static_cast<OutT*>(p.out) + offset_of(p, p.out_strides, m), p.out_strides.row);
}

template <class LT, class OutT>
void run(const KdaChunkInverseProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(p.M));
  config.block = dim3(kThreads);
  K3_CUDA_CHECK(launch(kda_chunk_inverse_kernel<LT, OutT>, config, p));
}

template <class LT>
void run(const KdaChunkInverseProblem& p, const Target& target) {
  if (p.out_dtype == DType::kF32)
    run<LT, float>(p, target);
  else
    run<LT, bf16>(p, target);
}

}  // namespace

void kda_chunk_inverse(const KdaChunkInverseProblem& p, const Target& target) {
  if (p.M == 0) return;
  if (p.L_dtype == DType::kF32)
    run<float>(p, target);
  else
    run<bf16>(p, target);
}

}  // namespace k3::cuda
