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

/// The last sequence whose slots begin at or before `slot`; a whole warp, which looks at 32 places
/// at once.
__device__ inline int last_sequence_before(const Sequences& s, std::int64_t slot) {
  constexpr unsigned kWarp = 0xFFFFFFFFU;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int n = 0;
  int past = s.N;
  while (past - n > 1) {
    const int step = (past - n + 31) / 32;
    const int probe = n + lane * step;
    const bool begins = probe < past && sequence_begin(s, probe) / kKdaChunkTokens + probe <= slot;
    const unsigned found = __ballot_sync(kWarp, begins) | 1U;
    n += (31 - __clz(static_cast<int>(found))) * step;
    past = min(past, n + step);
  }
  return n;
}

/// The numbering of `chunk_of_slot`. Wrong boundaries give slots that are empty or stand where
/// others do, never a token outside [0, T). There are fewer than 2^31 slots.
/// A whole warp calls it.
__device__ inline Chunk device_chunk_of_slot(const Sequences& s, std::int64_t slot) {
  constexpr std::int64_t kC = kKdaChunkTokens;
  Chunk chunk;
  std::int64_t index;  // of the chunk in its sequence
  std::int64_t begin = 0;
  std::int64_t end = s.T;
  if (s.packed) {
    const int n = last_sequence_before(s, slot);
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
