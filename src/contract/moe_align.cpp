// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_align.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace k3 {

std::int64_t moe_align_capacity(std::int64_t num_tokens, std::int64_t topk, int num_experts,
                                int block_size) {
  if (num_tokens <= 0 || topk <= 0 || num_experts <= 0 || block_size <= 0) return 0;
  const __int128 slots = static_cast<__int128>(num_tokens) * topk;
  // Each run has one full or partial block at least; what is left over fits whole blocks.
  const __int128 runs = num_tokens == 1 ? slots : std::min<__int128>(slots, num_experts);
  const __int128 most = (slots + runs * (block_size - 1)) / block_size * block_size;
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  return most > kMax ? kMax : static_cast<std::int64_t>(most);
}

std::span<const ArgRule<MoeAlignArgs>> moe_align_args() {
  using Args = MoeAlignArgs;
  static const ArgRule<Args> rules[] = {
      {"topk_ids", Access::kRead, false, {DType::kI32}, {2}, &Args::topk_ids},
      {"sorted_ids", Access::kWrite, false, {DType::kI32}, {1}, &Args::sorted_ids},
      {"expert_ids", Access::kWrite, false, {DType::kI32}, {1}, &Args::expert_ids},
      {"num_post", Access::kWrite, false, {DType::kI32}, {1}, &Args::num_post},
  };
  return rules;
}

void check_values(const Contract& contract, const MoeAlignProblem& p, ValueChecks /*checks*/) {
  for (std::int64_t slot = 0; slot < p.topk_ids.size; ++slot)
    if (p.topk_ids[slot] >= p.num_experts)
      contract.fail("topk_ids",
                    fmt::format("must be negative or an expert below {}", p.num_experts),
                    fmt::format("{} in slot {}", p.topk_ids[slot], slot));
}

MoeAlignProblem check(const MoeAlignArgs& args, Purpose purpose) {
  const Contract contract("moe_align", purpose);
  contract.tensors(moe_align_args(), args);
  const auto number = [](std::int64_t value) { return [value] { return std::to_string(value); }; };
  contract.require(args.num_experts >= 1 && args.num_experts <= kMoeAlignMaxExperts, "num_experts",
                   "must be 1 to 8192", number(args.num_experts));
  contract.require(args.block_size >= 1, "block_size", "must be at least 1",
                   number(args.block_size));
  const std::int64_t T = args.topk_ids.shape[0];
  const std::int64_t topk = args.topk_ids.shape[1];
  const std::int64_t capacity = moe_align_capacity(T, topk, args.num_experts, args.block_size);
  contract.small("topk_ids", "slots and their padding", capacity);
  const std::int64_t blocks = capacity / args.block_size;
  const auto at_least = [&](const char* argument, const TensorView& tensor, std::int64_t size) {
    if (tensor.shape[0] < size)
      contract.fail(argument, fmt::format("must have at least {} elements", size),
                    describe(tensor));
  };
  at_least("sorted_ids", args.sorted_ids, capacity);
  at_least("expert_ids", args.expert_ids, blocks);
  contract.shape("num_post", args.num_post, {{"1", 1}});
  contract.dense_from("topk_ids", args.topk_ids, 0);
  contract.unit_last_stride("sorted_ids", args.sorted_ids);
  contract.unit_last_stride("expert_ids", args.expert_ids);
  contract.overlaps(moe_align_args(), args);

  MoeAlignProblem p;
  p.num_tokens = contract.small("topk_ids", "T", T);
  p.num_slots = static_cast<std::int32_t>(T * topk);
  p.topk_ids.data = static_cast<const std::int32_t*>(args.topk_ids.data);
  p.topk_ids.size = p.num_slots;
  p.sorted_ids = static_cast<std::int32_t*>(args.sorted_ids.data);
  p.sorted_size = args.sorted_ids.shape[0];
  p.expert_ids = static_cast<std::int32_t*>(args.expert_ids.data);
  p.expert_size = args.expert_ids.shape[0];
  p.num_post = static_cast<std::int32_t*>(args.num_post.data);
  p.num_experts = args.num_experts;
  p.block_size = args.block_size;
  p.device = args.topk_ids.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
