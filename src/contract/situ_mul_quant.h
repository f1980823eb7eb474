// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "contract/per_token_group_quant.h"
#include "core/bf16.h"
#include "k3/ops/situ_mul_quant.h"

namespace k3 {

inline constexpr int kSituGroup = 128;

/// A checked call: what every backend receives. Without masked_m it is one expert whose rows are
/// all live.
struct SituMulQuantProblem {
  std::int64_t E = 0;
  std::int64_t Tp = 0;
  std::int64_t N = 0;
  const bf16* input = nullptr;
  std::int64_t input_expert_stride = 0;
  std::int64_t input_row_stride = 0;
  IndexList masked_m;
  std::uint8_t* output_q = nullptr;
  std::int64_t q_expert_stride = 0;
  std::int64_t q_row_stride = 0;
  ScaleRows scales;  ///< of expert 0
  std::int64_t scale_expert_stride = 0;
  QuantFormat format = QuantFormat::kE4M3;
  bool swizzle = false;
  bool round_to_bf16 = false;
  float beta = 4.0F;
  float linear_beta = 25.0F;
  Device device;

  /// Host memory only.
  [[nodiscard]] std::int64_t live_rows(std::int64_t e) const {
    return masked_m.defined() ? masked_m[e] : Tp;
  }
};

inline auto index_lists(SituMulQuantProblem& p) { return std::array{&p.masked_m}; }

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<SituMulQuantArgs>> situ_mul_quant_args();

/// @throws ContractError
SituMulQuantProblem check(const SituMulQuantArgs& args, Purpose purpose = Purpose::kRun);

/// Rules of masked_m in host memory. @throws ContractError
void check_values(const Contract& contract, const SituMulQuantProblem& problem, ValueChecks checks);

}  // namespace k3
