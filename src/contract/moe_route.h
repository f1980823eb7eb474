// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/tensor.h"

namespace k3 {

inline constexpr int kMoeMaxTopk = 64;
inline constexpr float kMoeNaNScore = -1e30F;  ///< where a biased score that is NaN ranks

/// How experts are chosen and weighted, as in include/k3/ops/moe_route_topk.h.
struct MoeRouteOptions {
  int topk = 16;
  bool renormalize = true;
  float routed_scaling_factor = 1.0F;
  bool sorted = false;
};

/// The routing of some tokens, checked: what moe_route_topk, moe_route_quant and moe_front share.
struct MoeRouting {
  std::int64_t num_tokens = 0;
  int num_experts = 0;
  const void* scores = nullptr;  ///< [T, E], f32 or bf16
  DType scores_dtype = DType::kF32;
  std::int64_t scores_stride = 0;
  const float* bias = nullptr;  ///< [E]
  float* weights = nullptr;     ///< [T, topk]
  std::int64_t weights_stride = 0;
  std::int32_t* ids = nullptr;  ///< [T, topk]
  std::int64_t ids_stride = 0;
  std::int32_t* packed = nullptr;  ///< [T, topk] or null: id << 16 | bits of bf16(weight)
  std::int64_t packed_stride = 0;
  MoeRouteOptions options;
};

/// A chosen expert and its weight in a word: the low 16 bits of the id above those of the weight as
/// bf16, of which every NaN is 0x7FC0.
inline std::int32_t pack_topk(std::int64_t id, float weight) {
  const std::uint32_t bits = weight != weight ? 0x7FC0U : to_bf16(weight).bits;
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(id) << 16 | bits);
}

/// Checks shapes, strides and options, presence and dtypes being right. `scores` may have columns
/// behind its first E, the length of `bias`.
MoeRouting check_routing(const Contract& contract, const char* scores_name,
                         const ConstTensorView& scores, const ConstTensorView& bias,
                         const TensorView& topk_weights, const TensorView& topk_ids,
                         const MoeRouteOptions& options);

}  // namespace k3
