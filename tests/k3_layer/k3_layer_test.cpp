// SPDX-License-Identifier: Apache-2.0
// The example in examples/k3_layer against the same layers in double precision, and its modes
// against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "examples/k3_layer/layer.h"
#include "harness/device.h"
#include "tests/k3_layer/reference.h"

namespace k3::layer {
namespace {

using harness::Bundle;
using harness::RunOn;
using harness::Tensor;

Sizes small_sizes() {
  Sizes sizes;
  sizes.heads = 2;
  sizes.expert_width = 128;
  sizes.shared_width = 64;
  sizes.hidden = 256;
  sizes.latent = 128;
  sizes.experts = 64;
  sizes.topk = 4;
  sizes.q_rank = 64;
  sizes.kv_rank = 64;
  sizes.rope = 16;
  sizes.bank_rows = 3;
  return sizes;
}

Request request_of(Mode mode, const Sizes& sizes, std::int64_t batch, std::int64_t tokens,
                   std::int64_t steps) {
  Request r;
  r.mode = mode;
  r.sizes = sizes;
  r.batch = batch;
  r.tokens = tokens;
  r.accepted = tokens;
  r.context = 3;
  r.steps = steps;
  return r;
}

/// Tensors, and what steps over them.
class LayerRun {
 public:
  LayerRun(const Request& request, RunOn on, bool fused = true, int threads = 0)
      : request_(request), tensors_(make_tensors(request)) {
    const Ops ops = step_ops(request, tensors_, fused);
    if (on == RunOn::kCuda)
      runner_ = make_cuda_runner(ops);
    else
      runner_ = std::make_unique<CpuRunner>(ops, threads);
  }

  Bundle& tensors() { return tensors_; }
  /// With its inputs as they stand in the tensors.
  void step() {
    for (const char* name : kStepInputs) runner_->put(tensors_.tensors.at(name));
    runner_->step();
  }
  void step(std::int64_t index) {
    draw_inputs(request_, index, tensors_);
    step();
  }
  const Tensor& get(const char* name) {
    Tensor& tensor = tensors_.tensors.at(name);
    runner_->get(tensor);
    return tensor;
  }
  void put(const char* name, const Tensor& from) {
    Tensor& tensor = tensors_.tensors.at(name);
    std::memcpy(tensor.storage(), from.storage(), tensor.storage_bytes());
    runner_->put(tensor);
  }

 private:
  const Request request_;
  Bundle tensors_;
  std::unique_ptr<Runner> runner_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.storage_bytes() == b.storage_bytes() &&
         std::memcmp(a.storage(), b.storage(), a.storage_bytes()) == 0;
}

/// rms(ref - x) / rms(ref)
double error_of(const std::vector<double>& ref, const std::vector<double>& x) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    difference += (ref[i] - x[i]) * (ref[i] - x[i]);
    size += ref[i] * ref[i];
  }
  return std::sqrt(difference / size);
}

/// Of e4m3 codes with a UE8M0 scale for each 32 columns.
std::vector<double> dequantised(const Tensor& codes, const Tensor& scales, std::int64_t group,
                                bool transposed) {
  const std::int64_t rows = codes.shape()[0];
  const std::int64_t columns = codes.shape()[1];
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(scales.storage());
  const std::int64_t words = (columns / group + 3) / 4;
  std::vector<double> values;
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    const std::int64_t row = i / columns;
    const std::int64_t g = i % columns / group;
    const std::int64_t word = transposed ? g / 4 * rows + row : row * words + g / 4;
    values.push_back(codes.get(i) * std::ldexp(1.0, bytes[4 * word + g % 4] - 127));
  }
  return values;
}

/// Rows of the cache that this step has written.
std::vector<double> written_rows(LayerRun& run) {
  const Tensor& cache = run.get("kv_cache");
  const Tensor& slots = run.tensors().tensors.at("cache_slots");
  std::vector<double> values;
  for (std::int64_t r = 0; r < slots.numel(); ++r)
    for (std::int64_t i = 0; i < cache.shape()[1]; ++i)
      values.push_back(cache.get(static_cast<std::int64_t>(slots.get(r)) * cache.shape()[1] + i));
  return values;
}

/// Rounding to bf16 costs 1.65e-3, n independent ones the root of n times that. Twice is allowed.
double after_roundings(int n) { return 2.0 * 1.65e-3 * std::sqrt(n); }

