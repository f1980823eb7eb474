// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_replay_commit, and against the decode steps that it replays.
#include <cmath>
#include <cstring>
#include <memory>

#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_replay_commit";
constexpr std::int64_t kD = 128;
constexpr const char* kPools[] = {"state",     "ring_k",      "ring_v",      "ring_g",
                                  "ring_beta", "conv_states", "conv_scratch"};

float sigmoid(double logit) { return 1.0F / (1.0F + std::exp(-static_cast<float>(logit))); }

/// `tokens` decode steps of one request, and the rings that a verify of them leaves.
struct Chain {
  Chain(std::int64_t tokens, std::int64_t H, std::int64_t group, DType state, bool safe_gate) {
    const std::int64_t HV = H * group;
    Random random(11);
    commit.tensors["state"] = normal(random, state, {2, HV, kD, kD});
    commit.tensors["ring_k"] = Tensor::dense(DType::kBF16, {2, H, tokens, kD});
    commit.tensors["ring_v"] = Tensor::dense(DType::kBF16, {2, HV, tokens, kD});
    commit.tensors["ring_g"] = Tensor::dense(DType::kBF16, {2, HV, tokens, kD});
    commit.tensors["ring_beta"] = Tensor::dense(DType::kF32, {2, HV, tokens});
    commit.tensors["A_log"] = uniform(random, DType::kF32, {HV}, 0.0, 1.0);
    commit.tensors["dt_bias"] = normal(random, DType::kF32, {HV * kD});
    commit.tensors["state_indices"] = integers(DType::kI32, {1});
    commit.tensors["accept_lens"] = integers(DType::kI32, {0});
    commit.scalars["lower_bound"] = safe_gate ? "-5" : "";
    for (std::int64_t t = 0; t < tokens; ++t) {
      Bundle step;
      step.tensors["mixed_qkv"] = normal(random, DType::kBF16, {1, (2 * H + HV) * kD});
      step.tensors["g"] = normal(random, DType::kBF16, {1, HV * kD});
      step.tensors["beta"] = normal(random, DType::kBF16, {1, HV});
      const auto to_ring = [&](const char* ring, const char* from, std::int64_t heads,
                               std::int64_t first) {
        for (std::int64_t i = 0; i < heads * kD; ++i)
          commit.tensors[ring].set(((heads + i / kD) * tokens + t) * kD + i % kD,
                                   step.tensors[from].get(first + i));
      };
      to_ring("ring_k", "mixed_qkv", H, H * kD);
      to_ring("ring_v", "mixed_qkv", HV, 2 * H * kD);
      to_ring("ring_g", "g", HV, 0);
      for (std::int64_t j = 0; j < HV; ++j)
        commit.tensors["ring_beta"].set((HV + j) * tokens + t,
                                        sigmoid(step.tensors["beta"].get(j)));
      for (const char* name : {"state", "A_log", "dt_bias", "state_indices"})
        step.tensors[name] = commit.tensors.at(name);
      step.tensors["out"] = poisoned(DType::kBF16, {1, HV * kD});
      step.scalars["lower_bound"] = commit.scalars.at("lower_bound");
      steps.push_back(step);
    }
  }

  Bundle commit;              ///< takes 0 tokens over
  std::vector<Bundle> steps;  ///< calls of kda_packed_decode
};

class Replay : public testing::TestWithParam<std::tuple<DType, bool, int>> {};

/// The claim that the op stands on.
TEST_P(Replay, GivesTheStateOfTheDecodeSteps) {
  const auto [state, safe_gate, group] = GetParam();
  constexpr int kTokens = 35;
  Chain chain(kTokens, 2, group, state, safe_gate);
  Tensor decoded = chain.commit.tensors.at("state").clone();
  for (int A = 0; A <= kTokens; ++A) {
    chain.commit.tensors["accept_lens"].set(0, A);
    const Bundle committed = run_cpu(kOp, chain.commit);
    ASSERT_TRUE(same_bits(decoded, committed.tensors.at("state"))) << A << " tokens";
    if (A == kTokens) break;
    chain.steps[A].tensors["state"] = decoded;
    decoded = run_cpu("kda_packed_decode", chain.steps[A]).tensors.at("state");
  }
  EXPECT_FALSE(same_bits(decoded, chain.commit.tensors.at("state")));
}

INSTANTIATE_TEST_SUITE_P(All, Replay,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Bool(), testing::Values(1, 2)));

