// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/checks.h"
#include "k3/ops/kda_types.h"
#include "k3/tensor.h"

namespace k3 {

/// The sequences of a call over [B, T, ...]: its batch rows, or what cu_seqlens packs into one.
/// Members that read cu_seqlens are for host memory only, after `check_values`.
struct Sequences {
  int N = 0;
  std::int64_t T = 0;                ///< tokens of one batch row (packed: of all sequences)
  bool packed = false;               ///< cu_seqlens given; else sequence n is batch row n
  const void* cu_seqlens = nullptr;  ///< [N+1] i32 or i64, stride 1
  DType cu_dtype = DType::kI32;

  [[nodiscard]] std::int64_t begin(int n) const {
    if (!packed) return 0;
    return cu_dtype == DType::kI64 ? static_cast<const std::int64_t*>(cu_seqlens)[n]
                                   : static_cast<const std::int32_t*>(cu_seqlens)[n];
  }
  [[nodiscard]] std::int64_t length(int n) const { return packed ? begin(n + 1) - begin(n) : T; }
  [[nodiscard]] std::int64_t batch_row(int n) const { return packed ? 0 : n; }

  /// Chunks of 64 tokens, numbered without a sum over lengths: sequence n owns the slots from
  /// begin(n) / 64 + n on, as many as it has chunks or one more. Every chunk of every sequence has
  /// one slot; the others are empty.
  [[nodiscard]] std::int64_t num_chunk_slots() const {
    if (packed) return T / kKdaChunkTokens + N;
    return N * ((T + kKdaChunkTokens - 1) / kKdaChunkTokens);
  }
};

/// Rules of cu_seqlens in host memory: from 0, never decreasing, up to T. @throws ContractError
void check_values(const Contract& contract, const Sequences& sequences);

/// The tokens of one chunk slot.
struct Chunk {
  std::int64_t batch = 0;  ///< row of B
  std::int64_t token = 0;  ///< first one, in the batch row
  int rows = 0;            ///< 0: an empty slot
};

/// Host memory only.
Chunk chunk_of_slot(const Sequences& sequences, std::int64_t slot);

}  // namespace k3
