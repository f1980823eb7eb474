// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["x"] = normal(random, DType::kBF16, {3, 64});
  b.tensors["w"] = normal(random, DType::kBF16, {20, 64});
  b.tensors["out"] = poisoned(DType::kF32, {3, 20});
  return b;
}

class TinyGemmContract : public testing::TestWithParam<Violation> {};

TEST_P(TinyGemmContract, Refuses) {
  expect_refused(*find_driver("tiny_gemm"), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, TinyGemmContract,
    testing::Values(
        Violation{"17_rows", "x", "must have at most 16 rows (cuBLASLt makes larger products)",
                  [](Call& c) {
                    with_size("x", 0, 17)(c);
                    with_stride("x", 0, 0)(c);
                  }},
        Violation{"x_f32", "x", "must be bf16", with_dtype("x", DType::kF32)},
        Violation{"w_f16", "w", "must be bf16", with_dtype("w", DType::kF16)},
        Violation{"out_f16", "out", "must be bf16 or f32", with_dtype("out", DType::kF16)},
        Violation{"x_rank_1", "x", "must have rank 2", with_rank("x", 1)},
        Violation{"w_of_other_length", "w", "must have shape [N, K]", with_size("w", 1, 63)},
        Violation{"x_of_other_length", "w", "must have shape [N, K]", with_size("x", 1, 32)},
        Violation{"out_of_other_rows", "out", "must have shape [M, N]", with_size("out", 0, 2)},
        Violation{"out_of_other_columns", "out", "must have shape [M, N]", with_size("out", 1, 19)},
        Violation{"K_past_31_bits", "x", "must fit 31 bits",
                  [](Call& c) {
                    for (const char* name : {"x", "w"}) {
                      with_size(name, 1, std::int64_t{1} << 31)(c);
                      with_stride(name, 1, 0)(c);
                    }
                  }},
        Violation{"N_past_31_bits", "w", "must fit 31 bits",
                  [](Call& c) {
                    with_size("w", 0, std::int64_t{1} << 31)(c);
                    with_stride("w", 0, 0)(c);
                  }},
        Violation{"x_strided", "x", kUnitStride, with_stride("x", 1, 2)},
        Violation{"w_strided", "w", kUnitStride, with_stride("w", 1, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 19)},
        Violation{"negative_stride", "w", "must have no negative stride",
                  with_stride("w", 0, -64)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, TinyGemmContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("tiny_gemm"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
