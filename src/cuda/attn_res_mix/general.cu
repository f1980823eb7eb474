// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/attn_res_mix/attn_res_mix.h"
#include "cuda/attn_res_mix/pieces.cuh"
#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"

/// attn_res_mix for every other call: a CTA a token, which reads the token's rows three times, for
/// the scores (a warp has a row), for the squares of the mixture, and for the mixture itself; the
/// second and third time they come from the L2.
namespace k3::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

/// kVec consecutive elements: 8 in one aligned access, or one.
template <int kVec>
struct Access;
template <>
struct Access<8> {
  __device__ static void load(const bf16* from, float (&to)[8]) {
    widen(*reinterpret_cast<const uint4*>(from), to);
  }
  __device__ static void store(bf16* to, const float (&x)[8]) {
    *reinterpret_cast<uint4*>(to) = narrow(x);
  }
  __device__ static void copy(const bf16* from, bf16* to) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
};
template <>
struct Access<1> {
  __device__ static void load(const bf16* from, float (&to)[1]) { to[0] = low_half(from->bits); }
  __device__ static void store(bf16* to, const float (&x)[1]) {
    to->bits = static_cast<std::uint16_t>(pack_bf16(x[0], 0.0F));
  }
  __device__ static void copy(const bf16* from, bf16* to) { *to = *from; }
};

__device__ const bf16* row_of(const AttnResMixProblem& p, std::int64_t t, int j) {
  return j < p.num_bank_rows ? p.bank + t * p.bank_token_stride + j * p.bank_row_stride
                             : p.prefix + t * p.prefix_stride;
}

/// A warp's row against c; the score is in every lane.
template <int kVec>
__device__ float score_of(const AttnResMixProblem& p, const bf16* row, int lane) {
  float squares = 0.0F;
  float dot = 0.0F;
#pragma unroll 4
  for (int h = kVec * lane; h < p.H; h += kVec * 32) {
    float x[kVec];
    float c[kVec];
    Access<kVec>::load(row + h, x);
    Access<kVec>::load(p.score_weight + h, c);
    if (p.score_proj != nullptr) {
      float factor[kVec];
      Access<kVec>::load(p.score_proj + h, factor);
#pragma unroll
      for (int i = 0; i < kVec; ++i) c[i] *= factor[i];
    }
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      squares = fmaf(x[i], x[i], squares);
      dot = fmaf(x[i], c[i], dot);
    }
  }
  return warp::sum(dot) * inverse_rms(warp::sum(squares), p.H, p.eps);
}

template <int kVec>
__device__ void mix(const AttnResMixProblem& p, std::int64_t t, int h, const float* weights,
                    float (&mixed)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) mixed[i] = 0.0F;
#pragma unroll 4
  for (int j = 0; j <= p.num_bank_rows; ++j) {
    float x[kVec];
    Access<kVec>::load(row_of(p, t, j) + h, x);
#pragma unroll
    for (int i = 0; i < kVec; ++i) mixed[i] = fmaf(weights[j], x[i], mixed[i]);
  }
}

template <int kVec>
__global__ __launch_bounds__(kThreads, 1) void attn_res_mix_general_kernel(
    const __grid_constant__ AttnResMixProblem p) {
  __shared__ float scores[kMaxBankRows + 1];
  __shared__ float weights[kMaxBankRows + 1];
  __shared__ float squares_of_warps[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int rows = p.num_bank_rows + 1;
  pdl_launch_dependents();
  pdl_wait();
  for (std::int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    for (int j = thread / 32; j < rows; j += kWarps) {
      const float score = score_of<kVec>(p, row_of(p, t, j), lane);
      if (lane == 0) scores[j] = score;
    }
    __syncthreads();  // scores are written; those of the last token are read

    float largest = scores[0];
    for (int j = lane; j < rows; j += 32) largest = fmaxf(largest, scores[j]);
    largest = warp::max(largest);
    float sum = 0.0F;
    for (int j = lane; j < rows; j += 32) sum += exp2_approx((scores[j] - largest) * kLog2E);
    const float inverse_sum = rcp_approx(warp::sum(sum));
    for (int j = thread; j < rows; j += kThreads)
      weights[j] = exp2_approx((scores[j] - largest) * kLog2E) * inverse_sum;
    __syncthreads();  // weights are written

    float squares = 0.0F;
    for (int h = kVec * thread; h < p.H; h += kVec * kThreads) {
      float mixed[kVec];
      mix<kVec>(p, t, h, weights, mixed);
#pragma unroll
      for (int i = 0; i < kVec; ++i) squares = fmaf(mixed[i], mixed[i], squares);
    }
    squares = warp::sum(squares);
    if (lane == 0) squares_of_warps[thread / 32] = squares;
    __syncthreads();  // squares are written

    float total = 0.0F;
    for (int w = 0; w < kWarps; ++w) total += squares_of_warps[w];
    const float scale = inverse_rms(total, p.H, p.eps);
    for (int h = kVec * thread; h < p.H; h += kVec * kThreads) {
      float mixed[kVec];
      float y[kVec];
      mix<kVec>(p, t, h, weights, mixed);
      Access<kVec>::load(p.out_norm_weight + h, y);
#pragma unroll
      for (int i = 0; i < kVec; ++i) y[i] *= mixed[i] * scale;
      Access<kVec>::store(p.out + t * p.out_stride + h, y);
      if (p.write_prefix)
        Access<kVec>::copy(p.prefix + t * p.prefix_stride + h, written_row(p, t) + h);
    }
  }
}

}  // namespace

const char* unaligned_row(const AttnResMixProblem& p) {
  const auto aligned = [](const bf16* base, auto... strides) {
    return rows_aligned(base, DType::kBF16, 16, strides...);
  };
  if (!aligned(p.bank, p.bank_token_stride, p.bank_row_stride))
    return "bank or one of its strides is not aligned to 16 bytes";
  if (!aligned(p.prefix, p.prefix_stride)) return "prefix or its stride is not aligned to 16 bytes";
  if (!aligned(p.out, p.out_stride)) return "out or its stride is not aligned to 16 bytes";
  if (!aligned(p.score_weight) || !aligned(p.score_proj) || !aligned(p.out_norm_weight))
    return "a weight is not aligned to 16 bytes";
  return nullptr;
}

void attn_res_mix_general(const AttnResMixProblem& p, const Target& target) {
  if (p.T == 0) return;
  constexpr std::int64_t kMaxTokensAtOnce = 1 << 20;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(std::min(p.T, kMaxTokensAtOnce)));
  config.block = dim3(kThreads);
  K3_CUDA_CHECK(launch(
      unaligned_row(p) == nullptr ? attn_res_mix_general_kernel<8> : attn_res_mix_general_kernel<1>,
      config, p));
}

}  // namespace k3::cuda
