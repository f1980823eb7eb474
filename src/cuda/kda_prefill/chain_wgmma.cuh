// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/wgmma.cuh"
#include "cuda/kda_prefill/chain.cuh"

/// The chain with products of warpgroups (sm_90a). A CTA has kGroups warpgroups, each with 64 value
/// channels of a (sequence, value head), and behind them one that moves data. Two groups share all
/// factors but U, and the tensor cores.
///
///   warps                  role                     registers (with two groups)
///   0 .. 4 kGroups - 1     consumers                240
///   the next               loader: one thread       24
///   the last three         storers: rows of out     24
///
/// A group's products, in the order in which they are issued; none has to wait for one whose sums
/// it does not need, and what else there is to do is done while they run:
///
///   S += N K     O += N A^T      U' and gamma' read
///                                S done: S rounds and decays
///   N' = U' - S W'               O done: O rounds
///   O' = S Q'                    rounded O to shared memory
///                                N' done: N' rounds
///
/// The last turn issues N' and O' of a chunk that is not there: their sums are not read.
///
/// Shared memory: a ring for each of two parts of a chunk's factors; a chunk's outputs.
///
/// Barriers, for each place of a ring (0: W, U and gamma, 1: Q, A and K):
///   full      counts the bytes of its bulk copies
///   free      the consumers have read it
/// and for the outputs:
///   full_out  the consumers have written them
///   free_out  the storers have read them
/// Every thread arrives for itself: it costs nothing that can be measured, and race checkers can
/// follow it.
namespace k3::cuda {

inline constexpr int kWarpsOfGroup = 4;
inline constexpr int kConsumerRegisters = 240;
inline constexpr int kMoverRegisters = 24;

/// Places of each ring. A third brings nothing, and takes from the L1 through which states come.
inline constexpr int kWgmmaStages = 2;

template <int kGroups_>
struct WgmmaTraits {
  static constexpr int kGroups = kGroups_;
  /// Registers are dealt out evenly at first: 255 a thread for eight warps, 168 for twelve.
  static constexpr bool kMovesRegisters = kGroups > 1;
  static constexpr int kConsumerWarps = kWarpsOfGroup * kGroups;
  static constexpr int kFirstStorer = kConsumerWarps + 1;
  static constexpr int kStorers = kWarpsOfGroup - 1;
  static constexpr int kThreads = 32 * (kConsumerWarps + kWarpsOfGroup);
  /// Of a token's outputs, in elements: eight rows of 16 bytes lie in different banks.
  static constexpr int kOutPitch = kHalf * kGroups + 8;
};
using WgmmaHalf = WgmmaTraits<1>;   ///< half of a head
using WgmmaWhole = WgmmaTraits<2>;  ///< both halves

/// Every tile begins at a multiple of 1024 bytes.
template <class Traits>
struct alignas(1024) WgmmaChainShared {
  struct Part0 {
    bf16 minus_w[2][kHalfTile];
    bf16 u[Traits::kGroups][kHalfTile];
  };
  struct Part1 {
    bf16 q_decayed[2][kHalfTile];  ///< with the other two as in ChunkFactors
    bf16 output_matrix[kChunk * kChunk];
    bf16 k_remaining[2][kHalfTile];
  };
  Part0 part0[kWgmmaStages];
  Part1 part1[kWgmmaStages];
  float gamma[kWgmmaStages][kHeadDim];
  alignas(16) bf16 out[kChunk * Traits::kOutPitch];
  MBarrier full0[kWgmmaStages], free0[kWgmmaStages];
  MBarrier full1[kWgmmaStages], free1[kWgmmaStages];
  MBarrier full_out[1], free_out[1];
};

/// A chunk's place in a ring.
template <int kStages>
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1U;
  }
};

template <int kStages>
__device__ void wait_for(MBarrier (&full)[kStages], const RingPlace<kStages>& place) {
  mbarrier_wait(&full[place.stage], place.parity);
}

