// SPDX-License-Identifier: Apache-2.0
// What must hold of vision_rope beyond agreement with the oracle.
#include "k3/ops/vision_rope.h"

#include <cstring>

#include "cpu/targets.h"
#include "harness/ops/vision.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_rope";
constexpr std::int64_t kT = 9;
constexpr std::int64_t kH = 3;

TEST(VisionRope, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, rope_bundle({.T = 301}, 1));
}

/// q, k and v in one tensor, [T, 3, H, D]; rotated where they are, v keeps every bit.
struct Qkv {
  Tensor tensor;

  explicit Qkv(const Bundle& b) {
    const Tensor& q = b.tensors.at("q");
    const std::int64_t D = q.shape()[2];
    Random random(8);
    tensor = normal(random, q.dtype(), {kT, 3, kH, D});
    const std::int64_t row = kH * D;
    for (std::int64_t t = 0; t < kT; ++t)
      for (std::int64_t i = 0; i < row; ++i) {
        tensor.set((3 * t) * row + i, q.get(t * row + i));
        tensor.set((3 * t + 1) * row + i, b.tensors.at("k").get(t * row + i));
      }
  }
  /// The call on its parts, given where the tensor's bytes are.
  void place(Call& call, std::byte* data, Device device) const {
    const std::int64_t D = tensor.shape()[3];
    for (const auto& [name, part] : {std::pair{"q", 0}, {"q_out", 0}, {"k", 1}, {"k_out", 1}}) {
      TensorView& view = call.tensors.at(name);
      view = TensorView(data + static_cast<std::size_t>(part * kH * D) * 2, tensor.dtype(),
                        {kT, kH, D}, device);
      view.strides[0] = 3 * kH * D;
    }
  }
  [[nodiscard]] Tensor part(int index) const {
    const Tensor with_axis = slice(tensor, 1, index, index + 1);
    Tensor result = Tensor::dense(tensor.dtype(), {kT, kH, tensor.shape()[3]});
    std::memcpy(result.storage(), with_axis.storage(), result.storage_bytes());
    return result;
  }
};

void expect_rotated_in_place(const Qkv& before, const Qkv& after, const Bundle& apart) {
  EXPECT_TRUE(same_bits(after.part(0), apart.tensors.at("q_out")));
  EXPECT_TRUE(same_bits(after.part(1), apart.tensors.at("k_out")));
  EXPECT_TRUE(same_bits(after.part(2), before.part(2)));
}

TEST(VisionRope, RotatesWithinTheTensorOfAllThree) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const std::int64_t D : {128, 6}) {
      Bundle b = rope_bundle({.T = kT, .H = kH, .D = D, .dtype = dtype}, 2);
      const Bundle apart = run_cpu(kOp, b);
      const Qkv before(b);
      Qkv after(b);
      Call call = host_call(*find_driver(kOp), b);
      after.place(call, after.tensor.storage(), {});
      run_call(*find_driver(kOp), call);
      expect_rotated_in_place(before, after, apart);
    }
}

class VisionRopeOn : public testing::TestWithParam<Machine> {};

TEST_P(VisionRopeOn, RotatesWithinTheTensorOfAllThreeOnADevice) {
  if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Bundle b = rope_bundle({.T = kT, .H = kH, .dtype = dtype}, 2);
    const Bundle apart = run_on(RunOn::kCuda, kOp, b, GetParam().variant);
    const Qkv before(b);
    Qkv after(b);
    DeviceMemory memory(after.tensor.storage_bytes());
    ASSERT_TRUE(memory.valid());
    memory.write(0, {after.tensor.storage(), after.tensor.storage_bytes()});
    const DeviceBundle rest(b);
    DeviceCall call = {find_driver(kOp), rest.call(), GetParam().variant};
    after.place(call.call, memory.data(), call.call.tensors.at("freqs").device);
    run_on_device({&call, 1});
    memory.read(0, {after.tensor.storage(), after.tensor.storage_bytes()});
    expect_rotated_in_place(before, after, apart);
  }
}

INSTANTIATE_TEST_SUITE_P(All, VisionRopeOn, testing::ValuesIn([] {
                           std::vector<Machine> machines = machines_of(kOp);
                           std::erase_if(machines, [](const Machine& machine) {
                             return machine.on != RunOn::kCuda;
                           });
                           return machines;
                         }()),
                         [](const auto& info) { return name_of(info.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VisionRopeOn);

/// Rotating by an angle and back gives the input, to what two roundings cost.
TEST(VisionRope, TurnsBack) {
  const Bundle there = run_cpu(kOp, rope_bundle({.T = 20}, 3));
  Bundle back = rope_bundle({.T = 20}, 3);
  back.tensors["q"] = there.tensors.at("q_out").clone();
  back.tensors["k"] = there.tensors.at("k_out").clone();
  for (std::int64_t i = 1; i < back.tensors.at("freqs").numel(); i += 2)
    back.tensors.at("freqs").set(i, -back.tensors.at("freqs").get(i));
  const Bundle result = run_cpu(kOp, back);
  const Bundle input = rope_bundle({.T = 20}, 3);
  for (const auto& [in, out] : {std::pair{"q", "q_out"}, {"k", "k_out"}})
    for (std::int64_t i = 0; i < input.tensors.at(in).numel(); ++i)
      EXPECT_NEAR(result.tensors.at(out).get(i), input.tensors.at(in).get(i), 8.0 * 0x1p-8);
}

/// Large outputs are stored past the caches where rows are aligned to a vector: here those of q.
TEST(VisionRope, LargeOutputsEqualTheirPartsOnEverySimdTarget) {
  constexpr std::int64_t kTokens = 1400;
  constexpr std::int64_t kHalf = kTokens / 2;
  Bundle b = rope_bundle({.T = kTokens}, 5);
  const Tensor& k_out = b.tensors.at("k_out");
  b.tensors["k_out"] = restrided(k_out, k_out.strides(), 1);
  for (const std::string& target : cpu::compiled_targets()) {
    if (!cpu::use_target(target)) continue;
    const Bundle whole = run_cpu(kOp, b, 2);
    for (const std::int64_t begin : {std::int64_t{0}, kHalf}) {
      Bundle part;
      for (const auto& [name, tensor] : b.tensors)
        part.tensors[name] = slice(tensor, 0, begin, begin + kHalf);
      const Bundle result = run_cpu(kOp, part, 2);
      for (const char* out : {"q_out", "k_out"})
        EXPECT_TRUE(same_bits(slice(whole.tensors.at(out), 0, begin, begin + kHalf),
                              result.tensors.at(out)))
            << out << " from token " << begin << ", " << target;
    }
  }
  cpu::use_target("");
}

TEST(VisionRope, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rope_bundle({.T = 4, .H = 2, .D = 16}, 4), {"q", "q_out"});
}

}  // namespace
}  // namespace k3::harness
