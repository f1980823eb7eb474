// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda_prefill/factors.cuh"
#include "cuda/kda_prefill/warp_products.cuh"

/// Sequences of at most one chunk, in one pass: no factor goes through memory. A CTA of eight warps
/// has a (sequence, value head), and a warp 16 of its value channels. After the steps of
/// factors.cuh
///
///   D = v - k exp(G) S0     N = M D     O = q exp(G) S0 + A N
///   S = diag(gamma) S0 + (k exp(G_last - G))^T N
///
/// transposed, as in chain.cuh: sums become operands in the registers where they are. The chain's W
/// and U do not appear: what depends on S0 is there before M is needed.
///
///   1 .. 3         S0 and v are on their way into the L2
///   row operands become k exp(G) and q exp(G) where they stand
///   4              S0 on its way into registers, v into shared memory
///   D; N, O and S
///   rows of out and S to memory
///
/// Shared memory: OneChunkShared. Barriers: __syncthreads only.
namespace k3::cuda {

inline constexpr int kOneChunkCtas = 2;  ///< on an SM

/// From step 4 on v stands in columns, and in the end out; M, in two parts, in lower. Two of them
/// fit on an SM, and one where a CTA may have no more than 99 KB.
struct OneChunkShared : ChunkTiles {
  bf16 k_remaining[kChunk * kHeadDim];
  bf16 output_matrix[kChunk * kChunk];
  float gamma[kHeadDim];
};

/// Factors that stay in shared memory.
struct HeldFactors {
  static constexpr bool kClears = false;
  OneChunkShared* shared;

  [[nodiscard]] __device__ bf16* output_matrix() const { return shared->output_matrix; }
  [[nodiscard]] __device__ bf16* k_remaining() const { return shared->k_remaining; }
  [[nodiscard]] __device__ float* gamma() const { return shared->gamma; }
  __device__ void put_start(const BuilderTask& /*task*/, float4 /*start*/) const {}
  __device__ void put_query(const ThreadQuads& /*at*/, int /*i*/, Bf16Quad /*query*/,
                            Bf16Quad /*start*/) const {}
  __device__ void put_decayed(const ThreadQuads& at, int i, Bf16Quad key, Bf16Quad query) const {
    at.of(shared->keys, i) = key;
    at.of(shared->queries, i) = query;
  }
  /// A product with a power of two is exact.
  __device__ void after_matrices(const BuilderTask& task, Bf16Quad start) const {
    const ThreadQuads at(task);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      Bf16Quad& key = at.of(shared->keys, i);
      key = multiply_pairs(key, start);
      Bf16Quad& query = at.of(shared->queries, i);
      query = multiply_pairs(query, start);
    }
  }
};

/// Asks for the chunk's rows into the L2, 128 bytes a thread.
__device__ inline void prefetch_rows(const bf16* from, const TokenStrides& strides,
                                     const BuilderTask& chunk, int head) {
  const int row = static_cast<int>(threadIdx.x) / 2;
  if (row >= chunk.rows) return;
  prefetch_l2(from + chunk.batch * strides.batch + (chunk.token + row) * strides.token +
              head * strides.head + kHalf * (static_cast<int>(threadIdx.x) % 2));
}

/// Sets the sequence of a task, and its chunk. False where it has more than one.
__device__ inline bool find_short_sequence(const KdaPrefillProblem& p, PrefillChainTask& task,
                                           BuilderTask& chunk) {
  PrefillSequence& sequence = task.sequence;
  sequence.length = p.packed ? sequence_length(p, task.n) : p.T;
  if (sequence.length > kChunk) return false;
  sequence.num_chunks = sequence.length > 0 ? 1 : 0;
  sequence.begin = p.packed ? sequence_begin(p, task.n) : 0;
  if (p.chunk_states != nullptr) sequence.first_chunk = chunks_before(p, task.n);
  chunk.head = task.head;
  chunk.key_head = p.HV == p.H ? task.head : task.head / (p.HV / p.H);
  chunk.batch = p.packed ? 0 : task.n;
  chunk.token = sequence.begin;
  chunk.rows = static_cast<int>(sequence.length);
  return true;
}

