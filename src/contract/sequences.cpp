// SPDX-License-Identifier: Apache-2.0
#include "contract/sequences.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3 {
namespace {

constexpr std::int64_t kC = kKdaChunkTokens;

}  // namespace

void check_values(const Contract& contract, const Sequences& s) {
  if (!s.packed) return;
  contract.require(s.begin(0) == 0, "cu_seqlens", "must start at 0",
                   [&] { return fmt::format("cu_seqlens[0] = {}", s.begin(0)); });
  for (int n = 0; n < s.N; ++n)
    if (s.begin(n + 1) < s.begin(n))
      contract.fail("cu_seqlens", "must never decrease",
                    fmt::format("cu_seqlens[{}] = {} after {}", n + 1, s.begin(n + 1), s.begin(n)));
  contract.require(s.begin(s.N) == s.T, "cu_seqlens", "must end at the number of tokens", [&] {
    return fmt::format("cu_seqlens[{}] = {}, T = {}", s.N, s.begin(s.N), s.T);
  });
}

Chunk chunk_of_slot(const Sequences& s, std::int64_t slot) {
  int n = 0;
  std::int64_t index = 0;  // of the chunk in its sequence
  if (s.packed) {
    int end = s.N;  // the last sequence that begins at or before the slot is in [n, end)
    while (end - n > 1) {
      const int middle = n + (end - n) / 2;
      (s.begin(middle) / kC + middle <= slot ? n : end) = middle;
    }
    index = slot - (s.begin(n) / kC + n);
  } else {
    const std::int64_t chunks = (s.T + kC - 1) / kC;
    n = static_cast<int>(slot / chunks);
    index = slot % chunks;
  }
  const std::int64_t rest = s.length(n) - index * kC;
  return {.batch = s.batch_row(n),
          .token = s.begin(n) + index * kC,
          .rows = static_cast<int>(std::clamp<std::int64_t>(rest, 0, kC))};
}

}  // namespace k3
