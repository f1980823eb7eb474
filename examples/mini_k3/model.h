// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/mini_k3/kda.h"
#include "examples/mini_k3/runtime.h"
#include "examples/mini_k3/step.h"

/// A whole K3, small enough to read: attention residuals around KDA and MLA layers, dense and
/// routed feed-forward blocks, over the ops of libk3.
namespace k3::mini {

/// What a model remembers of one text.
struct Sequence {
  KdaState kda;
  Array mla_cache;  ///< [MLA layers, capacity, kv_rank + rope] bf16
  std::int64_t capacity = 0;
  std::int64_t length = 0;  ///< tokens so far
  /// Of a decode step, and of a verify step by its number of tokens.
  std::array<std::unique_ptr<Recording>, kMaxStepTokens + 1> recordings{};
};

/// Rows of logits on the host.
struct Logits {
  std::vector<float> values;
  int vocab_size = 0;
  [[nodiscard]] std::span<const float> row(std::size_t index) const {
    const auto size = static_cast<std::size_t>(vocab_size);
    return std::span(values).subspan(index * size, size);
  }
};

class Model {
 public:
  /// Reads config.json and model.safetensors. @throws io::FileError naming the field or tensor
  Model(const std::string& folder, Machine& machine);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const Config& config() const { return config_; }

  /// Memory for a text of up to `capacity` tokens, which no later call may pass (Error).
  /// @throws std::bad_alloc
  Sequence start(std::int64_t capacity);

  /// The next tokens of a prompt, in pieces of at most kPieceTokens. Returns the last `num_logits`
  /// rows of logits.
  Logits prefill(Sequence& text, std::span<const std::int32_t> tokens, std::int64_t num_logits = 1);
  /// One token.
  Logits decode(Sequence& text, std::int32_t token);
  /// Up to kMaxStepTokens tokens, with logits behind each: bit for bit what as many calls of
  /// `decode` would give. The text stays where it is until `commit`.
  Logits verify(Sequence& text, std::span<const std::int32_t> tokens);
  /// Takes the first `accepted` tokens of the last `verify` into the text.
  void commit(Sequence& text, std::int64_t accepted);

  static constexpr std::int64_t kPieceTokens = 256;

 private:
  Logits forward(Sequence& text, Phase phase, std::span<const std::int32_t> tokens,
                 std::int64_t num_logits);
  void layers(Sequence& text, const Step& step, const ConstTensorView& ids,
              const TensorView& logits);
  void mix(const MixWeights& w, const TensorView& bank, const ConstTensorView& prefix,
           std::int64_t num_blocks, bool snapshot, const TensorView& x);
  void attention(std::size_t layer, Sequence& text, const Step& step, const ConstTensorView& x,
                 const TensorView& y);
  void ffn(std::size_t layer, const ConstTensorView& x, const ConstTensorView& prefix,
           const TensorView& y);

  Config config_;
  Weights weights_;
  std::vector<int> index_in_kind_;  ///< of each layer, among the KDA or the MLA layers
  int num_kda_ = 0;
  int num_mla_ = 0;
  Runtime rt_;
};

}  // namespace k3::mini
