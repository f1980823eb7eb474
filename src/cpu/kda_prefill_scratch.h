// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_prefill.h"

namespace k3::cpu {

/// Tokens that one pass over the state absorbs. Divides kKdaChunkTokens, so that every state asked
/// for stands at a chunk's border; docs/kda_prefill_cpu.md has the measurement behind 16.
inline constexpr int kPrefillChunk = 16;
static_assert(kKdaChunkTokens % kPrefillChunk == 0);

/// What one thread keeps while it works on one (sequence, head). Rows are tokens of the chunk.
/// P_i is the product of the decays of rows 0..i, per key.
struct alignas(64) PrefillScratch {
  static constexpr int kC = kPrefillChunk;
  static constexpr int kD = kKdaHeadDim;

  float state[kD * kD];          ///< S as column panels [kD / kPanel][kD keys][kPanel]
  float k_decayed[kC][kD];       ///< k_i P_i
  float q_decayed[kC][kD];       ///< q_i P_i; stands behind k_decayed: one matrix of 2 kC rows
  float k_remaining[kC][kD];     ///< k_i times the decays of the rows after i
  float gamma[kD];               ///< P of the last row
  float solve_matrix[kC][kC];    ///< L_ij = beta_i k_i . (k_j P_i / P_j), read for j < i
  float output_matrix[kC][kC];   ///< q_i . (k_j P_i / P_j), read for j <= i
  float beta[kC];
  float products[2 * kC * kD];   ///< [2 kC][kPanel]: S^T k_decayed, then S^T q_decayed
  float new_values[kC * kD];     ///< [kC][kPanel]: the corrections beta r of the recurrence

  float q[kC][kD];               ///< normalised, scaled
  float k[kC][kD];               ///< normalised
  float decay[kC][kD];           ///< exp(g)
  float walkers[4][kD];          ///< k_j P_i / P_j of four columns j, as i walks down
};

}  // namespace k3::cpu
