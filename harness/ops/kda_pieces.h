// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "harness/driver.h"
#include "harness/inputs.h"
#include "harness/tensor.h"

/// Inputs of the ops that a chunk of the delta rule is made of.
namespace k3::harness {

enum class Keys { kRandom, kPositive, kNearEqual, kEqual };

/// Keys of a chunk and how they decay.
struct ChunkKeys {
  Keys keys = Keys::kRandom;
  double norm = 1.0;        ///< of each key
  double log_gate = -0.01;  ///< of each step and channel
};

/// 64 keys of 128 channels, as doubles.
std::vector<double> chunk_keys(Random& random, const ChunkKeys& keys);

/// Below the diagonals of L [.., 64, 64], beta_i k_i . k_j e^{log_gate (i - j)} with new keys for
/// each matrix; beta is [.., 64]. On and above the diagonals stand NaN and Inf.
void set_chunk_matrices(Random& random, const ChunkKeys& keys, const Tensor& beta, Tensor& L);

/// Copies the elements of `block` into all of a dense tensor, over and over.
Tensor repeated(const Tensor& block, std::vector<std::int64_t> shape);

/// The sizes that these ops are benched at: `shape` makes one from tokens and heads.
std::vector<BenchShape> chunk_bench_shapes(Level level,
                                           BenchShape (*shape)(std::int64_t T, std::int64_t H));

}  // namespace k3::harness
