// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mma.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda_prefill/plan.cuh"

/// The serial half of a prefill takes value channels of a (sequence, value head) from the first
/// chunk to the last. Here is what its two forms share (chain_mma_sync.cuh, chain_wgmma.cuh).
///
/// A warp has 16 value channels. S^T [16 v x 128 k] stays in fp32 registers; rounded copies of sums
/// are the next product's left operand, so nothing of it passes through memory. Per chunk, all
/// transposed (rows are value channels):
///
///   N = U^T - S^T W^T        O = S^T Q^T + N A^T        S = S diag(gamma) + N K
///
/// with W = M k exp(G), Q, K the decayed queries and remaining keys, A the output matrix.
namespace k3::cuda {

inline constexpr int kWarpValues = 16;

/// What a CTA works on.
struct PrefillChainTask {
  int n = 0;
  int head = 0;
  int tracked = -1;       ///< after so many chunks
  std::int64_t slot = 0;  ///< of the states; negative: none
  PrefillSequence sequence;
};

/// Sets what the task's sequence says of its states.
__device__ inline void find_states(const KdaPrefillProblem& p, PrefillChainTask& task) {
  task.slot = p.state_indices != nullptr ? p.state_indices[task.n] : task.n;
  if (task.slot >= p.state_rows) task.slot = -1;
  if (p.tracked_states != nullptr) task.tracked = p.track_chunk_idx[task.n];
}

/// Value heads of all sequences that the chain takes.
__device__ inline unsigned num_heads_of_all(const KdaPrefillProblem& p, const PrefillPlan& plan) {
  const int sequences = plan.longest != nullptr ? *plan.num_long : p.N;
  return static_cast<unsigned>(sequences) * static_cast<unsigned>(p.HV);
}

/// Runs `run(index)` for the CTA's share of `count` tasks, which are sorted by length. Mostly that
/// is one. Where there are rounds, every second one counts backwards: who had the longest task of
/// one has the shortest of the next.
template <class Run>
__device__ void for_each_task(unsigned count, const Run& run) {
  for (unsigned round = 0;; ++round) {
    const unsigned place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const unsigned index = round * gridDim.x + place;
    if (index >= count) return;
    run(index);
  }
}

/// Longest sequences first.
__device__ inline PrefillChainTask find_task(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                             unsigned index) {
  const auto heads = static_cast<unsigned>(p.HV);
  PrefillChainTask task;
  task.head = static_cast<int>(index % heads);
  task.n = static_cast<int>(index / heads);
  if (plan.longest != nullptr) task.n = plan.longest[task.n];
  task.sequence = find_sequence(p, plan, task.n);
  find_states(p, task);
  return task;
}

/// The factors of a chain's first chunk; those of the next stand HV further.
__device__ inline const ChunkFactors* first_factors(const KdaPrefillProblem& p,
                                                    const PrefillPlan& plan,
                                                    const PrefillChainTask& task) {
  return plan.factors + task.sequence.first_slot * p.HV + task.head;
}

/// S^T of a warp: tile n has keys 8 n .. + 7.
using ChainState = FragmentC[kHeadDim / 8];
/// N and O of a chunk: tile n has tokens 8 n .. + 7.
using ChainTokens = FragmentC[kChunk / 8];
/// The same, rounded: operand n has keys or tokens 16 n .. + 15.
using ChainStateOperand = FragmentA[kHeadDim / 16];
using ChainTokensOperand = FragmentA[kChunk / 16];

/// The tile of S^T with a thread's first or second pair of the keys 4 kRun run .. + 4 kRun - 1; see
/// ChainStates.
template <int kRun>
__device__ constexpr int chain_tile(int run, int pair) {
  if constexpr (kRun == 2) return run;
  return 2 * run + (16 * run < kHalf ? pair : 1 - pair);
}

template <int kOperands>
__device__ void round_sums(const FragmentC (&sums)[2 * kOperands],
                           FragmentA (&operands)[kOperands]) {
#pragma unroll
  for (int i = 0; i < kOperands; ++i) operands[i] = as_operand(sums[2 * i], sums[2 * i + 1]);
}

/// Asks for the whole state of a task's head into the L2; all threads of the CTA.
__device__ inline void prefetch_initial(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                        unsigned thread) {
  if (p.initial_state == nullptr || task.slot < 0) return;
  constexpr int kLine = 128;
  const int size = p.state_dtype == DType::kF32 ? 4 : 2;
  const auto* const first =
      static_cast<const std::byte*>(p.initial_state) +
      (task.slot * p.initial_slot_stride + task.head * std::int64_t{kHeadElements}) * size;
  for (int at = kLine * static_cast<int>(thread); at < kHeadElements * size;
       at += kLine * static_cast<int>(blockDim.x))
    prefetch_l2(first + at);
}

/// The states that a chain reads and leaves; a warp's part of them, from first_value on.
/// @tparam kRun  How many neighbouring keys a thread has in a row. With 2 the keys of tile n are
///     8 n .. + 7. With 4 those of the tiles 2 n and 2 n + 1 are 16 n .. + 15: a thread's first two
///     are in the first tile, its others in the second; from key 64 on, the other way round.
template <int kRun>
class ChainStates {
 public:
  __device__ ChainStates(const KdaPrefillProblem& p, const PrefillChainTask& task, int first_value,
                         int lane)
      : p_(p),
        task_(task),
        is_vk_(p.state_layout == StateLayout::kVK),
        offset_((first_value + lane / 4) * value_stride() + kRun * (lane % 4) * key_stride()) {}

