// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/kda_verify.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements; absent tensors are null.
struct KdaVerifyProblem {
  int N = 0;  ///< requests
  int H = 0;
  int tokens = 0;         ///< rows of the token tensors
  int max_query_len = 0;  ///< 0 .. kKdaMaxVerifyTokens; 0: no request has a token
  std::int64_t num_slots = 0;

  const bf16* mixed_qkv = nullptr;  ///< [tokens, 3*H*128]
  std::int64_t mixed_qkv_stride = 0;
  const bf16* conv_states = nullptr;  ///< [slots, 3, 3*H*128]
  std::int64_t conv_slot_stride = 0;
  std::int64_t conv_tap_stride = 0;
  const float* conv_weight = nullptr;   ///< [4, 3*H*128]
  std::int64_t conv_weight_stride = 0;  ///< between taps
  const float* conv_bias = nullptr;     ///< [3*H*128] or null
  const bf16* g = nullptr;              ///< [tokens, H*128]
  std::int64_t g_stride = 0;
  const bf16* beta = nullptr;  ///< [tokens, H]
  std::int64_t beta_stride = 0;
  const float* A_log = nullptr;      ///< [H] or null: a = 1
  const float* dt_bias = nullptr;    ///< [H*128] or null: 0
  const bf16* onorm_gate = nullptr;  ///< [tokens, H*128] or null: no output norm
  std::int64_t onorm_gate_stride = 0;
  const float* onorm_weight = nullptr;  ///< [128]
  const void* state = nullptr;          ///< [slots, H, 128 (V), 128 (K)]
  DType state_dtype = DType::kF32;
  std::int64_t state_slot_stride = 0;
  IndexList state_indices;    ///< [N]
  IndexList query_start_loc;  ///< [N + 1]

  bool has_rings = false;  ///< all four, else all null
  std::int64_t ring_rows = 0;
  int ring_len = 0;        ///< L
  bf16* ring_k = nullptr;  ///< [ring_rows, H, L, 128], dense from H on; ring_v and ring_g too
  std::int64_t ring_k_row_stride = 0;
  bf16* ring_v = nullptr;
  std::int64_t ring_v_row_stride = 0;
  void* ring_g = nullptr;  ///< f32: log decay; bf16: a copy of g
  DType ring_g_dtype = DType::kF32;
  std::int64_t ring_g_row_stride = 0;
  float* ring_beta = nullptr;  ///< [ring_rows, H, L]
  std::int64_t ring_beta_row_stride = 0;
  std::int64_t ring_beta_head_stride = 0;
  std::int64_t ring_beta_token_stride = 0;
  IndexList ring_indices;  ///< [N] or absent: state_indices

  bf16* conv_scratch = nullptr;  ///< [rows, Ts, 3, 3*H*128] or null
  std::int64_t conv_scratch_rows = 0;
  std::int64_t conv_scratch_row_stride = 0;
  std::int64_t conv_scratch_token_stride = 0;  ///< may equal the tap stride
  std::int64_t conv_scratch_tap_stride = 0;
  void* snapshots = nullptr;  ///< [rows, Ts, H, 128 (V), 128 (K)] of state_dtype, or null
  std::int64_t snapshot_rows = 0;
  std::int64_t snapshot_row_stride = 0;
  std::int64_t snapshot_token_stride = 0;
  IndexList scratch_indices;  ///< [N] or absent: n
  bf16* out = nullptr;        ///< [tokens, H*128]
  std::int64_t out_stride = 0;

  float scale = 0.0F;
  bool has_lower_bound = false;
  float lower_bound = 0.0F;
  float eps_o = 1e-5F;
  Rounding round_conv = Rounding::kBF16;
  Rounding round_o = Rounding::kF32;
  std::int32_t null_index = -1;
  Device device;

  /// False for padding; in device memory also for an index past the pool.
  [[nodiscard]] bool is_live(std::int64_t slot) const {
    return slot > null_index && slot < num_slots;
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaVerifyArgs>> kda_verify_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(KdaVerifyProblem& p) {
  return std::array{&p.state_indices, &p.query_start_loc, &p.ring_indices, &p.scratch_indices};
}
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const KdaVerifyProblem& p, ValueChecks checks);

/// @throws ContractError
KdaVerifyProblem check(const KdaVerifyArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
