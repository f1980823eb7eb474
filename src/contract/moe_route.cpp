// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route.h"

#include <fmt/format.h>

namespace k3 {

MoeRouting check_routing(const Contract& contract, const char* scores_name,
                         const ConstTensorView& scores, const ConstTensorView& bias,
                         const TensorView& topk_weights, const TensorView& topk_ids,
                         const MoeRouteOptions& options) {
  MoeRouting routing;
  routing.num_tokens = scores.shape[0];
  routing.num_experts = contract.small("bias", "E", bias.shape[0]);
  contract.require(routing.num_experts >= 1, "bias", "must have at least one expert", bias);
  contract.require(options.topk >= 1 && options.topk <= kMoeMaxTopk, "topk", "must be 1 to 64",
                   [&] { return std::to_string(options.topk); });
  contract.require(options.topk <= routing.num_experts, "topk",
                   "must not be more than there are experts",
                   [&] { return fmt::format("{} of {}", options.topk, routing.num_experts); });
  contract.shape("topk_weights", topk_weights, {{"T", routing.num_tokens}, {"topk", options.topk}});
  contract.shape("topk_ids", topk_ids, {{"T", routing.num_tokens}, {"topk", options.topk}});
  contract.unit_last_stride(scores_name, scores);
  contract.unit_last_stride("bias", bias);
  contract.unit_last_stride("topk_weights", topk_weights);
  contract.unit_last_stride("topk_ids", topk_ids);
  contract.finite("routed_scaling_factor", options.routed_scaling_factor);

  routing.scores = scores.data;
  routing.scores_dtype = scores.dtype;
  routing.scores_stride = scores.strides[0];
  routing.bias = static_cast<const float*>(bias.data);
  routing.weights = static_cast<float*>(topk_weights.data);
  routing.weights_stride = topk_weights.strides[0];
  routing.ids = static_cast<std::int32_t*>(topk_ids.data);
  routing.ids_stride = topk_ids.strides[0];
  routing.options = options;
  return routing;
}

}  // namespace k3