/// A wait in two parts: it asks early, so that nothing waits for the answer, mostly yes.
template <int kStages>
class Arrival {
 public:
  __device__ Arrival(MBarrier (&full)[kStages], const RingPlace<kStages>& place)
      : barrier_(&full[place.stage]),
        parity_(place.parity),
        is_here_(mbarrier_test(barrier_, parity_)) {}
  __device__ void wait() const {
    if (!is_here_) mbarrier_wait(barrier_, parity_);
  }

 private:
  MBarrier* barrier_;
  unsigned parity_;
  bool is_here_;
};

/// Each thread for itself.
template <int kStages>
__device__ void release(MBarrier (&free)[kStages], const RingPlace<kStages>& place) {
  mbarrier_arrive(&free[place.stage]);
}

/// The loader: waits until a place is free and announces what comes. Returns its barrier.
template <int kStages>
__device__ MBarrier* announce(MBarrier (&full)[kStages], MBarrier (&free)[kStages],
                              const RingPlace<kStages>& place, std::uint32_t bytes) {
  mbarrier_wait(&free[place.stage], place.parity ^ 1U);
  mbarrier_expect(&full[place.stage], bytes);
  return &full[place.stage];
}

/// One thread: all chunks, part by part, each as soon as its place is free.
template <class Traits>
__device__ void bring_factors(const ChunkFactors* from, int step, int num_chunks, int half,
                              WgmmaChainShared<Traits>& shared) {
  constexpr std::uint32_t kNewValueBytes = Traits::kGroups * kHalfTileBytes;
  constexpr std::uint32_t kStateBytes = 2 * kHalfTileBytes;
  constexpr std::uint32_t kPart1Bytes = 2 * kStateBytes + sizeof(ChunkFactors::output_matrix);
  static_assert(sizeof(typename WgmmaChainShared<Traits>::Part1) == kPart1Bytes);
  constexpr std::uint32_t kGammaBytes = sizeof(ChunkFactors::gamma);
  RingPlace<kWgmmaStages> place;
  for (int c = 0; c < num_chunks; ++c, from += step, place.advance()) {
    auto& part0 = shared.part0[place.stage];
    MBarrier* full =
        announce(shared.full0, shared.free0, place, kNewValueBytes + kStateBytes + kGammaBytes);
    bulk_load(part0.u, from->u[half], kNewValueBytes, full);
    bulk_load(part0.minus_w, from->minus_w, kStateBytes, full);
    bulk_load(shared.gamma[place.stage], from->gamma, kGammaBytes, full);
    full = announce(shared.full1, shared.free1, place, kPart1Bytes);
    bulk_load(&shared.part1[place.stage], from->q_decayed, kPart1Bytes, full);
  }
}

/// One of the storers: its share of a chunk's outputs whenever they are there. Whole rows, a warp
/// at a time 512 bytes: bulk copies of a row each would take 45 cycles a row.
template <class Traits>
__device__ void store_outputs(const KdaPrefillProblem& p, const PrefillChainTask& task, int half,
                              WgmmaChainShared<Traits>& shared, int storer, int lane) {
  constexpr int kPieces = Traits::kGroups * kHalf / 8;  // of a row, 16 bytes each
  constexpr int kRows = 32 / kPieces;
  const int first_row = kRows * storer + lane / kPieces;
  const int column = 8 * (lane % kPieces);
  bf16* out = first_output(p, task, kHalf * half) + column;
  RingPlace<1> place;
  for (int c = 0; c < task.sequence.num_chunks; ++c, out += kChunk * p.out_strides.token) {
    const int rows = rows_of_chunk(task.sequence, c);
    wait_for(shared.full_out, place);
    for (int row = first_row; row < rows; row += kRows * Traits::kStorers)
      *reinterpret_cast<uint4*>(out + row * p.out_strides.token) =
          *reinterpret_cast<const uint4*>(shared.out + row * Traits::kOutPitch + column);
    release(shared.free_out, place);
    place.advance();
  }
}

