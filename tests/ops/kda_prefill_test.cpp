// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_prefill, beyond agreement with the oracle.
#include "k3/ops/kda_prefill.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "harness/compare.h"
#include "harness/device.h"
#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_prefill";
constexpr std::int64_t kD = 128;

Bundle layer(std::vector<std::int64_t> lengths, std::int64_t H) {
  return prefill_layer({.lengths = std::move(lengths), .H = H});
}

/// Tokens [begin, end) as one sequence that starts from `state`.
Bundle piece(const Bundle& whole, std::int64_t begin, std::int64_t end, const Tensor& state) {
  Bundle b = whole.clone();
  for (const char* name : {"q", "k", "v", "g", "beta", "out"})
    b.tensors[name] = slice(whole.tensors.at(name), 1, begin, end);
  b.tensors["cu_seqlens"] = integers(DType::kI32, {0, end - begin});
  b.tensors["initial_state"] = state.clone();
  b.tensors["final_state"] = poisoned(state.dtype(), state.shape());
  return b;
}

TEST(KdaPrefill, BitsDoNotDependOnThreads) {
  const Bundle input = layer({130, 7, 64}, 3);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 5, 16}) {
    const Bundle many = run_cpu(kOp, input, threads);
    EXPECT_TRUE(same_bits(one.tensors.at("out"), many.tensors.at("out"))) << threads;
    EXPECT_TRUE(same_bits(one.tensors.at("final_state"), many.tensors.at("final_state")))
        << threads;
  }
}

TEST(KdaPrefill, BitsOfASequenceDependOnThatSequenceAlone) {
  const Bundle batch = layer({33, 200, 5}, 2);
  const Bundle all = run_cpu(kOp, batch);
  const Tensor state = slice(batch.tensors.at("initial_state"), 0, 1, 2);
  const Bundle alone = run_cpu(kOp, piece(batch, 33, 233, state));
  EXPECT_TRUE(same_bits(slice(all.tensors.at("out"), 1, 33, 233), alone.tensors.at("out")));
  EXPECT_TRUE(
      same_bits(slice(all.tensors.at("final_state"), 0, 1, 2), alone.tensors.at("final_state")));

  Bundle unpacked = piece(batch, 33, 233, state);
  unpacked.tensors.erase("cu_seqlens");
  EXPECT_TRUE(same_bits(run_cpu(kOp, unpacked).tensors.at("out"), alone.tensors.at("out")));
}

TEST(KdaPrefill, AbsentStateIsZeroState) {
  Bundle zeros = layer({100}, 2);
  zeros.tensors["initial_state"].fill(0.0);
  Bundle absent = zeros.clone();
  absent.tensors.erase("initial_state");
  EXPECT_TRUE(
      same_bits(run_cpu(kOp, zeros).tensors.at("out"), run_cpu(kOp, absent).tensors.at("out")));
}

TEST(KdaPrefill, ContinuesFromItsOwnState) {
  const Bundle whole = layer({137}, 2);
  const Bundle reference = run_cpu(kOp, whole);
  for (std::int64_t cut : {0, 1, 64, 73, 128, 129, 136}) {
    const Bundle head = run_cpu(kOp, piece(whole, 0, cut, whole.tensors.at("initial_state")));
    const Bundle tail = run_cpu(kOp, piece(whole, cut, 137, head.tensors.at("final_state")));
    const Comparison state = compare("final_state", reference.tensors.at("final_state"),
                                     tail.tensors.at("final_state"), {.err_ratio = 1e-5});
    EXPECT_TRUE(state.passed) << cut << ": " << state.why;
    if (cut % 64 == 0) {
      EXPECT_TRUE(same_bits(reference.tensors.at("final_state"), tail.tensors.at("final_state")))
          << "a cut between chunks changes no bit, cut " << cut;
    }
  }
}

TEST(KdaPrefill, ResumesFromEveryChunkState) {
  Bundle whole = layer({192}, 2);
  whole.tensors["chunk_states"] = poisoned(DType::kF32, {3, 2, kD, kD});
  const Bundle reference = run_cpu(kOp, whole);
  whole.tensors.erase("chunk_states");
  for (std::int64_t chunk = 0; chunk < 3; ++chunk) {
    const Tensor state = slice(reference.tensors.at("chunk_states"), 0, chunk, chunk + 1);
    const Bundle rest = run_cpu(kOp, piece(whole, chunk * 64, 192, state));
    EXPECT_TRUE(same_bits(reference.tensors.at("final_state"), rest.tensors.at("final_state")));
    EXPECT_TRUE(
        same_bits(slice(reference.tensors.at("out"), 1, chunk * 64, 192), rest.tensors.at("out")));
  }
}

TEST(KdaPrefill, UpdatesAPoolInPlace) {
  Bundle apart = layer({65, 0, 20}, 2);
  Random random(9);
  apart.tensors["initial_state"] = normal(random, DType::kF32, {5, 2, kD, kD});
  apart.tensors["final_state"] = apart.tensors["initial_state"].clone();
  apart.tensors["state_indices"] = integers(DType::kI32, {4, 2, -1});
  const Bundle reference = run_cpu(kOp, apart);

  Bundle together = apart.clone();
  const Driver& driver = *find_driver(kOp);
  Call call = host_call(driver, together);
  call.tensors["final_state"] = call.tensors["initial_state"];
  run_call(driver, call);
  EXPECT_TRUE(same_bits(reference.tensors.at("final_state"), together.tensors.at("initial_state")));
  EXPECT_TRUE(same_bits(reference.tensors.at("out"), together.tensors.at("out")));
}

