// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "harness/inputs.h"
#include "harness/tensor.h"

/// Calls as a K3 layer makes them: raw gate and beta logits, safe gate with lower bound -5, norms
/// inside, fp32 states. For tests, benches and the demo; the cases of an op have makers of their
/// own, which reach every option.
namespace k3::harness {

struct PrefillLayer {
  std::vector<std::int64_t> lengths = {64};  ///< of the packed sequences
  std::int64_t H = 12;                       ///< of 96, on one of 8 ranks
  bool initial_state = true;
  std::uint64_t seed = 1;
  /// Tokens, and the states of sequences, come over and over after so many tokens; 0: never. For
  /// calls that take longer to draw than to run.
  std::int64_t period = 0;
};

/// Every tensor of the call, outputs poisoned.
Bundle prefill_layer(const PrefillLayer& layer);

struct DecodeLayer {
  std::int64_t B = 1;
  std::int64_t H = 12;
  std::int64_t slots = 0;             ///< of the pools; 0: B
  std::vector<std::int64_t> indices;  ///< empty: slots from the last one down
  std::uint64_t seed = 1;
};

/// Every tensor of the call without the optional conv_bias; out poisoned.
Bundle decode_layer(const DecodeLayer& layer);

/// The same layer as `kda_packed_decode` sees it: mixed_qkv has passed its convolution.
Bundle packed_layer(const DecodeLayer& layer);

struct CommitLayers {
  std::int64_t layers = 69;
  std::int64_t B = 1;
  std::int64_t H = 12;
  std::int64_t A = 4;  ///< accepted tokens of every request
  std::int64_t L = 8;  ///< verified tokens of every request
  std::uint64_t seed = 1;
};

/// A call of `kda_replay_commit` over layer-major pools of B slots; every layer holds the same
/// values.
Bundle commit_layers(const CommitLayers& c);

/// Every slot below B once, in an order that no prefetcher guesses.
std::vector<std::int64_t> shuffled_slots(std::int64_t B);

/// New values for the tensors of a decode call that come with each token.
void draw_next_token(Random& random, Bundle& decode);

/// What a verified chain leaves behind, beside out and conv_scratch.
enum class VerifyOutputs { kRings, kSnapshots };

struct VerifyLayer {
  std::int64_t N = 1;
  std::int64_t T = 8;  ///< tokens of every request
  std::int64_t H = 12;
  std::int64_t slots = 0;             ///< of the pools, and rows of the rings; 0: N
  std::vector<std::int64_t> indices;  ///< empty: slots from the last one down
  VerifyOutputs outputs = VerifyOutputs::kRings;
  std::uint64_t seed = 1;
};

/// Every tensor of the call without conv_bias, ring_indices and scratch_indices; outputs poisoned.
Bundle verify_layer(const VerifyLayer& layer);

}  // namespace k3::harness
