// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "contract/sequences.h"

/// Sequences on the device, where nobody has checked the values of cu_seqlens.
namespace k3::cuda {

/// cu_seqlens[n], clamped to [0, T].
__device__ inline std::int64_t sequence_begin(const Sequences& s, int n) {
  const std::int64_t at = s.cu_dtype == DType::kI64
                              ? static_cast<const std::int64_t*>(s.cu_seqlens)[n]
                              : static_cast<const std::int32_t*>(s.cu_seqlens)[n];
  return at < 0 ? 0 : (at < s.T ? at : s.T);
}

/// The numbering of `chunk_of_slot`. Wrong boundaries give slots that are empty or stand where
/// others do, never a token outside [0, T). A grid has fewer than 2^31 slots.
__device__ inline Chunk device_chunk_of_slot(const Sequences& s, std::int64_t slot) {
  constexpr std::int64_t kC = kKdaChunkTokens;
  Chunk chunk;
  std::int64_t index;  // of the chunk in its sequence
  std::int64_t begin = 0;
  std::int64_t end = s.T;
  if (s.packed) {
    int n = 0;
    int past = s.N;  // the last sequence that begins at or before the slot is in [n, past)
    while (past - n > 1) {
      const int middle = n + (past - n) / 2;
      if (sequence_begin(s, middle) / kC + middle <= slot)
        n = middle;
      else
        past = middle;
    }
    begin = sequence_begin(s, n);
    end = sequence_begin(s, n + 1);
    index = slot - (begin / kC + n);
  } else {
    const auto chunks = static_cast<std::uint32_t>((s.T + kC - 1) / kC);
    chunk.batch = static_cast<std::uint32_t>(slot) / chunks;
    index = static_cast<std::uint32_t>(slot) % chunks;
  }
  chunk.token = begin + index * kC;
  const std::int64_t rest = end - chunk.token;
  if (index >= 0 && rest > 0) chunk.rows = static_cast<int>(rest < kC ? rest : kC);
  return chunk;
}

}  // namespace k3::cuda
