// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mma.cuh"
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
  PrefillSequence sequence;
};

/// Longest sequences first.
__device__ inline PrefillChainTask find_task(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                             int index) {
  PrefillChainTask task;
  task.head = index % p.HV;
  task.n = index / p.HV;
  if (plan.longest != nullptr) task.n = plan.longest[task.n];
  task.sequence = find_sequence(p, plan, task.n);
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

template <int kOperands>
__device__ void round_sums(const FragmentC (&sums)[2 * kOperands],
                           FragmentA (&operands)[kOperands]) {
#pragma unroll
  for (int i = 0; i < kOperands; ++i) operands[i] = as_operand(sums[2 * i], sums[2 * i + 1]);
}

/// The states that a chain reads and leaves; a warp's part of them, from first_value on.
class ChainStates {
 public:
  __device__ ChainStates(const KdaPrefillProblem& p, const PrefillChainTask& task, int first_value,
                         int lane)
      : p_(p),
        task_(task),
        is_vk_(p.state_layout == StateLayout::kVK),
        offset_(task.head * std::int64_t{kHeadElements} +
                (first_value + lane / 4) * value_stride() + 2 * (lane % 4) * key_stride()),
        slot_(p.state_indices != nullptr ? p.state_indices[task.n] : task.n),
        tracked_(p.tracked_states != nullptr ? p.track_chunk_idx[task.n] : -1) {
    if (slot_ >= p.state_rows) slot_ = -1;
  }

  /// Zeros where there is none.
  __device__ void load_initial(ChainState& S) const {
    if (p_.initial_state == nullptr || slot_ < 0) return;
    const std::int64_t at = slot_ * p_.initial_slot_stride + offset_;
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
    if (chunk == tracked_)
      store(p_.tracked_states, DType::kF32, task_.n * p_.tracked_row_stride, S);
  }

  __device__ void store_final(ChainState& S) const {
    if (task_.sequence.length % kChunk == 0) store_border(task_.sequence.num_chunks, S);
    if (p_.final_state != nullptr && slot_ >= 0)
      store(p_.final_state, p_.state_dtype, slot_ * p_.final_slot_stride, S);
  }

 private:
  struct Load {
    __device__ void operator()(const float* at, float& x) const { x = *at; }
    __device__ void operator()(const bf16* at, float& x) const { x = widen(*at); }
    __device__ void operator()(const float* at, float& x, float& y) const {
      const float2 pair = *reinterpret_cast<const float2*>(at);
      x = pair.x;
      y = pair.y;
    }
    __device__ void operator()(const bf16* at, float& x, float& y) const {
      const float2 pair = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(at));
      x = pair.x;
      y = pair.y;
    }
  };
  struct Store {
    __device__ void operator()(float* at, float x) const { *at = x; }
    __device__ void operator()(bf16* at, float x) const { *at = narrow(x); }
    __device__ void operator()(float* at, float x, float y) const {
      *reinterpret_cast<float2*>(at) = {x, y};
    }
    __device__ void operator()(bf16* at, float x, float y) const {
      *reinterpret_cast<std::uint32_t*>(at) = pack_bf16(x, y);
    }
  };

  [[nodiscard]] __device__ int value_stride() const { return is_vk_ ? kHeadDim : 1; }
  [[nodiscard]] __device__ int key_stride() const { return is_vk_ ? 1 : kHeadDim; }

  /// Runs `move` over the thread's elements of S^T, the first of which stands at `first`: two
  /// neighbours at once where they are neighbours in memory, too, and its alignment allows it.
  template <class T, class Move>
  __device__ void visit(T* first, ChainState& S, const Move& move) const {
    if (is_vk_ && reinterpret_cast<std::uintptr_t>(first) % (2 * sizeof(T)) == 0) {
#pragma unroll
      for (int tile = 0; tile < kHeadDim / 8; ++tile)
#pragma unroll
        for (int c = 0; c < 4; c += 2)
          move(first + 8 * tile + c / 2 * 8 * kHeadDim, S[tile].c[c], S[tile].c[c + 1]);
      return;
    }
#pragma unroll
    for (int tile = 0; tile < kHeadDim / 8; ++tile)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        move(first + (8 * tile + c % 2) * key_stride() + c / 2 * 8 * value_stride(), S[tile].c[c]);
  }

  __device__ void store(void* to, DType dtype, std::int64_t row, ChainState& S) const {
    if (dtype == DType::kF32)
      visit(static_cast<float*>(to) + row + offset_, S, Store());
    else
      visit(static_cast<bf16*>(to) + row + offset_, S, Store());
  }

  const KdaPrefillProblem& p_;
  const PrefillChainTask& task_;
  bool is_vk_;
  std::int64_t offset_;  ///< of the thread's first element in a row of states
  std::int64_t slot_;
  int tracked_;
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

/// Where the rows of out begin that have these value channels.
__device__ inline bf16* first_output(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                     int first_value) {
  return p.out + (p.packed ? 0 : task.n * p.out_strides.batch) +
         task.sequence.begin * p.out_strides.token + task.head * p.out_strides.head + first_value;
}

/// How many rows of chunk `c` exist.
__device__ inline int rows_of_chunk(const PrefillSequence& sequence, int c) {
  return static_cast<int>(min(sequence.length - std::int64_t{c} * kChunk, std::int64_t{kChunk}));
}

}  // namespace k3::cuda