/// O^T to the storers, who wait for it; `value` is the warp's first channel of the CTA's.
template <class Traits>
__device__ void stage_outputs(const ChainTokensOperand& O, int value,
                              WgmmaChainShared<Traits>& shared, int lane) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const int row = 16 * t + lane % 8 + 8 * (lane / 16);
    store_matrices_transposed(
        O[t].a, shared_address(shared.out + row * Traits::kOutPitch + value + 8 * (lane / 8 % 2)));
  }
}

/// sums = S^T times the transpose of a [64 tokens x 128 keys] tile, or that added.
template <bool kKeep>
__device__ void issue_state_product(const ChainStateOperand& S, const bf16 (&tile)[2][kHalfTile],
                                    ChainTokens& sums) {
  hold(sums);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const std::uint64_t b = describe_columns(shared_address(tile[k / kHalf]), k % kHalf);
    if (kKeep || k > 0)
      issue_by_columns<true>(sums, S[k / 16], b);
    else
      issue_by_columns<false>(sums, S[k / 16], b);
  }
  wgmma_commit();
}

/// S += N K
__device__ inline void issue_state_update(const ChainTokensOperand& N,
                                          const bf16 (&tile)[2][kHalfTile], ChainState& S) {
#pragma unroll
  for (int j = 0; j < kChunk; j += 16)
    issue_by_rows<true>(S, N[j / 16], describe_rows(shared_address(tile[0]), j, kHalfTileBytes));
  wgmma_commit();
}

/// O += N A^T
__device__ inline void issue_output(const ChainTokensOperand& N,
                                    const bf16 (&tile)[kChunk * kChunk], ChainTokens& O) {
#pragma unroll
  for (int j = 0; j < kChunk; j += 16)
    issue_by_columns<true>(O, N[j / 16], describe_columns(shared_address(tile), j));
  wgmma_commit();
}

/// Sums whose group is done become an operand.
template <int kOperands>
__device__ void round_held(FragmentC (&sums)[2 * kOperands], FragmentA (&operands)[kOperands]) {
  hold(sums);
  round_sums(sums, operands);
  hold(operands);
}

/// gamma of the thread's elements of S^T.
using StateDecay = float2[kHeadDim / 8];

__device__ inline void load_decay(const float* gamma, int lane, StateDecay& decay) {
#pragma unroll
  for (int tile = 0; tile < kHeadDim / 8; ++tile)
    decay[tile] = *reinterpret_cast<const float2*>(gamma + 8 * tile + 2 * (lane % 4));
}

/// S becomes an operand, and then S diag(gamma).
__device__ inline void round_and_decay(const StateDecay& decay, ChainState& S,
                                       ChainStateOperand& operand) {
  hold(S);
  round_sums(S, operand);
#pragma unroll
  for (int tile = 0; tile < kHeadDim / 8; ++tile)
#pragma unroll
    for (int c = 0; c < 4; ++c) S[tile].c[c] *= c % 2 == 0 ? decay[tile].x : decay[tile].y;
  hold(operand);
  hold(S);
}

