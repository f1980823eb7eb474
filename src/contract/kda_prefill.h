// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "contract/sequences.h"
#include "core/bf16.h"
#include "k3/ops/kda_prefill.h"

namespace k3 {

/// [B, T, heads, 128]: element (b, t, h, d) is at b*batch + t*token + h*head + d.
struct TokenStrides {
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

/// A checked call: what every backend receives. Strides are in elements; absent tensors are null.
struct KdaPrefillProblem : Sequences {
  int H = 0;   ///< q/k heads
  int HV = 0;  ///< value heads, a multiple of H

  const bf16* q = nullptr;
  TokenStrides q_strides;
  const bf16* k = nullptr;
  TokenStrides k_strides;
  const bf16* v = nullptr;
  TokenStrides v_strides;
  const void* g = nullptr;
  DType g_dtype = DType::kBF16;
  TokenStrides g_strides;
  const void* beta = nullptr;
  DType beta_dtype = DType::kBF16;
  TokenStrides beta_strides;       ///< head stride 1
  const float* A_log = nullptr;    ///< [HV] or null: a = 1
  const float* dt_bias = nullptr;  ///< [HV*128] or null: 0

  const void* initial_state = nullptr;  ///< [state_rows, HV, 128, 128] or null: zeros
  std::int64_t initial_slot_stride = 0;
  void* final_state = nullptr;  ///< same, or null: not wanted
  std::int64_t final_slot_stride = 0;
  DType state_dtype = DType::kF32;              ///< of both
  std::int64_t state_rows = 0;                  ///< N, or slots of the pool
  const std::int32_t* state_indices = nullptr;  ///< [N] or null: slot n
  StateLayout state_layout = StateLayout::kVK;  ///< of all four states

  bf16* out = nullptr;
  TokenStrides out_strides;
  void* chunk_states = nullptr;
  DType chunk_dtype = DType::kF32;
  std::int64_t chunk_row_stride = 0;
  std::int64_t chunk_rows = 0;
  const std::int32_t* track_chunk_idx = nullptr;  ///< [N]
  float* tracked_states = nullptr;                ///< [N, HV, 128, 128]
  std::int64_t tracked_row_stride = 0;

  float scale = 0.0F;
  bool has_lower_bound = false;
  float lower_bound = 0.0F;
  bool qk_l2norm = false;
  bool gate_in_kernel = false;
  bool beta_sigmoid = false;
  bool allow_neg_eigval = false;
  Device device;

  /// True where a call has nothing to write, however many empty sequences and heads it names.
  [[nodiscard]] bool writes_nothing() const {
    const bool no_state = final_state == nullptr || state_rows == 0;
    return (T == 0 || N == 0) && no_state && (tracked_states == nullptr || N == 0);
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaPrefillArgs>> kda_prefill_args();

/// @throws ContractError
KdaPrefillProblem check(const KdaPrefillArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
