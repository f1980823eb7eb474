// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/kda_prefill/plan.cuh"

/// The serial half of a prefill: a CTA takes half of the value channels of a (sequence, value head)
/// from its first chunk to its last. Longest sequences first.
///
/// Each of the four warps has 16 value channels. S^T [16 v x 128 k] stays in fp32 registers;
/// rounded copies of sums are the next product's left operand, so nothing of it passes through
/// memory. Per chunk, all transposed (rows are value channels):
///
///   N = U^T - S^T W^T        O = S^T Q^T + N A^T        S = S diag(gamma) + N K
///
/// with W = M k exp(G), Q, K the decayed queries and remaining keys, A the output matrix. One
/// thread of warp 0 also brings the factors of the next chunks, in three parts.
///
/// Shared memory: kStages stages of the three parts; for each warp its outputs on their way.
///
/// Barriers, for each stage and part (0: W and U, 1: Q and A, 2: K and gamma):
///   full   counts the bytes of its bulk copies
///   free   the four warps have read it
namespace k3::cuda {

inline constexpr int kChainWarps = 4;
inline constexpr int kChainThreads = 32 * kChainWarps;
inline constexpr int kParts = 3;
inline constexpr int kOutPitch = 24;  ///< of 16 value channels, in elements: no bank conflict

/// A CTA has half of the value channels.
struct ChainStage {
  bf16 minus_w[2][kHalfTile];
  bf16 u[kHalfTile];
  bf16 q_decayed[2][kHalfTile];  ///< with output_matrix as in ChunkFactors
  bf16 output_matrix[kChunk * kChunk];
  bf16 k_remaining[2][kHalfTile];  ///< with gamma as in ChunkFactors
  float gamma[kHeadDim];
};

template <int kStages>
struct PrefillChainShared {
  ChainStage stages[kStages];
  bf16 out[kChainWarps][kChunk * kOutPitch];
  MBarrier full[kStages][kParts];
  MBarrier free[kStages][kParts];
};

/// What a CTA works on.
struct PrefillChainTask {
  int n = 0;
  int head = 0;
  int half = 0;
  PrefillSequence sequence;
};

/// Brings the factors of a chain's chunks, part by part and in order; one thread. A part is asked
/// for while the chain works on the next one, so that it has a turn of the stages to arrive.
template <int kStages>
class FactorLoader {
 public:
  __device__ FactorLoader(const KdaPrefillProblem& p, const PrefillPlan& plan,
                          const PrefillChainTask& task, PrefillChainShared<kStages>& shared)
      : factors_(plan.factors + task.sequence.first_slot * p.HV + task.head),
        step_(p.HV),
        half_(task.half),
        left_(kParts * task.sequence.num_chunks),
        shared_(shared) {}

  /// The next part, if any, once its place is free.
  __device__ void bring() {
    if (left_ == 0) return;
    --left_;
    mbarrier_wait(&shared_.free[stage_][part_], parity_ ^ 1U);
    MBarrier* const full = &shared_.full[stage_][part_];
    ChainStage& to = shared_.stages[stage_];
    constexpr std::uint32_t kWideBytes = sizeof(ChainStage::minus_w);
    constexpr std::uint32_t kHalfBytes = sizeof(ChainStage::u);
    constexpr std::uint32_t kGammaBytes = sizeof(ChainStage::gamma);
    if (part_ == 0) {
      mbarrier_expect(full, kWideBytes + kHalfBytes);
      bulk_load(to.minus_w, factors_->minus_w, kWideBytes, full);
      bulk_load(to.u, factors_->u[half_], kHalfBytes, full);
    } else if (part_ == 1) {
      mbarrier_expect(full, kWideBytes + kHalfBytes);
      bulk_load(to.q_decayed, factors_->q_decayed, kWideBytes + kHalfBytes, full);
    } else {
      mbarrier_expect(full, kWideBytes + kGammaBytes);
      bulk_load(to.k_remaining, factors_->k_remaining, kWideBytes + kGammaBytes, full);
    }
    if (++part_ < kParts) return;
    part_ = 0;
    factors_ += step_;
    if (++stage_ < kStages) return;
    stage_ = 0;
    parity_ ^= 1U;
  }

