// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_fused_decode, beyond agreement with the oracle.
#include "k3/ops/kda_fused_decode.h"

#include <cmath>

#include "harness/compare.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_fused_decode";
constexpr std::int64_t kD = 128;

Bundle layer(std::int64_t B, std::int64_t H, std::int64_t slots, std::uint64_t seed = 1) {
  Random random(seed);
  const std::int64_t segment = H * kD;
  std::vector<std::int64_t> indices;
  for (std::int64_t n = 0; n < B; ++n) indices.push_back(slots - 1 - n);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {B, 3 * segment});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {slots, 3, 3 * segment});
  b.tensors["conv_weight"] = normal(random, DType::kF32, {4, 3 * segment}, 0.4);
  b.tensors["g"] = normal(random, DType::kBF16, {B, segment});
  b.tensors["beta"] = normal(random, DType::kBF16, {B, H});
  b.tensors["A_log"] = uniform(random, DType::kF32, {H}, 0.0, 1.0);
  b.tensors["dt_bias"] = normal(random, DType::kF32, {segment});
  b.tensors["onorm_gate"] = normal(random, DType::kBF16, {B, segment});
  b.tensors["onorm_weight"] = normal(random, DType::kF32, {kD}, 0.1, 1.0);
  b.tensors["state"] = normal(random, DType::kF32, {slots, H, kD, kD});
  b.tensors["state_indices"] = integers(DType::kI32, indices);
  b.tensors["out"] = poisoned(DType::kBF16, {B, segment});
  b.scalars = {{"lower_bound", "-5"}};
  return b;
}

TEST(KdaFusedDecode, BitsDoNotDependOnThreads) {
  const Bundle input = layer(5, 3, 8);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 7}) {
    const Bundle many = run_cpu(kOp, input, threads);
    for (const char* name : {"out", "state", "conv_states"})
      EXPECT_TRUE(same_bits(one.tensors.at(name), many.tensors.at(name))) << name << threads;
  }
}

TEST(KdaFusedDecode, BitsOfARequestDoNotDependOnItsBatch) {
  const Bundle batch = layer(4, 2, 6);
  const Bundle all = run_cpu(kOp, batch);
  Bundle alone = batch.clone();
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out", "state_indices"})
    alone.tensors[name] = slice(batch.tensors.at(name), 0, 2, 3);
  const Bundle one = run_cpu(kOp, alone);
  EXPECT_TRUE(same_bits(slice(all.tensors.at("out"), 0, 2, 3), one.tensors.at("out")));
  EXPECT_TRUE(
      same_bits(slice(all.tensors.at("state"), 0, 3, 4), slice(one.tensors.at("state"), 0, 3, 4)));
}

TEST(KdaFusedDecode, LayoutOfThePoolChangesNoBit) {
  const Bundle dense = layer(3, 2, 5);
  Bundle gaps = dense.clone();
  gaps.tensors["state"] =
      restrided(dense.tensors.at("state"), {2 * kD * kD + 77, kD * kD, kD, 1}, 3);
  const Bundle a = run_cpu(kOp, dense);
  const Bundle b = run_cpu(kOp, gaps);
  EXPECT_TRUE(same_bits(a.tensors.at("out"), b.tensors.at("out")));
  EXPECT_TRUE(same_bits(a.tensors.at("state"), b.tensors.at("state")));
}

TEST(KdaFusedDecode, PaddingWritesZerosAndNothingElse) {
  Bundle input = layer(3, 2, 4);
  input.tensors["state_indices"] = integers(DType::kI32, {-1, -1, -1});
  const Bundle result = run_cpu(kOp, input);
  EXPECT_TRUE(same_bits(input.tensors.at("state"), result.tensors.at("state")));
  EXPECT_TRUE(same_bits(input.tensors.at("conv_states"), result.tensors.at("conv_states")));
  for (double value : result.tensors.at("out").values()) ASSERT_EQ(value, 0.0);
}

/// 512 steps with new tokens: the error against double must not grow with the steps.
TEST(KdaFusedDecode, DoesNotDriftOver512Steps) {
  Bundle cpu = layer(1, 1, 1);
  Bundle reference = cpu.clone();
  Random random(77);
  const Driver& driver = *find_driver(kOp);
  for (int step = 0; step < 512; ++step) {
    for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate"}) {
      const Tensor fresh = normal(random, DType::kBF16, cpu.tensors.at(name).shape());
      cpu.tensors[name] = fresh.clone();
      reference.tensors[name] = fresh.clone();
    }
    run_once(driver, cpu, {.on = RunOn::kCpu});
    run_once(driver, reference, {.on = RunOn::kOracle});
  }
  const Comparison state =
      compare("state", reference.tensors.at("state"), cpu.tensors.at("state"), {.err_ratio = 1e-3});
  EXPECT_TRUE(state.passed) << state.why;
  const Comparison out =
      compare("out", reference.tensors.at("out"), cpu.tensors.at("out"), {.err_ratio = 4e-3});
  EXPECT_TRUE(out.passed) << out.why;
}

