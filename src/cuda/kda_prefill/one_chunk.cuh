// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda_prefill/factors.cuh"
#include "cuda/kda_prefill/warp_products.cuh"

/// Sequences of at most one chunk, in one pass: no factor goes through memory. A CTA of eight warps
/// takes one (sequence, value head) after the other, and a warp 16 of its value channels. After the
/// steps of factors.cuh
///
///   D = v - k exp(G) S0     N = M D     O = q exp(G) S0 + A N
///   S = diag(gamma) S0 + (k exp(G_last - G))^T N
///
/// transposed, as in chain.cuh: sums become operands in the registers where they are. The chain's W
/// and U do not appear: what depends on S0 is there before M is needed.
///
///   q and k arrive; 1 .. 3
///   row operands become -k exp(G) and q exp(G) where they stand
///   4               S0 on its way into registers, v into shared memory; one warp finds the next
///                   task, whose inputs are asked for into the L2
///   D; N, O and S   the next q and k on their way
///   rows of out and S to memory
///
/// In what S meets, keys have the order of ChainStates<4>, so that states are read and written 16
/// bytes at a time.
///
/// Shared memory: OneChunkShared. Barriers: __syncthreads only.
namespace k3::cuda {

inline constexpr int kOneChunkCtas = 2;  ///< on an SM
inline constexpr int kKeyRun = 4;        ///< of ChainStates

/// From step 4 on v stands in columns, and in the end out; M, in two parts, in lower. Two of them
/// fit on an SM, and one where a CTA may have no more than 99 KB.
struct OneChunkShared : ChunkTiles {
  bf16 k_remaining[kChunk * kHeadDim];
  bf16 output_matrix[kChunk * kChunk];
  float gamma[kHeadDim];
  PrefillChainTask tasks[2];  ///< in turns; none where n is negative
  int turn;                   ///< whose it is, until N is made; then the next one's
  /// Zero. Threads are numbered from here, step by step anew: what hangs on a thread's number would
  /// otherwise be kept from step to step and from task to task, and there are no registers for it.
  unsigned first_thread;

  __device__ PrefillChainTask& in_turn() { return tasks[turn]; }
  __device__ PrefillChainTask& out_of_turn() { return tasks[turn ^ 1]; }
};

/// Where the thread's elements of S's operands stand: a quad's pairs 16 bytes apart, for the two
/// tiles of ChainStates<4>. A warp's first pairs lie in different banks, and so do its second ones.
class KeyPairs {
 public:
  __device__ explicit KeyPairs(const BuilderTask& task) {
    const int group = task.lane / 4;  // of 16 keys
    const int is_upper = task.lane / 16;
    first_ = HalvedTile::offset(task.first_row, 16 * group + 8 * is_upper + 2 * (task.lane % 4));
  }

  __device__ void put(void* tile, int i, Bf16Quad quad) const {
    const int at = (first_ ^ i << 4) + i * SwizzledTile<kHalf>::kRowBytes;
    *reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(tile) + at) = quad.x;
    *reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(tile) + (at ^ 16)) = quad.y;
  }

 private:
  int first_;
};

/// Factors that stay in shared memory, with keys in the order of ChainStates<4>. The keys of a pair
/// have changed places in q exp(G): S, rounded for D, would otherwise be kept for O, too, and there
/// are no registers to keep it.
struct HeldFactors {
  static constexpr bool kClears = false;
  KeyPairs places;

  __device__ static OneChunkShared& all(ChunkTiles& shared) {
    return static_cast<OneChunkShared&>(shared);
  }
  __device__ bf16* output_matrix(ChunkTiles& shared) const { return all(shared).output_matrix; }
  __device__ float* gamma(ChunkTiles& shared) const { return all(shared).gamma; }
  __device__ void put_remaining(const ThreadQuads&, int i, Bf16Quad key, ChunkTiles& shared) const {
    places.put(all(shared).k_remaining, i, key);
  }
  __device__ void put_start(const BuilderTask&, float4, ChunkTiles&) const {}
  __device__ void put_query(const ThreadQuads&, int, Bf16Quad, Bf16Quad) const {}
  __device__ void put_decayed(const ThreadQuads&, int i, Bf16Quad key, Bf16Quad query,
                              ChunkTiles& shared) const {
    places.put(shared.keys, i, minus(key));
    places.put(shared.queries, i, swapped(query));
  }
  /// A product with a power of two is exact.
  __device__ void after_matrices(const BuilderTask& task, Bf16Quad start,
                                 ChunkTiles& shared) const {
    const ThreadQuads at(task);
    Bf16Quad keys[kRows];
    Bf16Quad queries[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      keys[i] = multiply_pairs(at.of(shared.keys, i), minus(start));
      queries[i] = swapped(multiply_pairs(at.of(shared.queries, i), start));
    }
    __syncwarp();  // its lanes have read the rows
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      places.put(shared.keys, i, keys[i]);
      places.put(shared.queries, i, queries[i]);
    }
  }

 private:
  __device__ static Bf16Quad minus(Bf16Quad x) {
    constexpr std::uint32_t kSigns = 0x80008000U;
    return {x.x ^ kSigns, x.y ^ kSigns};
  }
  __device__ static Bf16Quad swapped(Bf16Quad x) {
    return {__byte_perm(x.x, 0, 0x1032), __byte_perm(x.y, 0, 0x1032)};
  }
};