 private:
  const ChunkFactors* factors_;
  int step_;
  int half_;
  int left_;
  int part_ = 0;
  int stage_ = 0;
  unsigned parity_ = 0;
  PrefillChainShared<kStages>& shared_;
};

/// S^T of a warp: tile n has keys 8 n .. + 7.
using ChainState = FragmentC[kHeadDim / 8];

/// Runs `element(sum, offset)` over the thread's elements of S^T. The offsets are constants, from
/// first_element on.
template <StateLayout kLayout, class Fn>
__device__ void for_each_element(ChainState& S, const Fn& element) {
  constexpr int kValueStride = kLayout == StateLayout::kVK ? kHeadDim : 1;
  constexpr int kKeyStride = kLayout == StateLayout::kVK ? 1 : kHeadDim;
#pragma unroll
  for (int tile = 0; tile < kHeadDim / 8; ++tile)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      element(S[tile].c[c], (8 * tile + c % 2) * kKeyStride + 8 * (c / 2) * kValueStride);
}
__device__ inline int first_element(StateLayout layout, int first_value, int lane) {
  const int v = first_value + lane / 4;
  const int k = 2 * (lane % 4);
  return layout == StateLayout::kVK ? v * kHeadDim + k : k * kHeadDim + v;
}

/// The states that a chain reads and leaves; a warp's part of them.
class ChainStates {
 public:
  __device__ ChainStates(const KdaPrefillProblem& p, const PrefillChainTask& task, int warp,
                         int lane)
      : p_(p),
        task_(task),
        offset_(task.head * std::int64_t{kHeadElements} +
                first_element(p.state_layout, kHalf * task.half + 16 * warp, lane)),
        slot_(p.state_indices != nullptr ? p.state_indices[task.n] : task.n),
        tracked_(p.tracked_states != nullptr ? p.track_chunk_idx[task.n] : -1) {
    if (slot_ >= p.state_rows) slot_ = -1;
  }

  __device__ void load_initial(ChainState& S) const {
    if (p_.initial_state == nullptr || slot_ < 0) return;
    const std::int64_t at = slot_ * p_.initial_slot_stride + offset_;
    if (p_.state_dtype == DType::kF32)
      load(static_cast<const float*>(p_.initial_state) + at, S);
    else
      load(static_cast<const bf16*>(p_.initial_state) + at, S);
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
  template <class Fn>
  __device__ void visit(ChainState& S, const Fn& element) const {
    if (p_.state_layout == StateLayout::kVK)
      for_each_element<StateLayout::kVK>(S, element);
    else
      for_each_element<StateLayout::kKV>(S, element);
  }

  template <class T>
  __device__ void load(const T* from, ChainState& S) const {
    visit(S, [&](float& x, int offset) { x = widen(from[offset]); });
  }

  __device__ void store(void* to, DType dtype, std::int64_t row, ChainState& S) const {
    if (dtype == DType::kF32) {
      float* const at = static_cast<float*>(to) + row + offset_;
      visit(S, [&](float& x, int offset) { at[offset] = x; });
    } else {
      bf16* const at = static_cast<bf16*>(to) + row + offset_;
      visit(S, [&](float& x, int offset) { at[offset] = narrow(x); });
    }
  }

  const KdaPrefillProblem& p_;
  const PrefillChainTask& task_;
  std::int64_t offset_;  ///< of the thread's first element in a row of states
  std::int64_t slot_;
  int tracked_;
};

/// N and O of a chunk: tile n has tokens 8 n .. + 7.
using ChainTokens = FragmentC[kChunk / 8];

/// sums += S^T times the transpose of a [64 tokens x 128 keys] tile.
__device__ inline void multiply_state(const ChainState& S, std::uint32_t tile, int lane,
                                      ChainTokens& sums) {
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const FragmentA a = as_operand(S[k / 8], S[k / 8 + 1]);
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose<kHalf>(b, tile + k / kHalf * kHalfTileBytes, 16 * t, k % kHalf, lane);
      multiply_add(sums[2 * t], sums[2 * t + 1], a, b);
    }
  }
}

/// U^T, the start of N.
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

/// O += N A^T; A is zero above its diagonal.
__device__ inline void multiply_output(const ChainTokens& N, std::uint32_t tile, int lane,
                                       ChainTokens& O) {
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j) {
    const FragmentA a = as_operand(N[2 * j], N[2 * j + 1]);
#pragma unroll
    for (int t = j; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose<kChunk>(b, tile, 16 * t, 16 * j, lane);
      multiply_add(O[2 * t], O[2 * t + 1], a, b);
    }
  }
}

/// S = S diag(gamma) + N K
__device__ inline void update_state(const ChainTokens& N, std::uint32_t tile, const float* gamma,
                                    int lane, ChainState& S) {
#pragma unroll
  for (int tile_of_keys = 0; tile_of_keys < kHeadDim / 8; ++tile_of_keys) {
    const float2 decay =
        *reinterpret_cast<const float2*>(gamma + 8 * tile_of_keys + 2 * (lane % 4));
    float(&c)[4] = S[tile_of_keys].c;
    c[0] *= decay.x;
    c[1] *= decay.y;
    c[2] *= decay.x;
    c[3] *= decay.y;
  }
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j) {
    const FragmentA a = as_operand(N[2 * j], N[2 * j + 1]);
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      std::uint32_t b[4];
      load_b<kHalf>(b, tile + k / kHalf * kHalfTileBytes, 16 * j, k % kHalf, lane);
      multiply_add(S[k / 8], S[k / 8 + 1], a, b);
    }
  }
}