/// One step of both. A bound counts the roundings that a value has behind it, less those that a sum
/// with other terms dilutes. The number of steps does not enter: a state takes in what a step adds
/// with that step's error, and forgets both together.
void expect_step_agrees(LayerRun& run, Reference& reference, const Request& request) {
  for (const char* name : {"topk_ids", "topk_weights"}) run.get(name);
  reference.step(run.tensors(), 5e-3);
  const auto expect = [&](const char* name, const std::vector<double>& ref, int roundings) {
    EXPECT_LE(error_of(ref, run.get(name).values()), after_roundings(roundings)) << name;
  };
  expect("kda_x", reference.kda_x, 1);
  expect("conv_states", reference.conv_states, 2);  // x, projected
  expect("forget", reference.forget, 3);            // x, its projection, itself
  expect("state", reference.state, 6);              // k and v, three each; gates
  expect("kda_out", reference.kda_out, 10);         // q, too, and its own gate
  expect("prefix_kda", reference.prefix_kda, 3);    // half of it comes in exact
  expect("moe_x", reference.moe_x, 4);
  expect("topk_weights", reference.topk_weights, 1);  // a sigmoid is flatter than its logit
  expect("routed", reference.routed, 2);
  expect("prefix_moe", reference.prefix_moe, 7);
  expect("q_out", reference.q_out, 3);
  expect("mla_out", reference.mla_out, 4);
  expect("out", reference.out, 7);
  EXPECT_LE(error_of(reference.kv_row, written_rows(run)), after_roundings(9)) << "kv_cache";

  // e4m3 rounds by 2^-4 of a value at most, evenly: 2^-4 / sqrt(3) in the mean at worst.
  constexpr double kCodes = 0.0361;
  run.get("latent_scales");
  EXPECT_LE(error_of(reference.latent,
                     dequantised(run.get("latent_codes"), run.tensors().tensors.at("latent_scales"),
                                 kQuantGroup, false)),
            kCodes + after_roundings(4));
  const bool fused = request.sizes.expert_width % 128 == 0;
  run.get("expert_scales");
  EXPECT_LE(error_of(reference.expert_act,
                     dequantised(run.get("expert_codes"), run.tensors().tensors.at("expert_scales"),
                                 fused ? 128 : kQuantGroup, fused)),
            kCodes + after_roundings(1));
}

class K3Layer : public testing::TestWithParam<RunOn> {
 protected:
  void SetUp() override {
    if (GetParam() != RunOn::kCuda) return;
    if (const char* why = harness::cuda_unusable()) GTEST_SKIP() << why;
  }

  static void expect_agrees_with_double_precision(const Request& request) {
    LayerRun run(request, GetParam());
    Reference reference(request, run.tensors());
    for (std::int64_t step = 0; step < request.steps && !HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      run.step(step);
      expect_step_agrees(run, reference, request);
    }
  }
};

TEST_P(K3Layer, DecodeAgreesWithDoublePrecision) {
  expect_agrees_with_double_precision(request_of(Mode::kDecode, small_sizes(), 3, 1, 64));
}

TEST_P(K3Layer, DecodeOfARankOf32AgreesWithDoublePrecision) {
  expect_agrees_with_double_precision(request_of(Mode::kDecode, k3_sizes(32), 1, 1, 64));
}

TEST_P(K3Layer, LargeBatchAgreesWithDoublePrecision) {
  expect_agrees_with_double_precision(request_of(Mode::kDecode, small_sizes(), 40, 1, 3));
}

TEST_P(K3Layer, PrefillAgreesWithDoublePrecision) {
  for (const std::int64_t tokens : {2, 5, 150})
    expect_agrees_with_double_precision(request_of(Mode::kPrefill, small_sizes(), 2, tokens, 3));
}

/// Token `token` of each request, from rows of all their tokens.
void copy_token(const Tensor& from, std::int64_t token, std::int64_t tokens, Tensor& to) {
  const std::size_t row = to.storage_bytes() / static_cast<std::size_t>(to.shape()[0]);
  for (std::int64_t n = 0; n < to.shape()[0]; ++n)
    std::memcpy(to.storage() + static_cast<std::size_t>(n) * row,
                from.storage() + static_cast<std::size_t>(n * tokens + token) * row, row);
}

