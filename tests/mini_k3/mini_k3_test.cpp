// SPDX-License-Identifier: Apache-2.0
// The example in examples/mini_k3, a whole trained K3, against a float64 evaluation of it that goes
// token by token (model/reference.safetensors), and its phases against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "examples/mini_k3/generate.h"
#include "examples/mini_k3/machine.h"
#include "examples/mini_k3/model.h"
#include "harness/device.h"
#include "io/safetensors.h"

namespace k3::mini {
namespace {

std::string model_folder() {
  const char* moved = std::getenv("K3_MINI_MODEL");
  return moved != nullptr ? moved : K3_SOURCE_DIR "/examples/mini_k3/model";
}

template <class T>
std::vector<T> values_of(const io::SafeTensors& file, const std::string& name) {
  const auto bytes = file.tensors.at(name).bytes;
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// rms(ref - x) / rms(ref)
double error_of(std::span<const float> ref, std::span<const float> x) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    difference += std::pow(static_cast<double>(ref[i]) - x[i], 2);
    size += std::pow(static_cast<double>(ref[i]), 2);
  }
  return std::sqrt(difference / size);
}

std::size_t best_of(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Some 60 roundings to bf16 stand behind a logit, 1.65e-3 sqrt(60) = 1.3e-2 of its size. Logits
// have a size of 9.5, so a difference of two is off by 0.2; a row in which two experts nearly tie
// takes the other one and is a few times further off.
constexpr double kTolerance = 2e-2;
constexpr double kSameChoice = 0.97;
constexpr float kNearTie = 0.05F;
constexpr float kClearChoice = 1.0F;

class MiniK3 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool on_cuda = GetParam() == std::string("on_cuda_device");
    if (on_cuda && harness::cuda_unusable() != nullptr) GTEST_SKIP() << harness::cuda_unusable();
    machine_ = on_cuda ? make_cuda_machine() : make_cpu_machine();
    model_ = std::make_unique<Model>(model_folder(), *machine_);
    reference_ = io::load(model_folder() + "/reference.safetensors");
    passage_ = values_of<std::int32_t>(reference_, "passage");
  }

  [[nodiscard]] std::span<const std::int32_t> passage(std::size_t begin, std::size_t end) const {
    return std::span(passage_).subspan(begin, end - begin);
  }

  std::string text_of(const GenerateRequest& request, GenerateFigures* figures = nullptr) {
    std::string text;
    const auto all = generate(*model_, request, [&](std::string_view bytes) { text += bytes; });
    if (figures != nullptr) *figures = all;
    return text;
  }

  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Model> model_;
  io::SafeTensors reference_;
  std::vector<std::int32_t> passage_;
};

void expect_near_reference(const std::vector<float>& reference, const std::vector<float>& logits,
                           std::size_t vocab_size) {
  ASSERT_EQ(reference.size(), logits.size());
  EXPECT_LT(error_of(reference, logits), kTolerance);
  const std::size_t num_rows = logits.size() / vocab_size;
  std::size_t same = 0;
  for (std::size_t r = 0; r < num_rows; ++r) {
    const auto row = [&](const auto& all) {
      return std::span(all).subspan(r * vocab_size, vocab_size);
    };
    same += best_of(row(reference)) == best_of(row(logits)) ? 1 : 0;
  }
  EXPECT_GE(static_cast<double>(same), kSameChoice * static_cast<double>(num_rows));
  testing::Test::RecordProperty("error", std::to_string(error_of(reference, logits)));
  testing::Test::RecordProperty("same_choices", static_cast<int>(same));
}

TEST_P(MiniK3, PrefillGivesTheReferencesLogits) {
  Sequence text = model_->start(static_cast<std::int64_t>(passage_.size()));
  const Logits logits = model_->prefill(text, passage_, static_cast<std::int64_t>(passage_.size()));
  expect_near_reference(values_of<float>(reference_, "passage_logits"), logits.values,
                        static_cast<std::size_t>(logits.vocab_size));
}