/// Decode steps after a prefill continue what a longer prefill gives. The convolution is made the
/// identity (only the newest tap, weight 1), so both see SiLU of the same projections.
TEST(KdaFusedDecode, ContinuesAPrefill) {
  constexpr std::int64_t kTokens = 20;
  constexpr std::int64_t kPrefilled = 12;
  const std::int64_t H = 2;
  const std::int64_t segment = H * kD;
  Random random(5);
  const Tensor mixed = normal(random, DType::kBF16, {kTokens, 3 * segment});
  const Tensor gate = normal(random, DType::kBF16, {kTokens, segment});
  const Tensor beta = normal(random, DType::kBF16, {kTokens, H});
  Bundle decode = layer(1, H, 1);
  decode.tensors.erase("onorm_gate");
  decode.tensors.erase("onorm_weight");
  decode.tensors["conv_weight"].fill(0.0);
  for (std::int64_t c = 0; c < 3 * segment; ++c)
    decode.tensors["conv_weight"].set(3 * 3 * segment + c, 1.0);

  Bundle prefill;
  const char* names[] = {"q", "k", "v"};
  for (int part = 0; part < 3; ++part) {
    prefill.tensors[names[part]] = Tensor::dense(DType::kBF16, {1, kTokens, H, kD});
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t c = 0; c < segment; ++c) {
        const double x = mixed.get(t * 3 * segment + part * segment + c);
        prefill.tensors[names[part]].set(t * segment + c, x / (1.0 + std::exp(-x)));
      }
  }
  prefill.tensors["g"] = Tensor::dense(DType::kBF16, {1, kTokens, H, kD});
  for (std::int64_t i = 0; i < gate.numel(); ++i) prefill.tensors["g"].set(i, gate.get(i));
  prefill.tensors["beta"] = Tensor::dense(DType::kBF16, {1, kTokens, H});
  for (std::int64_t i = 0; i < beta.numel(); ++i) prefill.tensors["beta"].set(i, beta.get(i));
  prefill.tensors["A_log"] = decode.tensors["A_log"].clone();
  prefill.tensors["dt_bias"] = decode.tensors["dt_bias"].clone();
  prefill.tensors["initial_state"] = decode.tensors["state"].clone();
  prefill.tensors["final_state"] = poisoned(DType::kF32, {1, H, kD, kD});
  prefill.tensors["out"] = poisoned(DType::kBF16, {1, kTokens, H, kD});
  prefill.scalars = {
      {"lower_bound", "-5"}, {"qk_l2norm", "1"}, {"gate_in_kernel", "1"}, {"beta_sigmoid", "1"}};
  const Bundle whole = run_cpu("kda_prefill", prefill);

  Bundle head = prefill.clone();
  for (const char* name : {"q", "k", "v", "g", "beta", "out"})
    head.tensors[name] = slice(prefill.tensors.at(name), 1, 0, kPrefilled);
  decode.tensors["state"] = run_cpu("kda_prefill", head).tensors.at("final_state");
  const Driver& driver = *find_driver(kOp);
  for (std::int64_t t = kPrefilled; t < kTokens; ++t) {
    decode.tensors["mixed_qkv"] = slice(mixed, 0, t, t + 1);
    decode.tensors["g"] = slice(gate, 0, t, t + 1);
    decode.tensors["beta"] = slice(beta, 0, t, t + 1);
    run_once(driver, decode, {.on = RunOn::kCpu});
    Tensor expected = Tensor::dense(DType::kBF16, {1, segment});
    for (std::int64_t c = 0; c < segment; ++c)
      expected.set(c, whole.tensors.at("out").get(t * segment + c));
    const Comparison c = compare("out", expected, decode.tensors.at("out"), {.err_ratio = 4e-3});
    EXPECT_TRUE(c.passed) << t << ": " << c.why;
  }
  const Comparison state = compare("state", whole.tensors.at("final_state"),
                                   decode.tensors.at("state"), {.err_ratio = 1e-3});
  EXPECT_TRUE(state.passed) << state.why;
}

}  // namespace
}  // namespace k3::harness