void expect_verify_equals_decode(RunOn on, const Sizes& sizes, std::int64_t batch,
                                 std::int64_t accepted) {
  constexpr std::int64_t kTokens = 8;
  constexpr std::int64_t kSteps = 3;
  Request verify = request_of(Mode::kVerify, sizes, batch, kTokens, kSteps);
  verify.accepted = accepted;
  LayerRun drafts(verify, on);
  LayerRun singles(request_of(Mode::kDecode, sizes, batch, 1, kSteps * accepted), on);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    drafts.step(step);
    for (std::int64_t token = 0; token < accepted; ++token) {
      for (const char* name : {"bank", "prefix"})
        copy_token(drafts.tensors().tensors.at(name), token, kTokens,
                   singles.tensors().tensors.at(name));
      singles.step();
    }
    for (const char* name : {"state", "conv_states"})
      EXPECT_TRUE(same_bits(drafts.get(name), singles.get(name))) << name << " of step " << step;
    // The last token that both have seen.
    Tensor last = singles.get("kda_out").clone();
    copy_token(drafts.get("kda_out"), accepted - 1, kTokens, last);
    EXPECT_TRUE(same_bits(last, singles.get("kda_out")));
  }
}

TEST_P(K3Layer, VerifyAndCommitEqualDecodeBitForBit) {
  for (const std::int64_t accepted : {8, 5, 1})
    expect_verify_equals_decode(GetParam(), small_sizes(), 2, accepted);
  expect_verify_equals_decode(GetParam(), k3_sizes(32), 1, 4);
}

TEST_P(K3Layer, AStepAgainWithOtherInputsEqualsAFreshOne) {
  for (const Mode mode : {Mode::kDecode, Mode::kVerify}) {
    const Request request = request_of(mode, small_sizes(), 2, mode == Mode::kVerify ? 8 : 1, 4);
    LayerRun again(request, GetParam());
    for (std::int64_t step = 0; step < request.steps; ++step) {
      LayerRun fresh(request, GetParam());
      for (const char* name : {"state", "conv_states", "kv_cache"})
        fresh.put(name, again.get(name));
      again.step(step);
      fresh.step(step);
      for (const char* name : {"out", "state", "conv_states", "kv_cache", "q_out", "packed_topk",
                               "latent_codes", "expert_codes"})
        EXPECT_TRUE(same_bits(again.get(name), fresh.get(name))) << name << " of step " << step;
    }
  }
}

TEST_P(K3Layer, UnfusedChainsAgree) {
  const Request request = request_of(Mode::kDecode, small_sizes(), 3, 1, 4);
  LayerRun fused(request, GetParam());
  LayerRun unfused(request, GetParam(), false);
  for (std::int64_t step = 0; step < request.steps; ++step) {
    fused.step(step);
    unfused.step(step);
    // The chain rounds the recurrence's output to bf16 ahead of its norm, and nothing else.
    EXPECT_LE(error_of(fused.get("kda_out").values(), unfused.get("kda_out").values()),
              after_roundings(2));
    for (const char* name : {"state", "conv_states"})
      EXPECT_TRUE(same_bits(fused.get(name), unfused.get(name))) << name;
  }
}

TEST(K3LayerCpu, ThreadsChangeNothing) {
  const Request request = request_of(Mode::kPrefill, small_sizes(), 2, 150, 1);
  LayerRun one(request, RunOn::kCpu, true, 1);
  LayerRun many(request, RunOn::kCpu, true, 5);
  one.step(0);
  many.step(0);
  for (const char* name : {"out", "state", "conv_states"})
    EXPECT_TRUE(same_bits(one.get(name), many.get(name))) << name;
}

TEST(K3LayerCpu, ABillNamesEveryOpAndAddsUp) {
  const Bill bill = layer::run(request_of(Mode::kDecode, small_sizes(), 1, 1, 2), RunOn::kCpu, 1);
  EXPECT_EQ(bill.ops.size(), bill.fused.size());
  for (const Ops* ops : {&bill.fused, &bill.unfused})
    for (std::size_t i = 0; i < ops->size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_FALSE((*ops)[i].driver == (*ops)[j].driver && (*ops)[i].label == (*ops)[j].label);
  double sum = 0.0;
  for (const OpBill& row : bill.ops) {
    EXPECT_GT(row.timing.median_us, 0.0) << row.op->label;
    sum += row.timing.median_us;
  }
  const auto step = std::find_if(bill.sums.begin(), bill.sums.end(),
                                 [](const SumBill& s) { return s.name == "step"; });
  ASSERT_NE(step, bill.sums.end());
  EXPECT_DOUBLE_EQ(step->sum_us, sum);
  EXPECT_EQ(step->launches, static_cast<int>(bill.ops.size()));
}

std::string name_of_run(const testing::TestParamInfo<RunOn>& info) {
  return info.param == RunOn::kCuda ? "on_cuda_device" : "on_cpu_threads";
}
INSTANTIATE_TEST_SUITE_P(, K3Layer, testing::Values(RunOn::kCpu, RunOn::kCuda), name_of_run);

}  // namespace
}  // namespace k3::layer