  /// Zeros where there is none.
  __device__ void load_initial(ChainState& S) const {
    if (p_.initial_state == nullptr || task_.slot < 0) return;
    const std::int64_t at = task_.slot * p_.initial_slot_stride + offset();
    if (p_.state_dtype == DType::kF32)
      visit(static_cast<const float*>(p_.initial_state) + at, S, Load());
    else
      visit(static_cast<const bf16*>(p_.initial_state) + at, S, Load());
  }

  /// After `chunk` chunks of 64 tokens.
  __device__ void store_border(int chunk, ChainState& S) const {
    const std::int64_t row = task_.sequence.first_chunk + chunk;
    if (p_.chunk_states != nullptr && chunk < task_.sequence.num_chunks && row < p_.chunk_rows)
      store(p_.chunk_states, p_.chunk_dtype, row * p_.chunk_row_stride, S);
    if (chunk == task_.tracked)
      store(p_.tracked_states, DType::kF32, task_.n * p_.tracked_row_stride, S);
  }

  __device__ void store_final(ChainState& S) const {
    if (task_.sequence.length % kChunk == 0) store_border(task_.sequence.num_chunks, S);
    if (p_.final_state != nullptr && task_.slot >= 0)
      store(p_.final_state, p_.state_dtype, task_.slot * p_.final_slot_stride, S);
  }

 private:
  static_assert(kRun == 2 || kRun == 4);
  using Run = float[kRun];

  struct Load {
    __device__ void operator()(const float* at, float& x) const { x = *at; }
    __device__ void operator()(const bf16* at, float& x) const { x = widen(*at); }
    __device__ void operator()(const float* at, Run& x) const {
      if constexpr (kRun == 2) {
        const float2 pair = *reinterpret_cast<const float2*>(at);
        x[0] = pair.x;
        x[1] = pair.y;
      } else {
        put(*reinterpret_cast<const float4*>(at), x);
      }
    }
    __device__ void operator()(const bf16* at, Run& x) const {
      if constexpr (kRun == 2) {
        const float2 pair = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(at));
        x[0] = pair.x;
        x[1] = pair.y;
      } else {
        put(widen(*reinterpret_cast<const Bf16Quad*>(at)), x);
      }
    }

   private:
    __device__ static void put(float4 from, Run& x) {
      x[0] = from.x;
      x[1] = from.y;
      x[2] = from.z;
      x[3] = from.w;
    }
  };
  struct Store {
    __device__ void operator()(float* at, float x) const { *at = x; }
    __device__ void operator()(bf16* at, float x) const { *at = narrow(x); }
    __device__ void operator()(float* at, Run& x) const {
      if constexpr (kRun == 2)
        *reinterpret_cast<float2*>(at) = {x[0], x[1]};
      else
        *reinterpret_cast<float4*>(at) = {x[0], x[1], x[2], x[3]};
    }
    __device__ void operator()(bf16* at, Run& x) const {
      if constexpr (kRun == 2)
        *reinterpret_cast<std::uint32_t*>(at) = pack_bf16(x[0], x[1]);
      else
        *reinterpret_cast<Bf16Quad*>(at) = narrow(float4{x[0], x[1], x[2], x[3]});
    }
  };

