// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace k3::mini {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::int32_t> tokens_of(std::string_view text) {
  std::vector<std::int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

/// One text on its way: all but the last byte of it has gone through the model.
class Writer {
 public:
  Writer(Model& model, const GenerateRequest& request,
         const std::function<void(std::string_view)>& write)
      : model_(model),
        write_(write),
        sampler_(request.temperature, request.seed),
        sequence_(model.start(static_cast<std::int64_t>(request.prompt.size()) + request.tokens)) {}

  void prefill(const std::string& prompt) {
    text_ = prompt;
    write_(text_);
    const Logits logits = model_.prefill(sequence_, tokens_of(prompt));
    next_ = sampler_.choose(logits.row(0));
  }

  void take_next() { take(next_); }

  void decode() {
    const Logits logits = model_.decode(sequence_, last_byte());
    next_ = sampler_.choose(logits.row(0));
  }

  /// Returns how many bytes of the draft were accepted. They are written; `next_` comes after them.
  std::size_t verify(std::string_view draft) {
    std::vector<std::int32_t> tokens = {last_byte()};
    for (const std::int32_t token : tokens_of(draft)) tokens.push_back(token);
    const Logits logits = model_.verify(sequence_, tokens);
    std::size_t accepted = 0;
    for (;; ++accepted) {
      next_ = sampler_.choose(logits.row(accepted));
      if (accepted + 1 == tokens.size() || next_ != tokens[accepted + 1]) break;
      take(next_);
    }
    model_.commit(sequence_, static_cast<std::int64_t>(accepted) + 1);
    return accepted;
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  [[nodiscard]] std::int32_t last_byte() const { return static_cast<unsigned char>(text_.back()); }
  void take(int byte) {
    text_.push_back(static_cast<char>(byte));
    write_(std::string_view(text_).substr(text_.size() - 1));
  }

  Model& model_;
  const std::function<void(std::string_view)>& write_;
  Sampler sampler_;
  Sequence sequence_;
  std::string text_;
  int next_ = 0;
};

}  // namespace

int Sampler::choose(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature_ <= 0) return static_cast<int>(best - logits.begin());
  std::vector<double> sums;
  double sum = 0;
  for (const float logit : logits)
    sums.push_back(sum += std::exp((static_cast<double>(logit) - *best) / temperature_));
  constexpr double kUnit = 0x1p-53;  // a uniform number of [0, 1), the same on every platform
  const double drawn = static_cast<double>(random_() >> 11) * kUnit * sum;
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), drawn);
  return static_cast<int>(std::min(chosen, sums.end() - 1) - sums.begin());
}

std::string_view draft_by_lookup(std::string_view text, std::size_t most) {
  constexpr std::size_t kShortest = 4;
  constexpr std::size_t kLongest = kShortest + kMaxStepTokens;
  if (text.empty()) return {};
  for (std::size_t length = std::min(kLongest, text.size() - 1); length >= kShortest; --length) {
    const std::string_view end = text.substr(text.size() - length);
    const std::size_t found = text.rfind(end, text.size() - length - 1);
    if (found != std::string_view::npos)
      return text.substr(found + length, std::min(most, length - kShortest + 1));
  }
  return {};
}

GenerateFigures generate(Model& model, const GenerateRequest& request,
                         const std::function<void(std::string_view)>& write) {
  GenerateFigures figures;
  Writer writer(model, request, write);
  const auto begin = std::chrono::steady_clock::now();
  writer.prefill(request.prompt);
  figures.prefill_seconds = seconds_since(begin);

  const auto decode_begin = std::chrono::steady_clock::now();
  const std::size_t whole = request.prompt.size() + static_cast<std::size_t>(request.tokens);
  while (writer.text().size() < whole) {
    writer.take_next();
    const std::size_t left = whole - writer.text().size();
    if (left == 0) break;
    const std::size_t most = std::min<std::size_t>(left - 1, request.draft_tokens);
    const std::string draft(draft_by_lookup(writer.text(), most));
    if (draft.empty()) {
      writer.decode();
      ++figures.decode_steps;
    } else {
      figures.accepted += static_cast<std::int64_t>(writer.verify(draft));
      figures.drafted += static_cast<std::int64_t>(draft.size());
      ++figures.verify_steps;
    }
  }
  figures.decode_seconds = seconds_since(decode_begin);
  return figures;
}

}  // namespace k3::mini