TEST_P(MiniK3, PrefillRepeatsItsBits) {
  std::vector<float> first;
  for (int repeat = 0; repeat < 4; ++repeat) {
    Sequence text = model_->start(static_cast<std::int64_t>(passage_.size()));
    const Logits logits = model_->prefill(text, passage_, 100);
    if (repeat == 0) first = logits.values;
    EXPECT_TRUE(same_bits(first, logits.values));
  }
}

TEST_P(MiniK3, ATextStaysInItsMemory) {
  Sequence text = model_->start(20);
  EXPECT_THROW(model_->prefill(text, passage(0, 21)), Error);
  model_->prefill(text, passage(0, 19));
  EXPECT_THROW(model_->verify(text, passage(19, 21)), Error);
  EXPECT_NO_THROW(model_->decode(text, passage_[19]));
  EXPECT_THROW(model_->decode(text, passage_[20]), Error);
}

TEST_P(MiniK3, DecodeGivesTheReferencesLogits) {
  Sequence text = model_->start(static_cast<std::int64_t>(passage_.size()));
  std::vector<float> all;
  for (const std::int32_t token : passage_) {
    const Logits logits = model_->decode(text, token);
    all.insert(all.end(), logits.values.begin(), logits.values.end());
  }
  expect_near_reference(values_of<float>(reference_, "passage_logits"), all,
                        static_cast<std::size_t>(model_->config().vocab_size));
}

TEST_P(MiniK3, GreedyTextIsTheReferencesUpToANearTie) {
  for (const char* name : {"a", "b"}) {
    const auto expected = values_of<std::int32_t>(reference_, std::string("greedy_") + name);
    const auto gap = values_of<float>(reference_, std::string("greedy_") + name + "_gap");
    GenerateRequest request;
    request.prompt = reference_.metadata.at(std::string("prompt_") + name);
    request.tokens = static_cast<std::int64_t>(gap.size());
    const std::string text = text_of(request);
    ASSERT_EQ(text.size(), expected.size());
    for (std::size_t step = 0; step < gap.size() && gap[step] >= kNearTie; ++step) {
      const std::size_t at = request.prompt.size() + step;
      ASSERT_EQ(static_cast<unsigned char>(text[at]), expected[at]) << name << " step " << step;
    }
  }
}

/// Along the reference's text, whatever was chosen before: past the first near tie, too.
TEST_P(MiniK3, ChoosesTheReferencesBytes) {
  for (const char* name : {"a", "b"}) {
    const auto expected = values_of<std::int32_t>(reference_, std::string("greedy_") + name);
    const auto gap = values_of<float>(reference_, std::string("greedy_") + name + "_gap");
    const std::size_t prompt = expected.size() - gap.size();
    Sequence text = model_->start(static_cast<std::int64_t>(expected.size()));
    Logits logits = model_->prefill(text, std::span(expected).first(prompt));
    std::size_t compared = 0;
    for (std::size_t step = 0; step < gap.size(); ++step) {
      const std::int32_t next = expected[prompt + step];
      if (gap[step] >= kClearChoice) {
        ++compared;
        EXPECT_EQ(best_of(logits.row(0)), static_cast<std::size_t>(next))
            << name << " step " << step << ", gap " << gap[step];
      }
      if (step + 1 < gap.size()) logits = model_->decode(text, next);
    }
    EXPECT_GT(compared, gap.size() / 2) << name;
  }
}

/// One row of another way may be further off: where two experts nearly tie, it takes the other one.
/// So all rows together are held to the tolerance.
TEST_P(MiniK3, APromptInPiecesContinuesAlike) {
  constexpr std::size_t kPrompt = 200;
  const auto continued = [&](const std::vector<std::size_t>& ends) {
    Sequence text = model_->start(static_cast<std::int64_t>(passage_.size()));
    Logits logits;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      logits = model_->prefill(text, passage(begin, end));
      begin = end;
    }
    std::vector<float> all = logits.values;
    for (std::size_t t = kPrompt; t < passage_.size(); ++t) {
      const Logits next = model_->decode(text, passage_[t]);
      all.insert(all.end(), next.values.begin(), next.values.end());
    }
    return all;
  };
  const std::vector<float> whole = continued({kPrompt});
  for (const std::vector<std::size_t>& ends :
       {std::vector<std::size_t>{1, 2, 5, kPrompt}, {16, 33, 97, 161, kPrompt}, {63, 64, kPrompt}})
    EXPECT_LT(error_of(whole, continued(ends)), kTolerance) << ends.size() << " pieces";
  std::vector<float> reference = values_of<float>(reference_, "passage_logits");
  const auto vocab_size = static_cast<std::size_t>(model_->config().vocab_size);
  reference.erase(reference.begin(),
                  reference.begin() + static_cast<std::ptrdiff_t>((kPrompt - 1) * vocab_size));
  expect_near_reference(reference, whole, vocab_size);
}