/// A consumer's warp.
template <class Traits>
__device__ void run_wgmma_chain(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                int first_value, WgmmaChainShared<Traits>& shared, int warp,
                                int lane) {
  const int group = warp / kWarpsOfGroup;
  const int warp_value = kWarpValues * (warp % kWarpsOfGroup);
  const ChainStates states(p, task, first_value, lane);
  const int num_chunks = task.sequence.num_chunks;
  ChainState S;
  states.load_initial(S);
  if (num_chunks == 0) {
    states.store_final(S);
    return;
  }
  ChainTokens N;
  ChainTokens O;
  ChainStateOperand rounded_S;
  ChainTokensOperand rounded_N;
  ChainTokensOperand rounded_O;
  StateDecay decay;
  RingPlace<kWgmmaStages> now;
  const auto load_part0 = [&](const RingPlace<kWgmmaStages>& place) {
    load_new_values(shared_address(shared.part0[place.stage].u[group]), warp_value, lane, N);
    load_decay(shared.gamma[place.stage], lane, decay);
  };

  states.store_border(0, S);
  wait_for(shared.full0, now);
  load_part0(now);
  round_and_decay(decay, S, rounded_S);
  issue_state_product<true>(rounded_S, shared.part0[0].minus_w, N);
  wait_for(shared.full1, now);
  issue_state_product<false>(rounded_S, shared.part1[0].q_decayed, O);
  wgmma_wait<1>();
  release(shared.free0, now);
  round_held(N, rounded_N);

  RingPlace<1> place_out;
#pragma unroll 1
  for (int c = 0; c < num_chunks; ++c) {
    const bool more = c + 1 < num_chunks;
    RingPlace<kWgmmaStages> next = now;
    next.advance();
    const Arrival out_is_free(shared.free_out, {0, place_out.parity ^ 1U});
    const Arrival part0(shared.full0, next);
    hold(S);
    hold(O);
    wgmma_fence();
    issue_state_update(rounded_N, shared.part1[now.stage].k_remaining, S);
    issue_output(rounded_N, shared.part1[now.stage].output_matrix, O);
    if (more) part0.wait();
    load_part0(next);
    wgmma_wait<1>();  // S, and the first product of O
    hold(S);
    if (more) states.store_border(c + 1, S);
    if (more) round_and_decay(decay, S, rounded_S);
    const Arrival part1(shared.full1, next);
    issue_state_product<true>(rounded_S, shared.part0[next.stage].minus_w, N);
    wgmma_wait<1>();  // O
    release(shared.free1, now);
    round_held(O, rounded_O);
    if (more) part1.wait();
    issue_state_product<false>(rounded_S, shared.part1[next.stage].q_decayed, O);
    out_is_free.wait();
    stage_outputs(rounded_O, kWarpValues * warp, shared, lane);
    release(shared.full_out, place_out);
    place_out.advance();
    wgmma_wait<1>();  // N
    if (more) release(shared.free0, next);
    round_held(N, rounded_N);
    now = next;
  }
  wgmma_wait<0>();
  hold(O);
  states.store_final(S);
}

template <class Traits>
__global__ __launch_bounds__(Traits::kThreads, 1) void kda_prefill_wgmma_chain_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
#ifdef K3_HAS_WGMMA
  extern __shared__ __align__(1024) std::byte wgmma_shared[];
  auto& shared = *reinterpret_cast<WgmmaChainShared<Traits>*>(wgmma_shared);
  // The same in all lanes of a warp, which the compiler cannot see by itself.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    const auto init = [](auto& full, int writers, auto& free, int readers) {
      for (MBarrier& barrier : full) mbarrier_init(&barrier, writers);
      for (MBarrier& barrier : free) mbarrier_init(&barrier, readers);
    };
    init(shared.full0, 1, shared.free0, 32 * Traits::kConsumerWarps);
    init(shared.full1, 1, shared.free1, 32 * Traits::kConsumerWarps);
    init(shared.full_out, 32 * Traits::kConsumerWarps, shared.free_out, 32 * Traits::kStorers);
  }
  publish_to_bulk_copies();
  __syncthreads();
  pdl_wait();
  pdl_launch_dependents();

  const auto index = static_cast<int>(blockIdx.x);
  const int half = Traits::kGroups == 1 ? index % 2 : 0;
  const PrefillChainTask task = find_task(p, plan, Traits::kGroups == 1 ? index / 2 : index);
  if (warp >= Traits::kConsumerWarps) {
    if constexpr (Traits::kMovesRegisters) lower_registers<kMoverRegisters>();
    if (warp >= Traits::kFirstStorer)
      store_outputs(p, task, half, shared, warp - Traits::kFirstStorer, lane);
    else if (lane == 0)
      bring_factors(first_factors(p, plan, task), p.HV, task.sequence.num_chunks, half, shared);
    return;
  }
  if constexpr (Traits::kMovesRegisters) raise_registers<kConsumerRegisters>();
  run_wgmma_chain(p, task, kHalf * half + kWarpValues * warp, shared, warp, lane);
#endif
}

}  // namespace k3::cuda