/// What follows step 3, until out stands in shared memory.
__device__ inline void step_chunk(const BuilderTask& chunk, const ChainStates& states,
                                  OneChunkShared& shared, ChainState& S) {
  const int lane = chunk.lane;
  constexpr int kWarpsOfHalf = kHalf / kWarpValues;
  const int value = kWarpValues * (chunk.warp % kWarpsOfHalf);
  const std::uint32_t values =
      shared_address(shared.columns) + chunk.warp / kWarpsOfHalf * kHalfTileBytes;
  invert_halves(chunk, shared.lower);
  const SolveElements solve(chunk, shared.lower);
  wait_for_async_copies();
  __syncthreads();  // v is there, and all have read X
  solve.store(chunk, shared.beta, shared.lower);
  states.store_border(0, S);
  ChainTokens sums;
  load_new_values(values, value, lane, sums);
  multiply_state<true>(S, shared_address(shared.keys), lane, sums);
  ChainTokensOperand errors;
  round_sums(sums, errors);
  __syncthreads();  // M is there

  ChainTokens new_values;
  const std::uint32_t solve_address = shared_address(shared.lower);
  constexpr int kSolveBytes = kChunk * ChunkTile::kRowBytes;
  multiply_lower(errors, solve_address + kSolveBytes, lane, new_values);
  multiply_lower(errors, solve_address, lane, new_values);
  ChainTokensOperand N;
  round_sums(new_values, N);

  ChainTokens outputs;
  multiply_state(S, shared_address(shared.queries), lane, outputs);
  multiply_lower(N, shared_address(shared.output_matrix), lane, outputs);
  ChainTokensOperand O;
  round_sums(outputs, O);
  __syncwarp();  // its lanes have read v
  store_new_rows(O, values, value, lane);

  decay_state(shared.gamma, lane, S);
  update_state(N, shared_address(shared.k_remaining), lane, S);
}

/// Whole rows, 256 bytes of 16 lanes.
__device__ inline void store_out(const KdaPrefillProblem& p, const PrefillChainTask& task, int rows,
                                 const OneChunkShared& shared) {
  constexpr int kAtOnce = 8 * kBuilderThreads / kHeadDim;  ///< rows
  const int first = static_cast<int>(threadIdx.x) / 16;
  const int column = 8 * (static_cast<int>(threadIdx.x) % 16);
  bf16* const out = first_output(p, task, column);
  const auto* const values = reinterpret_cast<const std::byte*>(shared.columns);
#pragma unroll
  for (int row = first; row < kChunk; row += kAtOnce)
    if (row < rows)
      *reinterpret_cast<uint4*>(out + row * p.out_strides.token) =
          *reinterpret_cast<const uint4*>(values + HalvedTile::offset(row, column));
}

/// Grid: value heads along x, sequences along y and z (grid_over_requests).
__global__ __launch_bounds__(kBuilderThreads, kOneChunkCtas) void kda_prefill_one_chunk_kernel(
    const __grid_constant__ KdaPrefillProblem p) {
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<OneChunkShared*>(dynamic_shared);
  PrefillChainTask task;
  task.n = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  task.head = static_cast<int>(blockIdx.x);
  if (task.n >= p.N) return;
  pdl_wait();
  pdl_launch_dependents();
  BuilderTask chunk;
  if (!find_short_sequence(p, task, chunk)) return;
  const ChainStates states(p, task, kWarpValues * chunk.warp, chunk.lane);
  ChainState S;
  if (chunk.rows > 0) {
    states.prefetch_initial();
    prefetch_rows(p.v, p.v_strides, chunk, chunk.head);
    make_chunk_matrices(p, chunk, HeldFactors{&shared}, shared);
    fetch_rows(p.v, p.v_strides, chunk, chunk.head, shared.columns);
  }
  states.load_initial(S);
  if (chunk.rows > 0) {
    step_chunk(chunk, states, shared, S);
    __syncthreads();
    store_out(p, task, chunk.rows, shared);
  }
  states.store_final(S);
}

}  // namespace k3::cuda
