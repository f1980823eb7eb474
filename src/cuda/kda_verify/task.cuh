// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_verify.h"
#include "cuda/common/cluster.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda_verify/traits.cuh"

/// What the warps of a verify kernel share: the heads a CTA serves, and shared memory.
namespace k3::cuda {

/// What the chain needs of a token, but for its v and output gate.
template <class Layout>
struct VerifyToken {
  ChainVector<Layout> q;
  ChainVector<Layout> k;
  ChainVector<Layout> decay;
  float beta;
  float qk;  ///< k . q
  float padding[2];
};

/// A request, as its index lists give it.
struct VerifyRequest {
  std::int64_t slot = 0;
  std::int64_t ring_row = -1;     ///< -1: none
  std::int64_t scratch_row = -1;  ///< may lie outside of conv_scratch and snapshots
  int begin = 0;                  ///< first token
  int length = 0;                 ///< tokens
  bool is_live = false;           ///< else zeros are its output
};

__device__ inline VerifyRequest find_request(const KdaVerifyProblem& p, int n) {
  const auto at = [](const IndexList& list, int i) { return list.data[i * list.stride]; };
  VerifyRequest request;
  request.begin = min(max(at(p.query_start_loc, n), 0), p.tokens);
  const int end = min(max(at(p.query_start_loc, n + 1), request.begin), p.tokens);
  request.length = min(end - request.begin, p.max_query_len);
  request.slot = at(p.state_indices, n);
  const std::int64_t ring = p.ring_indices.data != nullptr ? at(p.ring_indices, n) : request.slot;
  if (p.has_rings && ring >= 0 && ring < p.ring_rows) request.ring_row = ring;
  request.scratch_row = p.scratch_indices.data != nullptr ? at(p.scratch_indices, n) : n;
  request.is_live = request.slot > p.null_index && request.slot < p.num_slots;
  return request;
}

/// Shared memory. Followed by the tokens of each stage, max_query_len of them, and then by v (later
/// o) and gate of each, [rows].
template <class Traits>
struct alignas(16) VerifyShared {
  ByteBarrier squares_arrived;
  MBarrier request_known[Traits::kStages];
  MBarrier query_made[Traits::kStages][kKdaMaxVerifyTokens];
  MBarrier token_made[Traits::kStages][kKdaMaxVerifyTokens];
  MBarrier stage_free[Traits::kStages];
  VerifyRequest requests[Traits::kStages];
  float squares[kKdaMaxVerifyTokens * Traits::kClusterSize];  ///< [token, rank]
  ChainExchange<typename Traits::Layout> exchange[Traits::kChainWarps];
};

template <class Traits>
std::size_t verify_shared_bytes(int max_query_len) {
  return sizeof(VerifyShared<Traits>) +
         static_cast<std::size_t>(Traits::kStages * max_query_len) *
             (sizeof(VerifyToken<typename Traits::Layout>) + 2 * Traits::kRows * sizeof(float));
}

/// A warp's view of the head that its CTA serves, and the way to the next.
template <class Traits>
struct VerifyTask {
  using Token = VerifyToken<typename Traits::Layout>;
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;  ///< of its role
  int rank = static_cast<int>(blockIdx.x) % Traits::kClusterSize;
  int n;
  int head;
  int stage = 0;
  unsigned parity = 0;  ///< of the stage's barriers
  VerifyShared<Traits>* shared;
  Token* first_token;  ///< of stage 0
  int max_tokens;

  __device__ VerifyTask(const KdaVerifyProblem& p, std::byte* memory)
      : shared(reinterpret_cast<VerifyShared<Traits>*>(memory)),
        first_token(reinterpret_cast<Token*>(memory + sizeof(VerifyShared<Traits>))),
        max_tokens(p.max_query_len) {
    const auto index = blockIdx.x / Traits::kClusterSize;
    n = static_cast<int>(index / p.H);
    head = static_cast<int>(index % p.H);
  }

  /// To the head `step` further on.
  __device__ void advance(const KdaVerifyProblem& p, int step_n, int step_head) {
    n += step_n;
    head += step_head;
    if (head >= p.H) {
      head -= p.H;
      ++n;
    }
    if (++stage == Traits::kStages) {
      stage = 0;
      parity ^= 1U;
    }
  }

  __device__ int first_row() const { return rank * Traits::kRows; }
  __device__ Token& token(int t) const { return first_token[stage * max_tokens + t]; }
  /// v of the CTA's rows; the chain replaces it by o.
  __device__ float* v(int t) const {
    return reinterpret_cast<float*>(first_token + Traits::kStages * max_tokens) +
           (stage * max_tokens + t) * 2 * Traits::kRows;
  }
  /// sigmoid(onorm_gate) * onorm_weight of the CTA's rows.
  __device__ float* gate(int t) const { return v(t) + Traits::kRows; }
};

/// A head's state in a slot.
template <class Traits>
__device__ const typename Traits::StateT* head_state(const KdaVerifyProblem& p, std::int64_t slot,
                                                     int head) {
  return static_cast<const typename Traits::StateT*>(p.state) + slot * p.state_slot_stride +
         std::int64_t{head} * kHeadElements;
}

/// Asks for the CTA's rows; one thread.
template <class Traits>
__device__ void prefetch_rows(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                              std::int64_t slot) {
  if constexpr (Traits::kVector)
    prefetch_l2(head_state<Traits>(p, slot, task.head) + task.first_row() * kHeadDim,
                Traits::kRows * kHeadDim * sizeof(typename Traits::StateT));
}

}  // namespace k3::cuda
