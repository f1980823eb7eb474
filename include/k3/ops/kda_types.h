// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the KDA ops have in common.
namespace k3 {

/// Where a value that is fp32 inside is rounded to bf16 on its way.
enum class Rounding { kF32, kBF16 };

/// Axis order of the last two axes of a state: [.., V, K] or [.., K, V].
enum class StateLayout { kVK, kKV };

/// Tokens between two rows of a prefill's `chunk_states`, and the unit of `track_chunk_idx`.
inline constexpr int kKdaChunkTokens = 64;

}  // namespace k3
