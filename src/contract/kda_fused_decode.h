// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/kda_fused_decode.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements; absent tensors are null.
struct KdaFusedDecodeProblem {
  int B = 0;
  int H = 0;
  std::int64_t num_slots = 0;

  const bf16* mixed_qkv = nullptr;  ///< [B, 3*H*128]
  std::int64_t mixed_qkv_stride = 0;
  bf16* conv_states = nullptr;  ///< [slots, 3, 3*H*128]
  std::int64_t conv_slot_stride = 0;
  std::int64_t conv_tap_stride = 0;
  const float* conv_weight = nullptr;   ///< [4, 3*H*128]
  std::int64_t conv_weight_stride = 0;  ///< between taps
  const float* conv_bias = nullptr;     ///< [3*H*128] or null
  const bf16* g = nullptr;              ///< [B, H*128]
  std::int64_t g_stride = 0;
  const bf16* beta = nullptr;  ///< [B, H]
  std::int64_t beta_stride = 0;
  const float* A_log = nullptr;      ///< [H] or null: a = 1
  const float* dt_bias = nullptr;    ///< [H*128] or null: 0
  const bf16* onorm_gate = nullptr;  ///< [B, H*128] or null: no output norm
  std::int64_t onorm_gate_stride = 0;
  const float* onorm_weight = nullptr;  ///< [128]
  void* state = nullptr;                ///< [slots, H, 128 (V), 128 (K)]
  DType state_dtype = DType::kF32;
  std::int64_t state_slot_stride = 0;
  IndexList state_indices;  ///< [B]
  bf16* out = nullptr;      ///< [B, H*128]
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
std::span<const ArgRule<KdaFusedDecodeArgs>> kda_fused_decode_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(KdaFusedDecodeProblem& p) { return std::array{&p.state_indices}; }
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const KdaFusedDecodeProblem& p, ValueChecks checks);

/// @throws ContractError
KdaFusedDecodeProblem check(const KdaFusedDecodeArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
