// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/moe_route_topk.h"
#include "core/bf16.h"
#include "k3/ops/moe_front.h"

namespace k3 {

/// A checked call of moe_front_epilogue: what every backend receives.
struct MoeFrontEpilogueProblem {
  MoeRouteTopkProblem routing;  ///< scores: the first E columns of merged
  std::int64_t L = 0;
  const float* latent = nullptr;  ///< the columns behind them; rows as scores
  std::int64_t latent_stride = 0;
  bf16* routed = nullptr;
  std::int64_t routed_stride = 0;
  Device device;
};

/// A checked call of moe_front. `epilogue` lacks the pointers and strides of merged, which lies in
/// the workspace.
struct MoeFrontProblem {
  std::int64_t T = 0;
  std::int64_t H = 0;
  std::int64_t N = 0;            ///< E + L
  const bf16* hidden = nullptr;  ///< [T, H]
  std::int64_t hidden_stride = 0;
  const bf16* weight = nullptr;  ///< [N, H]
  std::int64_t weight_stride = 0;
  MoeFrontEpilogueProblem epilogue;
  Device device;
};

/// The epilogue over a dense merged [T, N].
MoeFrontEpilogueProblem epilogue_over(const MoeFrontProblem& problem, const float* merged);

/// The ops' tensors; everything that treats them alike reads these lists.
std::span<const ArgRule<MoeFrontArgs>> moe_front_args();
std::span<const ArgRule<MoeFrontEpilogueArgs>> moe_front_epilogue_args();

/// @throws ContractError
MoeFrontProblem check(const MoeFrontArgs& args, Purpose purpose = Purpose::kRun);
MoeFrontEpilogueProblem check(const MoeFrontEpilogueArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
