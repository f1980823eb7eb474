// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_align.h"

#include <algorithm>
#include <vector>

#include "oracle/oracle.h"

namespace k3::oracle {

void moe_align(const MoeAlignArgs& args) {
  const MoeAlignProblem p = check(args);
  std::vector<std::int32_t> slots;  // live ones, by expert
  for (std::int32_t slot = 0; slot < p.num_slots; ++slot)
    if (p.topk_ids[slot] >= 0) slots.push_back(slot);
  std::stable_sort(slots.begin(), slots.end(),
                   [&](int a, int b) { return p.topk_ids[a] < p.topk_ids[b]; });

  std::fill_n(p.sorted_ids, p.sorted_size, p.num_slots);
  std::fill_n(p.expert_ids, p.expert_size, -1);
  std::int32_t at = 0;
  std::int32_t previous = -1;
  for (std::int32_t slot : slots) {
    const std::int32_t expert = p.topk_ids[slot];
    const bool new_run = expert != previous || p.num_tokens == 1;
    while (new_run && at % p.block_size != 0) ++at;
    p.expert_ids[at / p.block_size] = expert;
    p.sorted_ids[at++] = slot;
    previous = expert;
  }
  while (at % p.block_size != 0) ++at;
  *p.num_post = at;
}

}  // namespace k3::oracle