TEST_P(MiniK3, VerifyIsDecodeBitForBitAndCommitGoesOnAlike) {
  for (const std::size_t accepted : {std::size_t{1}, std::size_t{7}, std::size_t{16}}) {
    Sequence decoded = model_->start(300);
    Sequence verified = model_->start(300);
    model_->prefill(decoded, passage(0, 100));
    model_->prefill(verified, passage(0, 100));
    const Logits rows = model_->verify(verified, passage(100, 116));
    model_->commit(verified, static_cast<std::int64_t>(accepted));
    for (std::size_t t = 0; t < accepted; ++t)
      EXPECT_TRUE(same_bits(model_->decode(decoded, passage_[100 + t]).values, rows.row(t))) << t;
    for (std::size_t t = 100 + accepted; t < 140; ++t)
      EXPECT_TRUE(same_bits(model_->decode(decoded, passage_[t]).values,
                            model_->decode(verified, passage_[t]).values))
          << t;
  }
}

TEST_P(MiniK3, SpeculationDoesNotChangeTheText) {
  GenerateRequest request;
  request.prompt = "And the sons of Reuben; and the sons of Simeon; and the sons of ";
  request.tokens = 200;
  for (const float temperature : {0.0F, 0.6F}) {
    request.temperature = temperature;
    request.draft_tokens = 0;
    const std::string plain = text_of(request);
    EXPECT_EQ(plain.rfind(request.prompt, 0), 0U);
    for (const int draft_tokens : {1, 4, 15}) {
      request.draft_tokens = draft_tokens;
      GenerateFigures figures;
      EXPECT_EQ(text_of(request, &figures), plain) << draft_tokens;
      EXPECT_GT(figures.accepted, 0);
      EXPECT_LT(figures.accepted, figures.drafted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, MiniK3, testing::Values("on_cpu_device", "on_cuda_device"),
                         [](const auto& info) { return info.param; });

TEST(MiniK3Sampler, DrawsByProbabilityAndRepeatsASeed) {
  const std::vector<float> logits = {0.0F, std::log(3.0F), -1000.0F};
  EXPECT_EQ(Sampler(0, 1).choose(logits), 1);
  Sampler sampler(1, 7);
  Sampler same(1, 7);
  std::vector<int> counts(3);
  for (int i = 0; i < 4000; ++i) {
    const int chosen = sampler.choose(logits);
    ASSERT_EQ(chosen, same.choose(logits));
    ++counts[static_cast<std::size_t>(chosen)];
  }
  EXPECT_NEAR(counts[1], 3000, 150);
  EXPECT_EQ(counts[2], 0);
}

TEST(MiniK3Drafts, FollowTheLongestAndLatestMatch) {
  EXPECT_EQ(draft_by_lookup("abcdX;abcdY,abcd", 9), "Y");
  EXPECT_EQ(draft_by_lookup("zabcdX;abcdY,zabcd", 9), "X;");
  EXPECT_EQ(draft_by_lookup("zabcdX;abcdY,zabcd", 1), "X");
  EXPECT_EQ(draft_by_lookup("abababababab", 9), "ab");
  EXPECT_EQ(draft_by_lookup("abcX abc", 9), "");
  EXPECT_EQ(draft_by_lookup("a", 9), "");
  EXPECT_EQ(draft_by_lookup("abcdX abcd", 0), "");
}

}  // namespace
}  // namespace k3::mini