/// O^T through the warp's shared memory into rows of out: 32 bytes a token.
__device__ inline void write_outputs(const ChainTokens& O, bf16* staged, int rows, int lane,
                                     bf16* out, std::int64_t token_stride) {
  const std::uint32_t base = shared_address(staged);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const FragmentA pairs = as_operand(O[2 * t], O[2 * t + 1]);
    const int row = 16 * t + lane % 8 + 8 * (lane / 16);
    store_matrices_transposed(pairs.a, base + 2 * (row * kOutPitch + 8 * (lane / 8 % 2)));
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const int row = 16 * t + lane / 2;
    const int column = 8 * (lane % 2);
    if (row < rows)
      *reinterpret_cast<uint4*>(out + row * token_stride + column) =
          *reinterpret_cast<const uint4*>(staged + row * kOutPitch + column);
  }
}

template <int kStages>
__device__ void run_chain(const KdaPrefillProblem& p, const PrefillPlan& plan,
                          const PrefillChainTask& task, PrefillChainShared<kStages>& shared,
                          int warp, int lane) {
  const bool loads = threadIdx.x == 0;
  FactorLoader<kStages> loader(p, plan, task, shared);
  if (loads)
    for (int i = 0; i < kParts * kStages; ++i) loader.bring();
  const ChainStates states(p, task, warp, lane);
  ChainState S;
  states.load_initial(S);
  int stage = 0;
  unsigned parity = 0;
  bf16* out = p.out + (p.packed ? 0 : task.n * p.out_strides.batch) +
              task.sequence.begin * p.out_strides.token + task.head * p.out_strides.head +
              kHalf * task.half + 16 * warp;
  for (int c = 0; c < task.sequence.num_chunks; ++c, out += kChunk * p.out_strides.token) {
    states.store_border(c, S);
    const ChainStage& factors = shared.stages[stage];
    const auto begin = [&](int part) { mbarrier_wait(&shared.full[stage][part], parity); };
    const auto release = [&](int part) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&shared.free[stage][part]);
    };
    begin(0);
    if (loads && c > 0) loader.bring();  // the last chunk's part 2
    ChainTokens N;
    load_new_values(shared_address(factors.u), 16 * warp, lane, N);
    multiply_state(S, shared_address(factors.minus_w), lane, N);
    release(0);

    begin(1);
    ChainTokens O;
    multiply_state(S, shared_address(factors.q_decayed), lane, O);
    if (loads) loader.bring();  // part 0
    multiply_output(N, shared_address(factors.output_matrix), lane, O);
    release(1);

    begin(2);
    update_state(N, shared_address(factors.k_remaining), factors.gamma, lane, S);
    release(2);
    if (loads) loader.bring();  // part 1
    const std::int64_t left = task.sequence.length - std::int64_t{c} * kChunk;
    write_outputs(O, shared.out[warp], static_cast<int>(min(left, std::int64_t{kChunk})), lane, out,
                  p.out_strides.token);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1U;
    }
  }
  states.store_final(S);
}

/// @tparam kStages  with one, two CTAs share an SM and fill each other's waits
template <int kStages>
__global__ __launch_bounds__(kChainThreads, kStages == 1 ? 2 : 1) void kda_prefill_chain_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  extern __shared__ __align__(128) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<PrefillChainShared<kStages>*>(dynamic_shared);
  if (threadIdx.x == 0)
    for (int stage = 0; stage < kStages; ++stage)
      for (int part = 0; part < kParts; ++part) {
        mbarrier_init(&shared.full[stage][part], 1);
        mbarrier_init(&shared.free[stage][part], kChainWarps);
      }
  publish_to_bulk_copies();
  __syncthreads();
  pdl_wait();
  pdl_launch_dependents();

  PrefillChainTask task;
  task.half = static_cast<int>(blockIdx.x % 2);
  task.head = static_cast<int>(blockIdx.x / 2 % p.HV);
  task.n = static_cast<int>(blockIdx.x / 2 / p.HV);
  if (plan.longest != nullptr) task.n = plan.longest[task.n];
  task.sequence = find_sequence(p, plan, task.n);
  run_chain(p, plan, task, shared, static_cast<int>(threadIdx.x) / 32,
            static_cast<int>(threadIdx.x) % 32);
}

}  // namespace k3::cuda
