// SPDX-License-Identifier: Apache-2.0
// The contract of moe_pack_topk, and its words.
#include "k3/ops/moe_pack_topk.h"

#include <cstring>

#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_pack_topk";

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["topk_ids"] = filled(DType::kI64, {3, 16}, [&] { return random.next() % 896; });
  b.tensors["topk_weights"] = uniform(random, DType::kF32, {3, 16}, 0.0, 1.0);
  b.tensors["packed"] = poisoned(DType::kI32, {3, 16});
  return b;
}

class MoePackTopkContract : public testing::TestWithParam<Violation> {};

TEST_P(MoePackTopkContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, MoePackTopkContract,
    testing::Values(
        Violation{"ids_f32", "topk_ids", "must be i32 or i64", with_dtype("topk_ids", DType::kF32)},
        Violation{"weights_bf16", "topk_weights", "must be f32",
                  with_dtype("topk_weights", DType::kBF16)},
        Violation{"packed_i64", "packed", "must be i32", with_dtype("packed", DType::kI64)},
        Violation{"weights_rows", "topk_weights", "must have shape [T, topk]",
                  with_size("topk_weights", 0, 2)},
        Violation{"packed_columns", "packed", "must have shape [T, topk]",
                  with_size("packed", 1, 15)},
        Violation{"packed_flat", "packed", "must have shape [T, topk]", with_rank("packed", 1)},
        Violation{"weights_flat", "topk_weights", "must have shape [T, topk]",
                  with_rank("topk_weights", 1)},
        Violation{"ids_strided", "topk_ids", kUnitStride, with_stride("topk_ids", 1, 2)},
        Violation{"weights_strided", "topk_weights", kUnitStride,
                  with_stride("topk_weights", 1, 2)},
        Violation{"packed_strided", "packed", kUnitStride, with_stride("packed", 1, 2)},
        Violation{"packed_rows_overlap", "packed", "no two of its elements may share",
                  with_stride("packed", 0, 15)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoePackTopkContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

TEST(MoePackTopk, IdAboveWeight) {
  Bundle b;
  b.tensors["topk_ids"] = integers(DType::kI32, {0, 895, 1, 2, -1});
  b.tensors["topk_weights"] = Tensor::dense(DType::kF32, {5});
  const double weights[] = {1.0, 0.5, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8, -2.0};
  for (int i = 0; i < 5; ++i) b.tensors.at("topk_weights").set(i, weights[i]);
  b.tensors["packed"] = poisoned(DType::kI32, {5});
  const Tensor packed = run_cpu(kOp, b).tensors.at("packed");
  const std::uint32_t expected[] = {0x00003F80, 0x037F3F00, 0x00013F80, 0x00023F82, 0xFFFFC000};
  EXPECT_EQ(std::memcmp(packed.storage(), expected, sizeof expected), 0);
}

TEST(MoePackTopk, BitsDoNotDependOnThreads) {
  Random random(2);
  Bundle input;
  input.tensors["topk_ids"] = filled(DType::kI32, {9000, 16}, [&] { return random.next() % 896; });
  input.tensors["topk_weights"] = uniform(random, DType::kF32, {9000, 16}, 0.0, 1.0);
  input.tensors["packed"] = poisoned(DType::kI32, {9000, 16});
  expect_bits_do_not_depend_on_threads(kOp, input);
}

TEST(MoePackTopk, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, valid_bundle(), {"topk_ids", "topk_weights", "packed"});
}

}  // namespace
}  // namespace k3::harness
