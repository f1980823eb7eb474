// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/kda_replay_commit.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements; absent tensors are null.
/// Every tensor has a layer axis: a call without one is a call of 1 layer, with layer strides 0.
struct KdaReplayCommitProblem {
  int num_layers = 1;
  int B = 0;
  int H = 0;   ///< k heads
  int HV = 0;  ///< value heads, a multiple of H
  int L = 0;   ///< tokens that a ring row holds
  std::int64_t num_slots = 0;
  std::int64_t num_ring_rows = 0;

  void* state = nullptr;  ///< [layers, slots, HV, 128 (V), 128 (K)]
  DType state_dtype = DType::kF32;
  std::int64_t state_layer_stride = 0;
  std::int64_t state_slot_stride = 0;

  const void* ring_k = nullptr;  ///< [layers, ring rows, H, L, 128]
  const void* ring_v = nullptr;  ///< [layers, ring rows, HV, L, 128]
  DType ring_kv_dtype = DType::kBF16;
  std::int64_t ring_k_layer_stride = 0;
  std::int64_t ring_k_row_stride = 0;
  std::int64_t ring_v_layer_stride = 0;
  std::int64_t ring_v_row_stride = 0;
  const void* ring_g = nullptr;  ///< [layers, ring rows, HV, L, 128]
  /// kF32: log decays. kBF16: raw gates, which go through A_log, dt_bias and lower_bound.
  DType ring_g_dtype = DType::kF32;
  std::int64_t ring_g_layer_stride = 0;
  std::int64_t ring_g_row_stride = 0;
  const float* ring_beta = nullptr;  ///< [layers, ring rows, HV, L], activated
  std::int64_t ring_beta_layer_stride = 0;
  std::int64_t ring_beta_row_stride = 0;

  const float* A_log = nullptr;  ///< [layers, HV] or null: a = 1
  std::int64_t A_log_layer_stride = 0;
  const float* dt_bias = nullptr;  ///< [layers, HV*128] or null: 0
  std::int64_t dt_bias_layer_stride = 0;

  IndexList state_indices;  ///< [B]
  IndexList ring_indices;   ///< [B] or absent: the slots
  IndexList accept_lens;    ///< [B]
  IndexList track_indices;  ///< [B] or absent: none is tracked
  IndexList track_steps;    ///< [B], given exactly with track_indices

  bf16* conv_states = nullptr;  ///< [layers, slots, 3, C] or null: no windows
  int C = 0;
  std::int64_t conv_layer_stride = 0;
  std::int64_t conv_slot_stride = 0;
  std::int64_t conv_tap_stride = 0;
  const bf16* conv_scratch = nullptr;  ///< [layers, scratch rows, Ts, 3, C]
  std::int64_t num_scratch_rows = 0;
  int Ts = 0;  ///< tokens that a scratch row holds
  std::int64_t scratch_layer_stride = 0;
  std::int64_t scratch_row_stride = 0;
  std::int64_t scratch_token_stride = 0;
  std::int64_t scratch_tap_stride = 0;
  IndexList scratch_indices;  ///< [B] or absent: n

  bool has_lower_bound = false;
  float lower_bound = 0.0F;
  bool qk_l2norm = true;
  std::int32_t null_index = -1;
  Device device;

  /// False for padding; in device memory also for an index past the pool.
  [[nodiscard]] bool is_live(std::int64_t slot) const {
    return slot > null_index && slot < num_slots;
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaReplayCommitArgs>> kda_replay_commit_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(KdaReplayCommitProblem& p) {
  return std::array{&p.state_indices, &p.ring_indices, &p.accept_lens,
                    &p.track_indices, &p.track_steps,  &p.scratch_indices};
}
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const KdaReplayCommitProblem& p, ValueChecks checks);

/// @throws ContractError
KdaReplayCommitProblem check(const KdaReplayCommitArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
