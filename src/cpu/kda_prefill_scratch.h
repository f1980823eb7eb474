// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_prefill.h"

namespace k3::cpu {

/// Tokens that one pass over the state absorbs. Divides kKdaChunkTokens, so that every state asked
/// for stands at a chunk's border; docs/kda_prefill_cpu.md has the measurement behind 16.
inline constexpr int kPrefillChunk = 16;
static_assert(kKdaChunkTokens % kPrefillChunk == 0);

/// Parts into which the columns of a state split at most.
inline constexpr int kPrefillMaxParts = 4;

/// Columns [v0, v1) of the state of one (sequence, value head): a recurrence of its own.
struct PrefillTask {
  int seq = 0;
  int head = 0;
  int v0 = 0;
  int v1 = 0;
  std::int64_t chunk_row = 0;  ///< the sequence's first row of chunk_states
};

/// What one thread keeps while it works on a task. Rows are tokens of the chunk; P_i is the product
/// of the decays of rows 0..i, per key. kPanel, the columns of a panel, depends on the SIMD target.
struct alignas(64) PrefillScratch {
  static constexpr int kC = kPrefillChunk;
  static constexpr int kD = kKdaHeadDim;
  static constexpr int kMaxPanel = kD / kPrefillMaxParts;

  float state[kD * kD];         ///< S as column panels [kD / kPanel][kD keys][kPanel]
  float k_decayed[kC][kD];      ///< k_i P_i
  float q_decayed[kC][kD];      ///< q_i P_i
  float k_remaining[kC][kD];    ///< k_i times the decays of the rows after i
  float gamma[kD];              ///< P of the last row
  float solve_matrix[kC][kC];   ///< L_ij = beta_i k_i . (k_j P_i / P_j), read for j < i
  float output_matrix[kC][kC];  ///< q_i . (k_j P_i / P_j), read for j <= i
  float beta[kC];
  float products[2 * kC * kMaxPanel];  ///< [2 kC][kPanel]: S^T k_decayed, then S^T q_decayed
  float new_values[kC * kMaxPanel];    ///< [kC][kPanel]: the corrections beta r of the recurrence

  float q[kC][kD];       ///< normalised, scaled
  float k[kC][kD];       ///< normalised
  float decay[kC][kD];   ///< exp(g)
  float walkers[4][kD];  ///< k_j P_i / P_j of four columns j, as i walks down
};

}  // namespace k3::cpu
