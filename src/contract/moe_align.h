// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "k3/ops/moe_align.h"

namespace k3 {

inline constexpr int kMoeAlignMaxExperts = 8192;

/// A checked call: what every backend receives.
struct MoeAlignProblem {
  std::int32_t num_tokens = 0;
  std::int32_t num_slots = 0;  ///< N, also what stands in unused elements of sorted_ids
  IndexList topk_ids;          ///< [N]
  std::int32_t* sorted_ids = nullptr;
  std::int64_t sorted_size = 0;
  std::int32_t* expert_ids = nullptr;
  std::int64_t expert_size = 0;
  std::int32_t* num_post = nullptr;
  int num_experts = 0;
  int block_size = 0;
  Device device;

  /// Elements that a run of so many slots takes.
  [[nodiscard]] std::int32_t padded(std::int32_t slots) const {
    return static_cast<std::int32_t>((std::int64_t{slots} + block_size - 1) / block_size *
                                     block_size);
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoeAlignArgs>> moe_align_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(MoeAlignProblem& p) { return std::array{&p.topk_ids}; }
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const MoeAlignProblem& p, ValueChecks checks);

/// @throws ContractError
MoeAlignProblem check(const MoeAlignArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
