// SPDX-License-Identifier: Apache-2.0
// The contract of kda_output_norm, and its place in a chain of ops.
#include "k3/ops/kda_output_norm.h"

#include <array>

#include "harness/ops/kda_layer.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_output_norm";

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["raw"] = normal(random, DType::kBF16, {3, 256});
  b.tensors["gate"] = normal(random, DType::kBF16, {3, 256});
  b.tensors["weight"] = normal(random, DType::kF32, {128});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 256});
  return b;
}

class KdaOutputNormContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaOutputNormContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kColumns = "must have H*128 columns, H >= 1";

INSTANTIATE_TEST_SUITE_P(
    All, KdaOutputNormContract,
    testing::Values(
        Violation{"raw_between_heads", "raw", kColumns, with_size("raw", 1, 255)},
        Violation{"raw_without_heads", "raw", kColumns, with_size("raw", 1, 0)},
        Violation{"gate_narrow", "gate", "must have shape [T, H*128]", with_size("gate", 1, 128)},
        Violation{"weight_per_channel", "weight", "must have shape [128]",
                  with_size("weight", 0, 127)},
        Violation{"out_other_tokens", "out", "must have shape [T, H*128]", with_size("out", 0, 2)},
        Violation{"raw_strided", "raw", kUnitStride, with_stride("raw", 1, 2)},
        Violation{"gate_strided", "gate", kUnitStride, with_stride("gate", 1, 2)},
        Violation{"weight_strided", "weight", kUnitStride, with_stride("weight", 0, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 100)},
        Violation{"out_is_raw_with_other_rows", "out", "must not overlap raw",
                  [](Call& c) {
                    aliasing("out", "raw")(c);
                    with_size("raw", 1, 128)(c);
                    with_size("gate", 1, 128)(c);
                    with_size("out", 1, 128)(c);
                    with_stride("out", 0, 128)(c);
                  }},
        Violation{"out_is_raw_one_row_on", "out", "must not overlap raw",
                  [](Call& c) {
                    aliasing("out", "raw")(c);
                    shifted("out", 256 * 2)(c);
                    for (const char* name : {"raw", "gate", "out"}) with_size(name, 0, 2)(c);
                  }},
        Violation{"out_is_gate", "out", "must not overlap gate", aliasing("out", "gate")},
        Violation{"eps_negative", "eps", "must be finite and at least 0",
                  with_scalar("eps", "-1e-5")},
        Violation{"eps_inf", "eps", "must be finite and at least 0", with_scalar("eps", "inf")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaOutputNormContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp), valid_bundle(),
                                                                 {{"out", "raw"}})),
                         violation_name);

TEST(KdaOutputNorm, OutMayBeRaw) {
  const Bundle apart = run_cpu(kOp, valid_bundle());
  Bundle bundle = valid_bundle();
  Call call = host_call(*find_driver(kOp), bundle);
  aliasing("out", "raw")(call);
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(apart.tensors.at("out"), bundle.tensors.at("raw")));
}

TEST(KdaOutputNorm, BitsDoNotDependOnThreads) {
  Random random(3);
  Bundle input = valid_bundle();
  for (const char* name : {"raw", "gate", "out"})
    input.tensors[name] = normal(random, DType::kBF16, {700, 768});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 7})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")));
}

TEST(KdaOutputNorm, ZerosGiveZerosAndNoNaN) {
  Bundle input = valid_bundle();
  input.tensors["raw"].fill(0.0);
  for (double value : run_cpu(kOp, input).tensors.at("out").values()) ASSERT_EQ(value, 0.0);
}

/// The two launches of a decode step that leaves its norm out, against the one that has it.
TEST(KdaOutputNorm, AfterADecodeWithoutNormGivesTheBitsOfOneWithIt) {
  Bundle whole = decode_layer({.B = 4, .H = 3, .slots = 6});
  whole.scalars["round_o"] = "bf16";
  Bundle bare = whole.clone();
  bare.tensors.erase("onorm_gate");
  bare.tensors.erase("onorm_weight");
  Bundle norm;
  norm.tensors["raw"] = run_cpu("kda_fused_decode", bare).tensors.at("out");
  norm.tensors["gate"] = whole.tensors.at("onorm_gate");
  norm.tensors["weight"] = whole.tensors.at("onorm_weight");
  norm.tensors["out"] = poisoned(DType::kBF16, {4, 384});
  const Bundle a = run_cpu("kda_fused_decode", whole);
  EXPECT_TRUE(same_bits(a.tensors.at("out"), run_cpu(kOp, norm).tensors.at("out")));
}

TEST(KdaOutputNorm, RowsPastTwoToThe32Elements) {
  constexpr std::int64_t kPitch = 2'200'000'001;
  const Bundle dense = valid_bundle();
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer raw(kPitch * 3 * sizeof(std::uint16_t));
  const SparseBuffer out(kPitch * 3 * sizeof(std::uint16_t));
  if (!raw.valid() || !out.valid()) GTEST_SKIP() << "no address space of 26 GB";
  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  constexpr std::size_t kRow = 256 * sizeof(std::uint16_t);
  const auto at = [&](const SparseBuffer& buffer, int row) {
    return buffer.at(row * kPitch * std::int64_t{sizeof(std::uint16_t)});
  };
  for (int row = 0; row < 3; ++row)
    std::memcpy(at(raw, row), dense.tensors.at("raw").storage() + row * kRow, kRow);
  for (const auto& [name, buffer] : {std::pair{"raw", &raw}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
  }
  run_call(*find_driver(kOp), call);
  for (int row = 0; row < 3; ++row)
    EXPECT_EQ(std::memcmp(at(out, row), reference.tensors.at("out").storage() + row * kRow, kRow),
              0)
        << row;
}

}  // namespace
}  // namespace k3::harness