TEST(KdaReplayCommit, ATrackedSlotHoldsTheStateOfItsToken) {
  Chain chain(20, 2, 1, DType::kF32, true);
  Bundle& commit = chain.commit;
  commit.tensors["track_indices"] = integers(DType::kI32, {0});
  for (int step : {0, 3, 15, 16, 18}) {
    commit.tensors["accept_lens"].set(0, step + 1);
    commit.tensors["track_steps"] = integers(DType::kI32, {-1});
    const Bundle shorter = run_cpu(kOp, commit);
    EXPECT_TRUE(same_bits(slice(commit.tensors.at("state"), 0, 0, 1),
                          slice(shorter.tensors.at("state"), 0, 0, 1)));
    commit.tensors["accept_lens"].set(0, 19);
    const Bundle plain = run_cpu(kOp, commit);
    commit.tensors["track_steps"].set(0, step);
    const Bundle tracked = run_cpu(kOp, commit);
    EXPECT_TRUE(same_bits(slice(shorter.tensors.at("state"), 0, 1, 2),
                          slice(tracked.tensors.at("state"), 0, 0, 1)))
        << step;
    EXPECT_TRUE(same_bits(slice(plain.tensors.at("state"), 0, 1, 2),
                          slice(tracked.tensors.at("state"), 0, 1, 2)))
        << step;
  }
}

/// Raw gates whose log decay is exact: sigmoid is 0, 1/2 or 1.
TEST(KdaReplayCommit, RawGateAndLogDecayGiveTheSameBits) {
  Chain chain(8, 3, 1, DType::kF32, true);
  Bundle& raw = chain.commit;
  raw.tensors.erase("A_log");
  raw.tensors.erase("dt_bias");
  raw.scalars["lower_bound"] = "-0.75";
  raw.tensors["accept_lens"].set(0, 8);
  Bundle log_decay = raw.clone();
  log_decay.scalars["lower_bound"] = "";
  log_decay.tensors["ring_g"] = Tensor::dense(DType::kF32, raw.tensors["ring_g"].shape());
  for (std::int64_t i = 0; i < raw.tensors["ring_g"].numel(); ++i) {
    constexpr double kGates[] = {0.0, 1e4, -1e4};
    constexpr double kLogDecays[] = {-0.375, -0.75, 0.0};
    raw.tensors["ring_g"].set(i, kGates[i % 3]);
    log_decay.tensors["ring_g"].set(i, kLogDecays[i % 3]);
  }
  EXPECT_TRUE(same_bits(run_cpu(kOp, raw).tensors.at("state"),
                        run_cpu(kOp, log_decay).tensors.at("state")));
}

TEST(KdaReplayCommit, BitsDoNotDependOnThreads) {
  const Bundle input = commit_layers({.layers = 3, .B = 2, .H = 3});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 7}) {
    const Bundle many = run_cpu(kOp, input, threads);
    for (const char* name : {"state", "conv_states"})
      EXPECT_TRUE(same_bits(one.tensors.at(name), many.tensors.at(name))) << name << threads;
  }
}

/// The view of one layer: its leading axis cut off.
TensorView layer_of(const TensorView& all, std::int64_t layer) {
  TensorView one = all;
  --one.rank;
  std::copy(all.shape + 1, all.shape + all.rank, one.shape);
  std::copy(all.strides + 1, all.strides + all.rank, one.strides);
  const auto bytes = static_cast<std::int64_t>(size_of(all.dtype));
  one.data = static_cast<std::byte*>(all.data) + layer * all.strides[0] * bytes;
  return one;
}

