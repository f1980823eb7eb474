// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_packed_decode, and against kda_fused_decode.
#include <cstring>

#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_packed_decode";
constexpr std::int64_t kD = 128;

TEST(KdaPackedDecode, BitsDoNotDependOnThreads) {
  const Bundle input = packed_layer({.B = 5, .H = 3, .slots = 8});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 7}) {
    const Bundle many = run_cpu(kOp, input, threads);
    for (const char* name : {"out", "state"})
      EXPECT_TRUE(same_bits(one.tensors.at(name), many.tensors.at(name))) << name << threads;
  }
}

TEST(KdaPackedDecode, PaddingWritesZerosAndNothingElse) {
  Bundle input = packed_layer({.B = 3, .H = 2, .slots = 4});
  input.tensors["state_indices"] = integers(DType::kI32, {-1, -1, -1});
  const Bundle result = run_cpu(kOp, input);
  EXPECT_TRUE(same_bits(input.tensors.at("state"), result.tensors.at("state")));
  for (double value : result.tensors.at("out").values()) ASSERT_EQ(value, 0.0);
}

/// The fused step without output norm, taken apart: its convolution, read off a call whose heads
/// give back v, then this op.
class FusedAgainstPacked : public testing::TestWithParam<std::tuple<DType, bool>> {};

/// What the fused op's convolution makes of the channels [begin, begin + H*128): the output of a
/// call where these channels are v, the state is zero, q = k = (1, 0, ..) and sigmoid(beta) = 1.
Tensor convolved(const Bundle& fused, int part) {
  const auto B = fused.tensors.at("beta").shape()[0];
  const auto H = fused.tensors.at("beta").shape()[1];
  const std::int64_t segment = H * kD;
  Bundle probe = fused.clone();
  for (const char* name : {"mixed_qkv", "conv_states", "conv_weight"}) {
    Tensor& t = probe.tensors.at(name);
    const std::int64_t rows = t.numel() / (3 * segment);
    const Tensor& from = fused.tensors.at(name);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < segment; ++c)
        t.set(row * 3 * segment + 2 * segment + c,
              from.get(row * 3 * segment + part * segment + c));
  }
  // q and k become (1024, 0, ..), which SiLU keeps and the norm makes (1, 0, ..) exactly.
  Tensor& x = probe.tensors.at("mixed_qkv");
  Tensor& window = probe.tensors.at("conv_states");
  Tensor& weight = probe.tensors.at("conv_weight");
  for (std::int64_t c = 0; c < 2 * segment; ++c) {
    for (std::int64_t row = 0; row < window.numel() / (3 * segment); ++row)
      window.set(row * 3 * segment + c, 0.0);
    for (int tap = 0; tap < 4; ++tap) weight.set(tap * 3 * segment + c, 1.0);
    for (std::int64_t n = 0; n < B; ++n) x.set(n * 3 * segment + c, c % kD == 0 ? 1024.0 : 0.0);
  }
  probe.tensors.at("state").fill(0.0);
  probe.tensors.at("beta").fill(100.0);
  probe.scalars["scale"] = "1";
  return run_cpu("kda_fused_decode", probe).tensors.at("out");
}

TEST_P(FusedAgainstPacked, GiveTheSameBits) {
  const auto [state, safe_gate] = GetParam();
  constexpr std::int64_t kB = 3;
  constexpr std::int64_t kH = 2;
  constexpr std::int64_t kSegment = kH * kD;
  Bundle fused = decode_layer({.B = kB, .H = kH, .slots = 5});
  fused.tensors.erase("onorm_gate");
  fused.tensors.erase("onorm_weight");
  Random random(9);
  fused.tensors["state"] = normal(random, state, {5, kH, kD, kD});
  if (!safe_gate) fused.scalars["lower_bound"] = "";
  Bundle packed = fused.clone();
  for (const char* name : {"conv_states", "conv_weight"}) packed.tensors.erase(name);
  for (int part = 0; part < 3; ++part) {
    const Tensor y = convolved(fused, part);
    for (std::int64_t n = 0; n < kB; ++n)
      for (std::int64_t c = 0; c < kSegment; ++c)
        packed.tensors["mixed_qkv"].set(n * 3 * kSegment + part * kSegment + c,
                                        y.get(n * kSegment + c));
  }
  const Bundle a = run_cpu("kda_fused_decode", fused);
  const Bundle b = run_cpu(kOp, packed);
  EXPECT_FALSE(same_bits(fused.tensors.at("state"), a.tensors.at("state")));
  EXPECT_TRUE(same_bits(a.tensors.at("state"), b.tensors.at("state")));
  EXPECT_TRUE(same_bits(a.tensors.at("out"), b.tensors.at("out")));
}

