// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "examples/mini_k3/ffn.h"
#include "examples/mini_k3/mla.h"
#include "examples/mini_k3/view.h"
#include "k3/k3.h"

namespace k3::mini {

Model::Model(const std::string& folder, Machine& machine)
    : config_(load_config(folder + "/config.json")),
      weights_(load_weights(folder + "/model.safetensors", config_, machine)),
      rt_(config_, machine) {
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer)
    index_in_kind_.push_back(config_.is_mla(layer) ? num_mla_++ : num_kda_++);
}

Sequence Model::start(std::int64_t capacity) {
  Machine& machine = rt_.machine();
  Array cache(machine, DType::kBF16, {num_mla_, capacity, config_.cache_width()});
  return {KdaState(config_, machine, num_kda_), std::move(cache), capacity};
}

Logits Model::prefill(Sequence& text, std::span<const std::int32_t> tokens,
                      std::int64_t num_logits) {
  Logits logits;
  auto left = static_cast<std::int64_t>(tokens.size());
  while (left > 0) {
    const std::int64_t piece = std::min(left, kPieceTokens);
    left -= piece;
    const std::int64_t wanted = std::clamp<std::int64_t>(num_logits - left, 0, piece);
    const Logits of_piece =
        forward(text, Phase::kPrefill, tokens.first(static_cast<std::size_t>(piece)), wanted);
    logits.vocab_size = of_piece.vocab_size;
    logits.values.insert(logits.values.end(), of_piece.values.begin(), of_piece.values.end());
    tokens = tokens.subspan(static_cast<std::size_t>(piece));
    text.length += piece;
  }
  return logits;
}

Logits Model::decode(Sequence& text, std::int32_t token) {
  Logits logits = forward(text, Phase::kDecode, {&token, 1}, 1);
  text.length += 1;
  return logits;
}

Logits Model::verify(Sequence& text, std::span<const std::int32_t> tokens) {
  return forward(text, Phase::kVerify, tokens, static_cast<std::int64_t>(tokens.size()));
}

void Model::commit(Sequence& text, std::int64_t accepted) {
  if (accepted < 0 ||
      accepted > std::min<std::int64_t>(kMaxStepTokens, text.capacity - text.length))
    throw Error(fmt::format("{} accepted tokens are more than a verify step left", accepted));
  kda_commit(rt_, text.kda, static_cast<std::int32_t>(accepted));
  text.length += accepted;
}

Logits Model::forward(Sequence& text, Phase phase, std::span<const std::int32_t> tokens,
                      std::int64_t num_logits) {
  const auto T = static_cast<std::int64_t>(tokens.size());
  if (phase == Phase::kVerify && (T < 1 || T > kMaxStepTokens))
    throw Error(fmt::format("a verify step takes 1 to {} tokens, not {}", kMaxStepTokens, T));
  if (T > text.capacity - text.length)
    throw Error(fmt::format("a text of {} tokens has no room for {} more", text.length, T));
  const Scratch::Frame frame(rt_.scratch());
  Machine& machine = rt_.machine();
  // Below that, the ops of one text are too small to share: threads would wait for each other.
  constexpr std::int64_t kTokensForThreads = 64;
  machine.use_threads(T > kTokensForThreads ? 0 : 1);

  const TensorView ids = rt_.i32({T});
  machine.upload(ids.data, tokens.data(), tokens.size_bytes());
  std::vector<std::int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(text.length));
  const TensorView position = rt_.i32({T});
  machine.upload(position.data, positions.data(), tokens.size_bytes());
  const std::int32_t bounds[] = {0, static_cast<std::int32_t>(T)};
  const TensorView query_start_loc = rt_.i32({2});
  machine.upload(query_start_loc.data, bounds, sizeof bounds);
  const Step step = {phase, T, position, query_start_loc};

  Logits logits;
  logits.vocab_size = config_.vocab_size;
  logits.values.resize(static_cast<std::size_t>(num_logits * config_.vocab_size));
  const TensorView scores = rt_.f32({num_logits, config_.vocab_size});
  if (phase == Phase::kPrefill)
    layers(text, step, ids, scores);
  else
    machine.replay(text.recordings[phase == Phase::kDecode ? 0 : tokens.size()],
                   [&] { layers(text, step, ids, scores); });
  if (num_logits > 0)
    machine.download(logits.values.data(), scores.data, logits.values.size() * sizeof(float));
  return logits;
}

/// From token ids to the logits of the last of them.
void Model::layers(Sequence& text, const Step& step, const ConstTensorView& ids,
                   const TensorView& logits) {
  const Scratch::Frame frame(rt_.scratch());
  const std::int64_t T = step.tokens;
  const std::int64_t hidden = config_.hidden_size;
  TensorView prefix = rt_.bf16({T, hidden});  // what the sublayers of this block have added up
  TensorView y = rt_.bf16({T, hidden});
  const TensorView x = rt_.bf16({T, hidden});
  const TensorView bank = rt_.bf16({T, config_.num_blocks(), hidden});  // embedding, full blocks
  rt_.machine().embed(ids, weights_.embedding, prefix);

  const std::int64_t block = config_.attn_res_block;
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    const Layer& layer = weights_.layers[l];
    const auto index = static_cast<std::int64_t>(l);
    const bool starts_block = index % block == 0;
    mix(layer.attention_mix, bank, prefix, (index + block - 1) / block, starts_block, x);
    attention(l, text, step, x, y);
    if (starts_block)
      std::swap(prefix, y);
    else
      rt_.add(prefix, y, prefix);
    mix(layer.ffn_mix, bank, prefix, index / block + 1, false, x);
    ffn(l, x, prefix, y);
    std::swap(prefix, y);
  }
  mix(weights_.final_mix, bank, prefix, config_.num_blocks(), false, x);
  rt_.linear(rows(x, T - logits.shape[0], T), weights_.head, logits);
}

/// x = norm of the learned mixture of the first rows of the bank and the prefix; a snapshot puts
/// the prefix behind those rows.
void Model::mix(const MixWeights& w, const TensorView& bank, const ConstTensorView& prefix,
                std::int64_t num_blocks, bool snapshot, const TensorView& x) {
  AttnResMixArgs args;
  args.bank = bank;
  args.prefix = prefix;
  args.score_norm_weight = w.score_norm;
  args.score_proj = w.score_proj;
  args.out_norm_weight = w.out_norm;
  args.out = x;
  args.num_bank_rows = static_cast<int>(num_blocks);
  args.eps = config_.rms_norm_eps;
  args.write_prefix = snapshot;
  rt_.run(attn_res_mix, attn_res_mix_workspace_size, args);
}

void Model::attention(std::size_t layer, Sequence& text, const Step& step, const ConstTensorView& x,
                      const TensorView& y) {
  const auto& weights = weights_.layers[layer].attention;
  const int index = index_in_kind_[layer];
  if (const auto* kda = std::get_if<KdaWeights>(&weights))
    kda_attention(rt_, *kda, text.kda, index, step, x, y);
  else
    mla_attention(rt_, std::get<MlaWeights>(weights), select(text.mla_cache.view(), 0, index), step,
                  x, y);
}

void Model::ffn(std::size_t layer, const ConstTensorView& x, const ConstTensorView& prefix,
                const TensorView& y) {
  const auto& weights = weights_.layers[layer].ffn;
  if (const auto* dense = std::get_if<DenseWeights>(&weights))
    dense_ffn(rt_, *dense, x, prefix, y);
  else
    moe_ffn(rt_, std::get<MoeWeights>(weights), x, prefix, y);
}

}  // namespace k3::mini
