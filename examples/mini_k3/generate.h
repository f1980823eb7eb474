// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "examples/mini_k3/model.h"

namespace k3::mini {

/// Chooses the next byte: the likeliest at temperature 0, else a draw. One draw a byte, so the text
/// does not depend on how many bytes a step has made.
class Sampler {
 public:
  Sampler(float temperature, std::uint64_t seed) : temperature_(temperature), random_(seed) {}
  int choose(std::span<const float> logits);

 private:
  float temperature_;
  std::mt19937_64 random_;
};

/// What a text may go on with, at most `most` bytes: what followed its last few bytes where they
/// stood before. The longest such run of bytes decides, of equal ones the latest; the longer the
/// run, the longer the draft. Empty where fewer than four bytes stood there.
std::string_view draft_by_lookup(std::string_view text, std::size_t most);

struct GenerateRequest {
  std::string prompt;  ///< not empty
  std::int64_t tokens = 0;
  float temperature = 0;
  std::uint64_t seed = 0;
  int draft_tokens = 0;  ///< 0 .. kMaxStepTokens - 1; the text does not depend on it
};

struct GenerateFigures {
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::int64_t decode_steps = 0;
  std::int64_t verify_steps = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
};

/// Writes a text byte by byte as it comes: the prompt, and `tokens` bytes more.
GenerateFigures generate(Model& model, const GenerateRequest& request,
                         const std::function<void(std::string_view)>& write);

}  // namespace k3::mini
