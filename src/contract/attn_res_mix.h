// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/attn_res_mix.h"

namespace k3 {

/// Most bank rows of a call: the scores of a token's rows stand in fast memory of a fixed size.
inline constexpr int kMaxBankRows = 1023;

/// A checked call: what every backend receives. Strides are in elements.
struct AttnResMixProblem {
  std::int64_t T = 0;
  int H = 0;
  int num_bank_rows = 0;
  bf16* bank = nullptr;  ///< row j of token t at t * bank_token_stride + j * bank_row_stride
  std::int64_t bank_token_stride = 0;
  std::int64_t bank_row_stride = 0;
  const bf16* prefix = nullptr;
  std::int64_t prefix_stride = 0;
  const bf16* score_weight = nullptr;  ///< c, or its first factor
  const bf16* score_proj = nullptr;    ///< the other factor; null where c is folded
  const bf16* out_norm_weight = nullptr;
  bf16* out = nullptr;
  std::int64_t out_stride = 0;
  float eps = 0.0F;
  bool write_prefix = false;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<AttnResMixArgs>> attn_res_mix_args();

/// @throws ContractError
AttnResMixProblem check(const AttnResMixArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