  [[nodiscard]] __device__ int value_stride() const { return is_vk_ ? kHeadDim : 1; }
  [[nodiscard]] __device__ int key_stride() const { return is_vk_ ? 1 : kHeadDim; }

  /// Element `i` of a run in the first or second eight of the warp's value channels.
  __device__ static float& element(ChainState& S, int run, int half, int i) {
    return S[chain_tile<kRun>(run, i / 2)].c[2 * half + i % 2];
  }

  /// Of the thread's first element in a row of states.
  [[nodiscard]] __device__ std::int64_t offset() const {
    return task_.head * std::int64_t{kHeadElements} + offset_;
  }

  /// Runs `move` over the thread's elements of S^T, the first of which stands at `first`: a run at
  /// once where it is one in memory, too, and its alignment allows it.
  template <class T, class Move>
  __device__ void visit(T* first, ChainState& S, const Move& move) const {
    constexpr int kRuns = kHeadDim / (4 * kRun);
    if (is_vk_ && reinterpret_cast<std::uintptr_t>(first) % (kRun * sizeof(T)) == 0) {
#pragma unroll
      for (int run = 0; run < kRuns; ++run)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Run x;
#pragma unroll
          for (int i = 0; i < kRun; ++i) x[i] = element(S, run, half, i);
          move(first + 4 * kRun * run + half * 8 * kHeadDim, x);
#pragma unroll
          for (int i = 0; i < kRun; ++i) element(S, run, half, i) = x[i];
        }
      return;
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kRun; ++i)
          move(first + (4 * kRun * run + i) * key_stride() + half * 8 * value_stride(),
               element(S, run, half, i));
  }

  __device__ void store(void* to, DType dtype, std::int64_t row, ChainState& S) const {
    if (dtype == DType::kF32)
      visit(static_cast<float*>(to) + row + offset(), S, Store());
    else
      visit(static_cast<bf16*>(to) + row + offset(), S, Store());
  }

  const KdaPrefillProblem& p_;
  const PrefillChainTask& task_;
  bool is_vk_;
  int offset_;  ///< of the thread's first element in a head's state
};

/// U^T, the start of N; `tile` has the 64 value channels around the warp's, from `value` on.
__device__ inline void load_new_values(std::uint32_t tile, int value, int lane, ChainTokens& N) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    std::uint32_t u[4];
    load_matrices_transposed(u,
                             tile + SwizzledTile<kHalf>::offset(16 * t + lane % 8 + 8 * (lane / 16),
                                                                value + 8 * (lane / 8 % 2)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_bf16(u[i]);
      N[2 * t + i / 2].c[2 * (i % 2)] = pair.x;
      N[2 * t + i / 2].c[2 * (i % 2) + 1] = pair.y;
    }
  }
}

/// Columns of outputs, rounded, to where load_new_values reads.
__device__ inline void store_new_rows(const ChainTokensOperand& O, std::uint32_t tile, int value,
                                      int lane) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t)
    store_matrices_transposed(
        O[t].a, tile + SwizzledTile<kHalf>::offset(16 * t + lane % 8 + 8 * (lane / 16),
                                                   value + 8 * (lane / 8 % 2)));
}

/// Where the rows of out begin that have these value channels.
__device__ inline bf16* first_output(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                     int first_value) {
  return p.out + (p.packed ? 0 : task.n * p.out_strides.batch) +
         task.sequence.begin * p.out_strides.token + task.head * p.out_strides.head + first_value;
}

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

/// How many rows of chunk `c` exist.
__device__ inline int rows_of_chunk(const PrefillSequence& sequence, int c) {
  return static_cast<int>(min(sequence.length - std::int64_t{c} * kChunk, std::int64_t{kChunk}));
}

}  // namespace k3::cuda