/// State and window of all layers in one envelope a slot, a layer inside a slot: one call for all
/// layers writes the bytes that a call per layer does, and none between or beside them.
TEST(KdaReplayCommit, AllLayersOfAPagedPoolAreALoopOverLayers) {
  constexpr std::int64_t kLayers = 5;
  constexpr std::int64_t kB = 3;
  constexpr std::int64_t kH = 2;
  constexpr std::int64_t kSlots = 6;
  constexpr std::int64_t kWindow = 3 * 3 * kH * kD * 2;        // bytes
  constexpr std::int64_t kLayer = kWindow + kH * kD * kD * 4;  // window, then state
  constexpr std::int64_t kSlot = kLayers * kLayer + 64;
  Bundle input = commit_layers({.layers = kLayers, .B = kB, .H = kH});
  Random random(4);
  for (const char* name : {"ring_k", "ring_v", "conv_scratch"})
    input.tensors[name] = normal(random, DType::kBF16, input.tensors.at(name).shape());
  for (const char* name : {"ring_g", "ring_beta"})
    input.tensors[name] = uniform(random, DType::kF32, input.tensors.at(name).shape(), -0.9, -0.1);
  input.tensors["state_indices"] = integers(DType::kI32, {4, 1, -1});
  input.tensors["ring_indices"] = integers(DType::kI32, {0, 2, 1});
  input.tensors["accept_lens"] = integers(DType::kI32, {5, 2, 3});
  input.tensors["track_indices"] = integers(DType::kI32, {2, 3, 0});
  input.tensors["track_steps"] = integers(DType::kI32, {1, -1, 0});

  Tensor whole = normal(random, DType::kF32, {kSlots * kSlot / 4}, 0.5);
  Tensor looped = whole.clone();
  const Tensor before = whole.clone();
  const Driver& driver = *find_driver(kOp);
  const auto paged = [&](Tensor& pool) {
    Call call = host_call(driver, input);
    for (const auto& [name, offset] :
         {std::pair{"conv_states", std::int64_t{0}}, {"state", kWindow}}) {
      TensorView& view = call.tensors.at(name);
      const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
      view.data = pool.storage() + offset;
      view.shape[1] = kSlots;
      view.strides[0] = kLayer / bytes;
      view.strides[1] = kSlot / bytes;
    }
    return call;
  };
  run_call(driver, paged(whole));
  const Call all = paged(looped);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    Call one = all;
    for (const char* name : kPools) one.tensors[name] = layer_of(all.tensors.at(name), layer);
    run_call(driver, one);
  }
  EXPECT_TRUE(same_bits(whole, looped));

  for (std::int64_t slot = 0; slot < kSlots; ++slot) {
    const bool named = slot == 4 || slot == 1 || slot == 2;
    const bool same =
        std::memcmp(before.storage() + slot * kSlot, whole.storage() + slot * kSlot, kSlot) == 0;
    EXPECT_EQ(same, !named) << slot;
    const std::int64_t gap = slot * kSlot + kLayers * kLayer;
    EXPECT_EQ(std::memcmp(before.storage() + gap, whole.storage() + gap, 64), 0) << slot;
  }
}

/// Every pool has its layers 2.2e9 elements apart: the third stands past 2^32, the second past
/// 2^31.
TEST(KdaReplayCommit, LayersPastTwoToThe32Elements) {
  constexpr std::int64_t kFar = 2'200'000'001;
  constexpr std::int64_t kLayers = 3;
  const Bundle dense = commit_layers({.layers = kLayers, .B = 1, .H = 1, .L = 4});
  const Bundle reference = run_cpu(kOp, dense);
  const Driver& driver = *find_driver(kOp);
  Bundle far = dense.clone();
  Call call = host_call(driver, far);
  std::map<std::string, std::unique_ptr<SparseBuffer>> buffers;
  const auto layer_bytes = [&](const char* name) {
    return dense.tensors.at(name).storage_bytes() / kLayers;
  };
  const auto at = [&](const char* name, std::int64_t layer) {
    const auto element = static_cast<std::int64_t>(size_of(dense.tensors.at(name).dtype()));
    return buffers.at(name)->at(layer * kFar * element);
  };
  for (const char* name : kPools) {
    TensorView& view = call.tensors.at(name);
    const auto bytes = static_cast<std::size_t>(kFar * kLayers) * size_of(view.dtype);
    buffers[name] = std::make_unique<SparseBuffer>(bytes);
    if (!buffers[name]->valid()) GTEST_SKIP() << "no address space of " << bytes << " bytes";
    view.data = buffers[name]->data();
    view.strides[0] = kFar;
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      std::memcpy(
          at(name, layer),
          dense.tensors.at(name).storage() + static_cast<std::size_t>(layer) * layer_bytes(name),
          layer_bytes(name));
  }
  run_call(driver, call);
  for (const char* name : {"state", "conv_states"})
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      EXPECT_EQ(std::memcmp(at(name, layer),
                            reference.tensors.at(name).storage() +
                                static_cast<std::size_t>(layer) * layer_bytes(name),
                            layer_bytes(name)),
                0)
          << name << layer;
}

}  // namespace
}  // namespace k3::harness