INSTANTIATE_TEST_SUITE_P(All, FusedAgainstPacked,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Bool()));

/// Grouped value heads are the same call with q and k written out for every value head.
TEST(KdaPackedDecode, AGroupIsItsKeyHeadRepeated) {
  constexpr std::int64_t kB = 2;
  constexpr std::int64_t kH = 3;
  constexpr std::int64_t kGroup = 4;
  constexpr std::int64_t kHV = kH * kGroup;
  const Bundle repeated = [&] {
    Bundle b = packed_layer({.B = kB, .H = kHV, .slots = 3});
    Tensor& x = b.tensors.at("mixed_qkv");
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t head = i / kD % (3 * kHV);
      if (head < 2 * kHV) x.set(i, x.get(i - head % kGroup * kD));
    }
    return b;
  }();
  Bundle grouped = repeated.clone();
  Tensor& x = grouped.tensors["mixed_qkv"];
  x = Tensor::dense(DType::kBF16, {kB, (2 * kH + kHV) * kD});
  const Tensor& from = repeated.tensors.at("mixed_qkv");
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t n = i / ((2 * kH + kHV) * kD);
    const std::int64_t head = i / kD % (2 * kH + kHV);
    const std::int64_t source = head < 2 * kH ? head * kGroup : head - 2 * kH + 2 * kHV;
    x.set(i, from.get((n * 3 * kHV + source) * kD + i % kD));
  }
  const Bundle a = run_cpu(kOp, repeated);
  const Bundle b = run_cpu(kOp, grouped);
  EXPECT_TRUE(same_bits(a.tensors.at("state"), b.tensors.at("state")));
  EXPECT_TRUE(same_bits(a.tensors.at("out"), b.tensors.at("out")));
}

/// One slot that stands far into its pool.
void expect_far_slot_agrees(std::int64_t slot, std::int64_t slot_stride) {
  const Bundle dense = packed_layer({.B = 1, .H = 2, .slots = 1});
  const Bundle reference = run_cpu(kOp, dense);
  const Tensor& state = dense.tensors.at("state");
  const SparseBuffer pool(static_cast<std::size_t>((slot + 1) * slot_stride) * sizeof(float));
  if (!pool.valid()) GTEST_SKIP() << "no address space for the pool";
  Bundle far = dense.clone();
  far.tensors["state_indices"] = integers(DType::kI32, {slot});
  Call call = host_call(*find_driver(kOp), far);
  TensorView& view = call.tensors.at("state");
  view.data = pool.data();
  view.shape[0] = slot + 1;
  view.strides[0] = slot_stride;
  std::byte* const at = pool.at(slot * slot_stride * std::int64_t{sizeof(float)});
  std::memcpy(at, state.storage(), state.storage_bytes());
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(reference.tensors.at("out"), far.tensors.at("out")));
  EXPECT_EQ(std::memcmp(at, reference.tensors.at("state").storage(),
                        reference.tensors.at("state").storage_bytes()),
            0);
}

TEST(KdaPackedDecode, OffsetsPastTwoToThe31Elements) { expect_far_slot_agrees(200, 14'042'880); }
TEST(KdaPackedDecode, OffsetsPastTwoToThe32Elements) { expect_far_slot_agrees(3, 1'500'000'001); }

}  // namespace
}  // namespace k3::harness