TEST(KdaPrefill, NeighboursAndGapsOfNaNDoNotLeak) {
  Bundle clean = layer({70, 25, 70}, 2);
  Bundle poisonous = clean.clone();
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    Tensor& t = poisonous.tensors.at(name);
    const std::int64_t row = t.numel() / t.shape()[1];
    for (std::int64_t i = 70 * row; i < 95 * row; ++i) t.set(i, std::nan(""));
  }
  const Bundle a = run_cpu(kOp, clean);
  const Bundle b = run_cpu(kOp, poisonous);
  for (auto [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 70}, {95, 165}})
    EXPECT_TRUE(same_bits(slice(a.tensors.at("out"), 1, begin, end),
                          slice(b.tensors.at("out"), 1, begin, end)));
  EXPECT_TRUE(std::isnan(b.tensors.at("out").get(70 * 2 * kD)));
}

/// A rank-one state, no input: the read must not swap K and V, on either side of a chunk edge.
TEST(KdaPrefill, ReadsTheStateAlongTheRightAxis) {
  for (const char* layout : {"N,HV,V,K", "N,HV,K,V"}) {
    constexpr int kKey = 3;
    constexpr int kValue = 77;
    Bundle b = layer({65}, 1);
    b.scalars["state_layout"] = layout;
    b.tensors["v"].fill(0.0);
    b.tensors["g"].fill(-200.0);
    b.tensors["dt_bias"].fill(0.0);
    b.tensors["beta"].fill(-200.0);
    b.tensors["q"].fill(0.0);
    for (std::int64_t t = 0; t < 65; ++t) b.tensors["q"].set(t * kD + kKey, 1.0);
    b.tensors["initial_state"].fill(0.0);
    const bool value_major = std::string(layout) == "N,HV,V,K";
    b.tensors["initial_state"].set(value_major ? kValue * kD + kKey : kKey * kD + kValue, 1.0);
    const Bundle result = run_cpu(kOp, b);
    for (std::int64_t t = 0; t < 65; ++t)
      for (std::int64_t v = 0; v < kD; ++v)
        ASSERT_NEAR(result.tensors.at("out").get(t * kD + v),
                    v == kValue ? 1.0 / std::sqrt(128.0) : 0.0, 1e-3)
            << layout << " token " << t << " value " << v;
    EXPECT_TRUE(same_bits(b.tensors.at("initial_state"), result.tensors.at("final_state")));
  }
}

TEST(KdaPrefill, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between tokens
  constexpr std::int64_t kTokens = 4;                           // the last one is past 3 * 2^30
  const Bundle dense = layer({kTokens}, 1);
  const Bundle reference = run_cpu(kOp, dense);

  SparseBuffer q(static_cast<std::size_t>(kPitch * kTokens) * 2);
  SparseBuffer out(static_cast<std::size_t>(kPitch * kTokens) * 2);
  SparseBuffer pool(std::size_t{20} << 30);
  if (!q.valid() || !out.valid() || !pool.valid()) GTEST_SKIP() << "no address space of 36 GiB";

  Bundle far = dense.clone();
  const Driver& driver = *find_driver(kOp);
  Call call = host_call(driver, far);
  const auto stretch = [&](const char* name, void* data) {
    const Tensor& source = dense.tensors.at(name);
    for (std::int64_t t = 0; t < kTokens; ++t)
      std::memcpy(static_cast<std::uint16_t*>(data) + t * kPitch,
                  static_cast<const std::uint16_t*>(source.view().data) + t * kD, kD * 2);
    call.tensors[name].data = data;
    call.tensors[name].strides[1] = kPitch;
  };
  stretch("q", q.data());
  stretch("out", out.data());
  constexpr std::int64_t kSlotStride = std::int64_t{1} << 31;  // slot 2 stands 16 GiB in
  TensorView slots = call.tensors.at("initial_state");
  slots.data = pool.data();
  slots.shape[0] = 3;
  slots.strides[0] = kSlotStride;
  std::memcpy(static_cast<float*>(pool.data()) + 2 * kSlotStride,
              dense.tensors.at("initial_state").view().data, kD * kD * sizeof(float));
  const std::int32_t slot = 2;
  call.tensors["initial_state"] = slots;
  call.tensors["final_state"] = slots;
  call.tensors["state_indices"] = TensorView(const_cast<std::int32_t*>(&slot), DType::kI32, {1});
  run_call(driver, call);
  EXPECT_EQ(std::memcmp(static_cast<float*>(pool.data()) + 2 * kSlotStride,
                        reference.tensors.at("final_state").view().data, kD * kD * sizeof(float)),
            0);
  for (std::int64_t t = 0; t < kTokens; ++t)
    EXPECT_EQ(
        std::memcmp(
            static_cast<std::uint16_t*>(out.data()) + t * kPitch,
            static_cast<const std::uint16_t*>(reference.tensors.at("out").view().data) + t * kD,
            kD * 2),
        0)
        << t;
}

}  // namespace
}  // namespace k3::harness
