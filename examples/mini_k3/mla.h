// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/mini_k3/runtime.h"
#include "examples/mini_k3/step.h"

namespace k3::mini {

/// y = MLA(x) for the tokens of a step, whose rows go into `cache` [positions, kv_rank + rope]. A
/// draft that is not accepted leaves rows there that the next tokens overwrite.
void mla_attention(Runtime& rt, const MlaWeights& w, const TensorView& cache, const Step& step,
                   const ConstTensorView& x, const TensorView& y);

}  // namespace k3::mini
