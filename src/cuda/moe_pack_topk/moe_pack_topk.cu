// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_pack_topk/moe_pack_topk.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/moe/score.cuh"

/// One thread makes one vector of kVec words; rows without gaps are one row.
namespace k3::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int kVec>
struct alignas(sizeof(T) * kVec > 16 ? 16 : sizeof(T) * kVec) Vector {
  T at[kVec];
};

template <class Id, int kVec>
__global__ __launch_bounds__(kThreads) void pack_kernel(
    const __grid_constant__ MoePackTopkProblem p, std::int64_t row_vectors,
    std::int64_t num_vectors) {
  pdl_launch_dependents();
  pdl_wait();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t v = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; v < num_vectors;
       v += step) {
    const std::int64_t row = p.num_rows == 1 ? 0 : v / row_vectors;
    const std::int64_t column = (v - row * row_vectors) * kVec;
    const auto ids = *reinterpret_cast<const Vector<Id, kVec>*>(static_cast<const Id*>(p.ids) +
                                                                row * p.ids_stride + column);
    const auto weights =
        *reinterpret_cast<const Vector<float, kVec>*>(p.weights + row * p.weights_stride + column);
    Vector<std::int32_t, kVec> packed;
#pragma unroll
    for (int i = 0; i < kVec; ++i) packed.at[i] = moe::packed_topk(ids.at[i], weights.at[i]);
    *reinterpret_cast<Vector<std::int32_t, kVec>*>(p.packed + row * p.packed_stride + column) =
        packed;
  }
}

template <int kVec>
void run(const MoePackTopkProblem& p, const Target& target) {
  constexpr std::int64_t kMaxCtas = 1 << 20;
  const std::int64_t row_vectors = p.columns / kVec;
  const std::int64_t num_vectors = p.num_rows * row_vectors;
  if (num_vectors == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(std::min((num_vectors - 1) / kThreads + 1, kMaxCtas)));
  config.block = dim3(kThreads);
  K3_CUDA_CHECK(
      launch(p.wide_ids ? pack_kernel<std::int64_t, kVec> : pack_kernel<std::int32_t, kVec>, config,
             p, row_vectors, num_vectors));
}

}  // namespace

const char* moe_pack_topk_vec4_refusal(const MoePackTopkProblem& p, const Target&) {
  if (p.columns % 4 != 0) return "rows are not whole quads";
  if (!rows_aligned(p.ids, p.wide_ids ? DType::kI64 : DType::kI32, 16, p.ids_stride))
    return "rows of topk_ids are not aligned to 16 bytes";
  if (!rows_aligned(p.weights, DType::kF32, 16, p.weights_stride))
    return "rows of topk_weights are not aligned to 16 bytes";
  if (!rows_aligned(p.packed, DType::kI32, 16, p.packed_stride))
    return "rows of packed are not aligned to 16 bytes";
  return nullptr;
}

void moe_pack_topk_vec4(const MoePackTopkProblem& p, const Target& target) { run<4>(p, target); }
void moe_pack_topk_scalar(const MoePackTopkProblem& p, const Target& target) { run<1>(p, target); }

}  // namespace k3::cuda
