// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_front/moe_front.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/cublaslt.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/moe/launch.h"
#include "cuda/moe/route_beside.cuh"
#include "cuda/moe_front/plain_product.h"
#include "cuda/moe_route_topk/moe_route_topk.h"

/// The product leaves merged in the workspace; the epilogue routes its first columns and rounds the
/// others, in one launch.
namespace k3::cuda {
namespace {

/// Rounds a row, eight neighbouring values a store, four stores' loads at once.
struct RoundRow {
  const float* from;
  std::int64_t from_stride;
  bf16* to;
  std::int64_t to_stride;
  std::int64_t vectors;  ///< L / 8

  __device__ void operator()(std::int64_t token, int thread) const {
    constexpr int kBatch = 4;
    const auto* const source = reinterpret_cast<const float4*>(from + token * from_stride);
    auto* const target = reinterpret_cast<uint4*>(to + token * to_stride);
    for (std::int64_t first = thread; first < vectors; first += kBatch * moe::kRowThreads) {
      float4 x[kBatch][2];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::int64_t v = first + i * moe::kRowThreads;
        if (v >= vectors) continue;
        x[i][0] = source[2 * v];
        x[i][1] = source[2 * v + 1];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::int64_t v = first + i * moe::kRowThreads;
        if (v >= vectors) continue;
        target[v] = {pack_bf16(x[i][0].x, x[i][0].y), pack_bf16(x[i][0].z, x[i][0].w),
                     pack_bf16(x[i][1].x, x[i][1].y), pack_bf16(x[i][1].z, x[i][1].w)};
      }
    }
  }
};

constexpr int kRoundThreads = 256;

__global__ __launch_bounds__(kRoundThreads) void round_kernel(
    const __grid_constant__ MoeFrontEpilogueProblem p, std::int64_t num_elements) {
  pdl_launch_dependents();
  pdl_wait();
  const std::int64_t step = std::int64_t{gridDim.x} * kRoundThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kRoundThreads + threadIdx.x; i < num_elements;
       i += step) {
    const std::int64_t t = i / p.L;
    const std::int64_t l = i - t * p.L;
    const std::uint32_t bits = pack_bf16(p.latent[t * p.latent_stride + l], 0.0F);
    p.routed[t * p.routed_stride + l] = {static_cast<std::uint16_t>(bits)};
  }
}

void run_epilogue(const MoeFrontEpilogueProblem& p, const Target& target) {
  if (moe_front_epilogue_one_launch_refusal(p, target) == nullptr)
    moe_front_epilogue_one_launch(p, target);
  else
    moe_front_epilogue_two_launches(p, target);
}

/// What cuBLASLt asks of every pointer, and the workspace gives.
constexpr std::size_t kAlignment = 256;

std::size_t merged_bytes(const MoeFrontProblem& p) {
  const std::size_t bytes =
      static_cast<std::size_t>(p.T) * static_cast<std::size_t>(p.N) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

LtProduct product_of(const MoeFrontProblem& p, const Target& target) {
  return {.M = p.T,
          .N = p.N,
          .K = p.H,
          .a = p.hidden,
          .a_stride = p.hidden_stride,
          .b = p.weight,
          .b_stride = p.weight_stride,
          .c = static_cast<float*>(target.workspace.data)};
}

}  // namespace

const char* moe_front_epilogue_one_launch_refusal(const MoeFrontEpilogueProblem& p,
                                                  const Target& target) {
  if (const char* reason = moe_route_topk_16_of_896_refusal(p.routing, target)) return reason;
  if (p.L % 8 != 0) return "L is not a multiple of 8";
  if (!rows_aligned(p.latent, DType::kF32, 16, p.latent_stride))
    return "rows of merged are not aligned to 16 bytes";
  if (!rows_aligned(p.routed, DType::kBF16, 16, p.routed_stride))
    return "rows of routed are not aligned to 16 bytes";
  return nullptr;
}

void moe_front_epilogue_one_launch(const MoeFrontEpilogueProblem& p, const Target& target) {
  const RoundRow row = {p.latent, p.latent_stride, p.routed, p.routed_stride, p.L / 8};
  moe::launch_over_tokens(p.routing.num_tokens, moe::kRouteThreads + moe::kRowThreads, 0, target,
                          moe::route_beside_kernel<float, RoundRow>,
                          static_cast<const MoeRouting&>(p.routing), row);
}

void moe_front_epilogue_two_launches(const MoeFrontEpilogueProblem& p, const Target& target) {
  constexpr std::int64_t kMaxCtas = 1 << 16;
  moe_route_topk_any(p.routing, target);
  const std::int64_t num_elements = p.routing.num_tokens * p.L;
  if (num_elements == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid =
      dim3(static_cast<unsigned>(std::min((num_elements - 1) / kRoundThreads + 1, kMaxCtas)));
  config.block = dim3(kRoundThreads);
  K3_CUDA_CHECK(launch(round_kernel, config, p, num_elements));
}

const char* moe_front_cublaslt_refusal(const MoeFrontProblem& p, const Target& target) {
  if (p.T == 0) return nullptr;
  if (p.T > 1 && p.hidden_stride < p.H) return "rows of hidden overlap";
  if (p.N > 1 && p.weight_stride < p.H) return "rows of weight overlap";
  return cublaslt_refusal(product_of(p, target), target.device.index);
}

std::size_t moe_front_cublaslt_workspace_size(const MoeFrontProblem& p, const Target&) {
  return p.T == 0 ? 0 : merged_bytes(p) + kCublasLtWorkspaceBytes;
}

void moe_front_cublaslt(const MoeFrontProblem& p, const Target& target) {
  if (p.T == 0) return;
  const LtProduct product = product_of(p, target);
  auto* const own = static_cast<std::byte*>(target.workspace.data) + merged_bytes(p);
  cublaslt_multiply(product, own, target.device.index, static_cast<cudaStream_t>(target.stream));
  run_epilogue(epilogue_over(p, product.c), target);
}

std::size_t moe_front_plain_workspace_size(const MoeFrontProblem& p, const Target&) {
  return merged_bytes(p);
}

void moe_front_plain(const MoeFrontProblem& p, const Target& target) {
  if (p.T == 0) return;
  const LtProduct product = product_of(p, target);
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch_plain_product(product, target));
  run_epilogue(epilogue_over(p, product.c), target);
}

}  // namespace k3::cuda
