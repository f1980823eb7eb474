// SPDX-License-Identifier: Apache-2.0

// A counting sort on one thread: two passes over the ids, of a few nanoseconds a slot.

#include "cpu/moe_align.h"

#include <algorithm>
#include <cstdint>

namespace k3::cpu {
namespace {

constexpr bool is_live(std::int32_t id) { return id >= 0; }

/// Each slot is a run.
void align_one_token(const MoeAlignProblem& p) {
  const std::int32_t* const ids = p.topk_ids.data;
  std::int32_t live = 0;
  for (std::int32_t slot = 0; slot < p.num_slots; ++slot) {
    if (!is_live(ids[slot])) continue;
    std::int32_t rank = 0;
    for (std::int32_t other = 0; other < p.num_slots; ++other)
      rank += is_live(ids[other]) &&
              (ids[other] < ids[slot] || (ids[other] == ids[slot] && other < slot));
    p.sorted_ids[std::int64_t{rank} * p.block_size] = slot;
    p.expert_ids[rank] = ids[slot];
    ++live;
  }
  *p.num_post = live * p.block_size;
}

void align_tokens(const MoeAlignProblem& p) {
  const std::int32_t* const ids = p.topk_ids.data;
  std::int32_t next[kMoeAlignMaxExperts] = {};  // counts, then where each expert's next slot goes
  for (std::int32_t slot = 0; slot < p.num_slots; ++slot)
    if (is_live(ids[slot])) ++next[ids[slot]];
  std::int32_t begin = 0;
  for (int e = 0; e < p.num_experts; ++e) {
    const std::int32_t end = begin + p.padded(next[e]);
    std::fill(p.expert_ids + begin / p.block_size, p.expert_ids + end / p.block_size, e);
    next[e] = begin;
    begin = end;
  }
  *p.num_post = begin;
  for (std::int32_t slot = 0; slot < p.num_slots; ++slot)
    if (is_live(ids[slot])) p.sorted_ids[next[ids[slot]]++] = slot;
}

}  // namespace

void moe_align(const MoeAlignProblem& p, const Target& /*target*/) {
  std::fill_n(p.sorted_ids, p.sorted_size, p.num_slots);
  std::fill_n(p.expert_ids, p.expert_size, -1);
  if (p.num_tokens == 1)
    align_one_token(p);
  else
    align_tokens(p);
}

}  // namespace k3::cpu
