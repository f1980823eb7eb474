// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/kda_prefill/factors.cuh"

/// The token-parallel half of a prefill: one CTA of eight warps makes the ChunkFactors of a (chunk,
/// value head): the steps of factors.cuh, and then
///
///   5. v is there: -M (k exp(G)) and M v; bulk copies to the workspace.
///
/// Where cu_seqlens cuts several sequences, those of one chunk are left to one_chunk.cuh, and a CTA
/// in front of the others lists the rest for the chain.
///
/// Shared memory: BuilderShared. Barriers: __syncthreads only.
namespace k3::cuda {

inline constexpr int kBuilderCtas = 3;  ///< on an SM

/// In the end M stands in columns, in two parts, -W in keys, and in queries first v, then U.
struct BuilderShared : ChunkTiles {
  /// -exp of the references from the chunk's start, in either half of a word.
  std::uint32_t minus_from_start[kBlocks][kHeadDim];
};

/// Factors of the workspace, and what step 5 makes of the row operands.
struct StoredFactors {
  static constexpr bool kClears = true;
  ChunkFactors* to;

  __device__ bf16* output_matrix(ChunkTiles& /*shared*/) const { return to->output_matrix; }
  __device__ float* gamma(ChunkTiles& /*shared*/) const { return to->gamma; }
  __device__ void put_remaining(const ThreadQuads& at, int i, Bf16Quad key,
                                ChunkTiles& /*shared*/) const {
    at.of(to->k_remaining, i) = key;
  }
  __device__ void put_start(const BuilderTask& task, float4 start, ChunkTiles& shared) const {
    if (task.warp % 2 != 0) return;
    auto& factors = static_cast<BuilderShared&>(shared).minus_from_start[task.warp / 2];
    *reinterpret_cast<uint4*>(&factors[task.channel]) = {
        pack_bf16(-start.x, -start.x), pack_bf16(-start.y, -start.y), pack_bf16(-start.z, -start.z),
        pack_bf16(-start.w, -start.w)};
  }
  __device__ void put_query(const ThreadQuads& at, int i, Bf16Quad query, Bf16Quad start) const {
    at.of(to->q_decayed, i) = multiply_pairs(query, start);
  }
  __device__ void put_decayed(const ThreadQuads& at, int i, Bf16Quad key, Bf16Quad query,
                              ChunkTiles& shared) const {
    at.of(shared.keys, i) = key;
    at.of(to->q_decayed, i) = query;
  }
  __device__ void after_matrices(const BuilderTask& /*task*/, Bf16Quad /*start*/,
                                 ChunkTiles& /*shared*/) const {}
};

/// Step 5: four warps take 32 columns each of -M (k exp(G)), whose right operand is the row operand
/// of its block times a power of two, the others of M v; the result stands where the operand was.
__device__ inline void multiply_solve(const BuilderTask& task, BuilderShared& shared) {
  const bool is_w = task.warp < 4;
  const int column0 = 32 * (task.warp % 4);
  const RowsLane<kHalf> half(
      shared_address(is_w ? shared.keys : shared.queries) + column0 / kHalf * kHalfTileBytes,
      task.lane);
  const RowsLane<kChunk> high(shared_address(shared.columns), task.lane);
  const RowsLane<kChunk> low(shared_address(shared.columns + kChunk * kChunk), task.lane);
  std::uint32_t b[kBlocks][2][4];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int n = 0; n < 2; ++n) load_b(b[j][n], half, kBlock * j, column0 % kHalf + 16 * n);
  if (is_w) {
    const std::uint32_t* const factors = &shared.minus_from_start[0][column0 + task.lane / 4];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          b[j][n][r] = multiply_pairs(b[j][n][r], factors[kHeadDim * j + 16 * n + 8 * (r / 2)]);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    FragmentC c[4];
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const FragmentA m_low = load_a(low, kBlock * i, kBlock * j);
      const FragmentA m_high = load_a(high, kBlock * i, kBlock * j);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_add(c[2 * n], c[2 * n + 1], m_low, b[j][n]);
        multiply_add(c[2 * n], c[2 * n + 1], m_high, b[j][n]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
      store_a(as_operand(c[2 * n], c[2 * n + 1]), half, kBlock * i, column0 % kHalf + 16 * n);
  }
}

/// All steps. The bulk copies at the end may still read the shared memory of thread 0's CTA only
/// until it returns.
__device__ __forceinline__ void build_chunk(const KdaPrefillProblem& p, const BuilderTask& task,
                                            ChunkFactors* to, BuilderShared& shared) {
  fetch_keys_and_queries(p, task, shared);
  make_chunk_matrices(p, task, StoredFactors{to}, shared);
  fetch_rows(p.v, p.v_strides, task, task.head, shared.queries);
  invert_halves(task, shared.lower);
  SolveElements(task, shared.lower).store(task, shared.beta, shared.columns);
  wait_for_async_copies();
  __syncthreads();
  multiply_solve(task, shared);
  publish_to_bulk_copies();
  __syncthreads();
  pdl_launch_dependents();
  if (threadIdx.x == 0) {
    bulk_store(to->minus_w, shared.keys, sizeof(shared.keys));
    bulk_store(to->u, shared.queries, sizeof(shared.queries));
    wait_until_bulk_stores_have_read();
  }
}

/// Sets all of the task but what the thread's number says. False for a slot without tokens, and
/// for a chunk that is a sequence of one_chunk.cuh.
__device__ inline bool find_task(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                 std::int64_t slot, int head, BuilderTask& task) {
  if (slot < 0) return false;
  task.head = head;
  task.key_head = p.HV == p.H ? head : head / (p.HV / p.H);
  const DeviceChunk chunk = device_chunk_of_slot(p, slot);
  task.batch = chunk.batch;
  task.token = chunk.token;
  task.rows = chunk.rows;
  return task.rows > 0 && !(chunk.is_only && plan.longest != nullptr);
}

/// Grid: heads along x, chunk slots, the last first, along y and z (grid_over_requests); before
/// them a row whose first CTA lists the sequences, where there are several.
__global__ __launch_bounds__(kBuilderThreads, kBuilderCtas) void kda_prefill_builder_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  static_assert(sizeof(OrderShared<kBuilderThreads>) <= sizeof(BuilderShared));
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<BuilderShared*>(dynamic_shared);
  BuilderTask task;
  unsigned slot = blockIdx.y + blockIdx.z * gridDim.y;
  pdl_wait();
  if (plan.longest != nullptr && slot-- == 0) {
    if (blockIdx.x == 0)
      list_sequences(p, plan, *reinterpret_cast<OrderShared<kBuilderThreads>*>(dynamic_shared));
    return;
  }
  // Backwards: the factors that the chain wants first are then still in the L2.
  const std::int64_t at = plan.num_slots - 1 - slot;
  if (!find_task(p, plan, at, static_cast<int>(blockIdx.x), task)) return;
  build_chunk(p, task, plan.factors + at * p.HV + task.head, shared);
}