/// The first task of the CTA from `index` on, gridDim.x apart, whose sequence has no more than a
/// chunk; a whole warp, which looks at 32 at once.
__device__ inline void find_short_task(const KdaPrefillProblem& p, unsigned index,
                                       PrefillChainTask& to) {
  const auto heads = static_cast<unsigned>(p.HV);
  const unsigned end = static_cast<unsigned>(p.N) * heads;
  const unsigned lane = threadIdx.x % 32;
  PrefillChainTask task;
  task.n = -1;
  unsigned found = 0;
  for (; index < end && found == 0; index += 32 * gridDim.x) {
    const unsigned own = index + lane * gridDim.x;
    const bool is_short =
        own < end && (!p.packed || sequence_length(p, static_cast<int>(own / heads)) <= kChunk);
    found = __ballot_sync(kFullWarp, is_short);
    if (found != 0) index += (__ffs(static_cast<int>(found)) - 1 - 32) * gridDim.x;
  }
  if (found != 0) {
    task.n = static_cast<int>(index / heads);
    task.head = static_cast<int>(index % heads);
    find_states(p, task);
    PrefillSequence& sequence = task.sequence;
    sequence.length = p.packed ? sequence_length(p, task.n) : p.T;
    sequence.begin = p.packed ? sequence_begin(p, task.n) : 0;
    sequence.num_chunks = sequence.length > 0 ? 1 : 0;
    if (p.chunk_states != nullptr) sequence.first_chunk = chunks_before(p, task.n);
  }
  if (lane == 0) to = task;
}

/// The task's tokens.
__device__ inline BuilderTask chunk_of(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                       const OneChunkShared& shared) {
  BuilderTask chunk{.thread = shared.first_thread + threadIdx.x};
  chunk.head = task.head;
  chunk.key_head = p.HV == p.H ? task.head : task.head / (p.HV / p.H);
  chunk.batch = p.packed ? 0 : task.n;
  chunk.token = task.sequence.begin;
  chunk.rows = static_cast<int>(task.sequence.length);
  return chunk;
}

/// Asks for half of the lines of a tensor's rows, `kBytes` each, into the L2; 128 threads.
template <int kBytes>
__device__ void prefetch_rows(const void* from, const TokenStrides& strides,
                              const BuilderTask& chunk, int head) {
  constexpr int kLine = 128;
  const int row = static_cast<int>(chunk.thread % 128 / 2);
  if (row >= chunk.rows) return;
  const auto* const at =
      static_cast<const std::byte*>(from) +
      (chunk.batch * strides.batch + (chunk.token + row) * strides.token + head * strides.head) *
          (kBytes / kHeadDim) +
      kLine * (chunk.thread % 2);
#pragma unroll
  for (int line = 0; line < kBytes; line += 2 * kLine) prefetch_l2(at + line);
}

/// Asks for what a task reads into the L2.
__device__ inline void prefetch_task(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                     const OneChunkShared& shared) {
  if (task.n < 0) return;
  const BuilderTask chunk = chunk_of(p, task, shared);
  prefetch_initial(p, task, chunk.thread);
  if (chunk.thread < kBuilderThreads / 2) {
    prefetch_rows<256>(p.q, p.q_strides, chunk, chunk.key_head);
    prefetch_rows<256>(p.v, p.v_strides, chunk, chunk.head);
  } else {
    prefetch_rows<256>(p.k, p.k_strides, chunk, chunk.key_head);
    if (p.g_dtype == DType::kF32)
      prefetch_rows<512>(p.g, p.g_strides, chunk, chunk.head);
    else
      prefetch_rows<256>(p.g, p.g_strides, chunk, chunk.head);
  }
}

