// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/mini_k3/runtime.h"
#include "examples/mini_k3/step.h"

namespace k3::mini {

/// What the KDA layers of a model remember of one text. An engine has more slots than one.
struct KdaState {
  Array state;        ///< [layers, slots, h, D, D] f32
  Array conv_states;  ///< [layers, slots, 3, 3 h D] bf16, raw inputs of the convolution
  Array slot;         ///< [1] i32: 0

  // What a verify step leaves for the commit; L is the most tokens of one.
  Array ring_k;        ///< [layers, slots, h, L, D] bf16
  Array ring_v;        ///< [layers, slots, h, L, D] bf16
  Array ring_g;        ///< [layers, slots, h, L, D] f32
  Array ring_beta;     ///< [layers, slots, h, L] f32
  Array conv_scratch;  ///< [layers, slots, L, 3, 3 h D] bf16
  Array accept_len;    ///< [1] i32

  KdaState(const Config& config, Machine& machine, int num_layers);
};

/// y = KDA(x) for the tokens of a step; `layer` counts the KDA layers.
void kda_attention(Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer,
                   const Step& step, const ConstTensorView& x, const TensorView& y);

/// Takes over the first `accepted` tokens of the last verify step, in all layers.
void kda_commit(Runtime& rt, const KdaState& memory, std::int32_t accepted);

}  // namespace k3::mini
