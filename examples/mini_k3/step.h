// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "k3/ops/kda_verify.h"
#include "k3/tensor.h"

namespace k3::mini {

enum class Phase {
  kPrefill,  ///< the next piece of a prompt
  kDecode,   ///< one token
  kVerify,   ///< a token and a draft behind it; the KDA layers keep their state for a commit
};

/// The most tokens of a verify step.
inline constexpr int kMaxStepTokens = kKdaMaxVerifyTokens;

/// One pass of tokens through the layers.
struct Step {
  Phase phase = Phase::kPrefill;
  std::int64_t tokens = 0;
  ConstTensorView positions;        ///< [tokens] i32
  ConstTensorView query_start_loc;  ///< [2] i32: 0, tokens
};

}  // namespace k3::mini
