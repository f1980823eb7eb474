// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_fused_decode, beyond agreement with the oracle.
#include "k3/ops/kda_fused_decode.h"

#include <cmath>
#include <cstring>

#include "harness/compare.h"
#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_fused_decode";
constexpr std::int64_t kD = 128;

Bundle layer(std::int64_t B, std::int64_t H, std::int64_t slots) {
  return decode_layer({.B = B, .H = H, .slots = slots});
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
  Random tokens(77);
  Random same_tokens(77);
  const Driver& driver = *find_driver(kOp);
  for (int step = 0; step < 512; ++step) {
    draw_next_token(tokens, cpu);
    draw_next_token(same_tokens, reference);
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

/// State and convolution windows of all 69 KDA layers of one rank share a slot's envelope; a slot
/// far into the pool stands past 2^31 elements, for both pools.
TEST(KdaFusedDecode, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kH = 12;
  constexpr std::int64_t kState = kH * kD * kD;      // fp32
  constexpr std::int64_t kWindow = 3 * 3 * kH * kD;  // bf16, 3 taps of q|k|v
  constexpr std::int64_t kLayer = kState + kWindow / 2;
  constexpr std::int64_t kSlotStride = 69 * kLayer;
  static_assert(kSlotStride == 14'042'880);
  constexpr std::int64_t kSlot = 200;
  const Bundle dense = layer(1, kH, 1);
  const Bundle reference = run_cpu(kOp, dense);

  const SparseBuffer pool(static_cast<std::size_t>((kSlot + 1) * kSlotStride) * sizeof(float));
  if (!pool.valid()) GTEST_SKIP() << "no address space of 11 GiB";
  Bundle far = dense.clone();
  far.tensors["state_indices"] = integers(DType::kI32, {kSlot});
  Call call = host_call(*find_driver(kOp), far);
  const std::int64_t last_layer = 68 * kLayer * std::int64_t{sizeof(float)};
  const std::int64_t slot = last_layer + kSlot * kSlotStride * std::int64_t{sizeof(float)};
  const auto stretch = [&](const char* name, std::int64_t offset, std::int64_t stride) {
    TensorView& view = call.tensors.at(name);
    view.data = pool.at(last_layer + offset);
    view.shape[0] = kSlot + 1;
    view.strides[0] = stride;
    std::memcpy(pool.at(slot + offset), dense.tensors.at(name).storage(),
                dense.tensors.at(name).storage_bytes());
  };
  stretch("state", 0, kSlotStride);
  stretch("conv_states", kState * std::int64_t{sizeof(float)}, 2 * kSlotStride);
  run_call(*find_driver(kOp), call);

  EXPECT_TRUE(same_bits(reference.tensors.at("out"), far.tensors.at("out")));
  const auto same = [&](const char* name, std::int64_t offset) {
    const Tensor& expected = reference.tensors.at(name);
    return std::memcmp(pool.at(slot + offset), expected.storage(), expected.storage_bytes()) == 0;
  };
  EXPECT_TRUE(same("state", 0));
  EXPECT_TRUE(same("conv_states", kState * std::int64_t{sizeof(float)}));
}

}  // namespace
}  // namespace k3::harness
