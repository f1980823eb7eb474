// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "examples/k3_layer/sizes.h"
#include "harness/tensor.h"

namespace k3::layer {

/// The layers of examples/k3_layer in double precision, straight from the model's formulas, token
/// after token, nothing rounded on the way. Weights, first states and each step's inputs come from
/// the run's tensors; everything else is its own.
class Reference {
 public:
  using Values = std::vector<double>;

  /// Takes over states and windows as they are.
  Reference(const Request& request, const harness::Bundle& tensors);

  /// A step with the inputs that stand in the tensors. The router's choice is the run's where this
  /// one's biased scores say that it may be: an expert chosen lies at most `tie` below one that is
  /// not; else it throws.
  void step(const harness::Bundle& tensors, double tie);

  // By name as the tensors of a run; [rows, width].
  Values kda_x, forget, kda_out, prefix_kda;
  Values moe_x, latent, topk_weights, expert_act, routed, prefix_moe;
  Values kv_row, q_out, mla_out, out;
  Values state;        ///< [slots, h, V, K]
  Values conv_states;  ///< [slots, 3, C]

 private:
  void kda(const harness::Bundle& tensors);
  void experts(const harness::Bundle& tensors, double tie);
  void mla(const harness::Bundle& tensors);
  /// RMS(mixture of the bank's rows and the prefix)
  [[nodiscard]] Values mixture(const harness::Bundle& tensors, const std::string& name,
                               const Values& prefix) const;
  /// One token of request n, from its convolution to its gated norm.
  void kda_token(const harness::Bundle& tensors, std::int64_t row, const Values& qkvg,
                 const Values& forget_beta);
  void kda_head(const harness::Bundle& tensors, std::int64_t row, std::int64_t head,
                const Values& qkv, double beta, const double* gate);
  void choose(const harness::Bundle& tensors, const double* scores, std::int64_t row, double tie);

  const Request& r_;
  const Sizes& s_;
};

}  // namespace k3::layer
