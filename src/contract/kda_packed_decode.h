// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/kda_packed_decode.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements; absent tensors are null.
struct KdaPackedDecodeProblem {
  int B = 0;
  int H = 0;   ///< q and k heads
  int HV = 0;  ///< value heads, a multiple of H
  std::int64_t num_slots = 0;

  const bf16* mixed_qkv = nullptr;  ///< [B, (2*H + HV)*128]
  std::int64_t mixed_qkv_stride = 0;
  const bf16* g = nullptr;  ///< [B, HV*128]
  std::int64_t g_stride = 0;
  const bf16* beta = nullptr;  ///< [B, HV]
  std::int64_t beta_stride = 0;
  const float* A_log = nullptr;    ///< [HV] or null: a = 1
  const float* dt_bias = nullptr;  ///< [HV*128] or null: 0
  void* state = nullptr;           ///< [slots, HV, 128 (V), 128 (K)]
  DType state_dtype = DType::kF32;
  std::int64_t state_slot_stride = 0;
  IndexList state_indices;  ///< [B]
  bf16* out = nullptr;      ///< [B, HV*128]
  std::int64_t out_stride = 0;

  float scale = 0.0F;
  bool has_lower_bound = false;
  float lower_bound = 0.0F;
  std::int32_t null_index = -1;
  Device device;

  /// False for padding; in device memory also for an index past the pool.
  [[nodiscard]] bool is_live(std::int64_t slot) const {
    return slot > null_index && slot < num_slots;
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaPackedDecodeArgs>> kda_packed_decode_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(KdaPackedDecodeProblem& p) { return std::array{&p.state_indices}; }
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const KdaPackedDecodeProblem& p, ValueChecks checks);

/// @throws ContractError
KdaPackedDecodeProblem check(const KdaPackedDecodeArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
