// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/mini_k3/runtime.h"

namespace k3::mini {

/// y = prefix + FFN(x), for each row. y overlaps no other.
void dense_ffn(Runtime& rt, const DenseWeights& w, const ConstTensorView& x,
               const ConstTensorView& prefix, const TensorView& y);
void moe_ffn(Runtime& rt, const MoeWeights& w, const ConstTensorView& x,
             const ConstTensorView& prefix, const TensorView& y);

}  // namespace k3::mini