/// From the inversion on.
__device__ inline void step_chunk(const BuilderTask& chunk, const ChainStates<kKeyRun>& states,
                                  OneChunkShared& shared, ChainState& S) {
  constexpr int kWarpsOfHalf = kHalf / kWarpValues;
  const int lane = chunk.lane;
  const int value = kWarpValues * (chunk.warp % kWarpsOfHalf);
  const std::uint32_t values =
      shared_address(shared.columns) + chunk.warp / kWarpsOfHalf * kHalfTileBytes;
  const SolveElements solve(chunk, shared.lower);
  wait_for_async_copies();
  __syncthreads();  // v is there, and all have read X
  solve.store(chunk, shared.beta, shared.lower);
  states.store_border(0, S);
  ChainTokens sums;
  load_new_values(values, value, lane, sums);
  multiply_state(S, shared_address(shared.keys), lane, sums);
  ChainTokensOperand errors;
  round_sums(sums, errors);
  __syncthreads();  // M is there

  const std::uint32_t solve_address = shared_address(shared.lower);
  constexpr int kSolveBytes = kChunk * ChunkTile::kRowBytes;
  ChainTokens new_values;
  multiply_lower(errors, solve_address + kSolveBytes, lane, new_values);
  multiply_lower(errors, solve_address, lane, new_values);
  ChainTokensOperand N;
  round_sums(new_values, N);

  ChainTokens outputs;
  multiply_state<true>(S, shared_address(shared.queries), lane, outputs);
  multiply_lower(N, shared_address(shared.output_matrix), lane, outputs);
  ChainTokensOperand O;
  round_sums(outputs, O);
  __syncwarp();  // its lanes have read v
  store_new_rows(O, values, value, lane);

  decay_state<kKeyRun>(shared.gamma, lane, S);
  update_state(N, shared_address(shared.k_remaining), lane, S);
}

/// Whole rows, 256 bytes of 16 lanes.
__device__ inline void store_out(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                 const BuilderTask& chunk, const OneChunkShared& shared) {
  constexpr int kAtOnce = 8 * kBuilderThreads / kHeadDim;  ///< rows
  const int first = static_cast<int>(chunk.thread / 16);
  const int column = static_cast<int>(8 * (chunk.thread % 16));
  bf16* const out = first_output(p, task, column);
  const auto* const values = reinterpret_cast<const std::byte*>(shared.columns);
#pragma unroll
  for (int row = first; row < kChunk; row += kAtOnce)
    if (row < chunk.rows)
      *reinterpret_cast<uint4*>(out + row * p.out_strides.token) =
          *reinterpret_cast<const uint4*>(values + HalvedTile::offset(row, column));
}

/// CTA c has the tasks c, c + gridDim.x, ... of all (sequence, value head) that are short.
__global__ __launch_bounds__(kBuilderThreads, kOneChunkCtas) void kda_prefill_one_chunk_kernel(
    const __grid_constant__ KdaPrefillProblem p) {
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<OneChunkShared*>(dynamic_shared);
  constexpr int kScout = kBuilderWarps - 1;  ///< has little to do in step 4
  const auto states = [&](const PrefillChainTask& task, const BuilderTask& chunk) {
    return ChainStates<kKeyRun>(p, task, kWarpValues * chunk.warp, chunk.lane);
  };
  if (threadIdx.x == 0) {
    shared.first_thread = 0;
    shared.turn = 0;
  }
  pdl_wait();
  pdl_launch_dependents();
  if (threadIdx.x / 32 == kScout) find_short_task(p, blockIdx.x, shared.tasks[0]);
  __syncthreads();
  prefetch_task(p, shared.in_turn(), shared);
  fetch_keys_and_queries(p, chunk_of(p, shared.in_turn(), shared), shared);
  while (shared.in_turn().n >= 0) {
    const bool has_rows = shared.in_turn().sequence.length > 0;
    if (has_rows) {
      const BuilderTask chunk = chunk_of(p, shared.in_turn(), shared);
      make_chunk_matrices(p, chunk, HeldFactors{KeyPairs(chunk)}, shared);
    } else {
      wait_for_async_copies();  // the next ones have the same places
      __syncthreads();          // the last task is no longer read
    }
    ChainState S;
    {
      const PrefillChainTask& task = shared.in_turn();
      const BuilderTask chunk = chunk_of(p, task, shared);
      if (has_rows) fetch_rows(p.v, p.v_strides, chunk, chunk.head, shared.columns);
      if (chunk.warp == kScout)
        find_short_task(p, static_cast<unsigned>(task.n * p.HV + task.head) + gridDim.x,
                        shared.out_of_turn());
      states(task, chunk).load_initial(S);
      if (has_rows) invert_halves(chunk, shared.lower);
    }
    if (!has_rows) __syncthreads();
    prefetch_task(p, shared.out_of_turn(), shared);
    if (has_rows) {
      const BuilderTask chunk = chunk_of(p, shared.in_turn(), shared);
      step_chunk(chunk, states(shared.in_turn(), chunk), shared, S);
    } else {
      __syncthreads();
    }
    if (threadIdx.x == 0) shared.turn ^= 1;
    __syncthreads();  // out is there, q and k are no longer read
    if (shared.in_turn().n >= 0)
      fetch_keys_and_queries(p, chunk_of(p, shared.in_turn(), shared), shared);
    const PrefillChainTask& task = shared.out_of_turn();
    const BuilderTask chunk = chunk_of(p, task, shared);
    store_out(p, task, chunk, shared);
    states(task, chunk).store_final(S);
  }
}

}  // namespace k3::cuda