/// The same by as many CTAs as are on the chip at once, for calls with so many short sequences that
/// most slots may be empty. The first one lists the sequences.
__global__ __launch_bounds__(kBuilderThreads, kBuilderCtas) void kda_prefill_few_builders_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<BuilderShared*>(dynamic_shared);
  pdl_wait();
  if (blockIdx.x == 0) {
    list_sequences(p, plan, *reinterpret_cast<OrderShared<kBuilderThreads>*>(dynamic_shared));
    return;
  }
  bool any_long = false;
  for (int n = static_cast<int>(threadIdx.x); n < p.N; n += kBuilderThreads)
    any_long |= sequence_length(p, n) > kChunk;
  if (__syncthreads_or(static_cast<int>(any_long)) == 0) return;
  const auto heads = static_cast<unsigned>(p.HV);
  const unsigned end = static_cast<unsigned>(plan.num_slots) * heads;
  for (unsigned i = blockIdx.x - 1; i < end; i += gridDim.x - 1) {
    const std::int64_t at = plan.num_slots - 1 - i / heads;
    BuilderTask task;
    if (!find_task(p, plan, at, static_cast<int>(i % heads), task)) continue;
    build_chunk(p, task, plan.factors + at * p.HV + task.head, shared);
    __syncthreads();  // thread 0's copies have left
  }
}

}  // namespace k3::cuda
