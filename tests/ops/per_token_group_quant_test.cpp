// SPDX-License-Identifier: Apache-2.0
// What must hold of per_token_group_quant beyond agreement with the oracle.
#include "k3/ops/per_token_group_quant.h"

#include <cmath>

#include "tests/ops/far_on_device.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "per_token_group_quant";

Bundle rows_of(std::int64_t rows, std::int64_t D, bool ue8m0) {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {rows, D}, 3.0);
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, {rows, D});
  b.tensors["output_s"] = poisoned(DType::kF32, {rows, D / 32});
  b.scalars = {{"group_size", "32"}, {"scale_ue8m0", ue8m0 ? "1" : "0"}};
  return b;
}

TEST(PerTokenGroupQuant, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, rows_of(70, 992, true));
}

/// A value is off by at most half a step of its code: 2^-4 of it, or 2^-10 of the scale.
TEST(PerTokenGroupQuant, CodesTimesScalesAreTheValues) {
  for (bool ue8m0 : {false, true}) {
    const Bundle b = run_cpu(kOp, rows_of(5, 256, ue8m0));
    for (std::int64_t i = 0; i < 5 * 256; ++i) {
      const double x = b.tensors.at("input").get(i);
      const double scale = b.tensors.at("output_s").get(i / 32);
      const double bound = std::max(std::fabs(x) * 0x1p-4, scale * 0x1p-10) * (1 + 0x1p-20);
      ASSERT_NEAR(b.tensors.at("output_q").get(i) * scale, x, bound) << i;
      if (ue8m0) {
        ASSERT_EQ(std::exp2(std::round(std::log2(scale))), scale) << i;
      }
    }
  }
}

TEST(PerTokenGroupQuant, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rows_of(4, 96, false), {"input", "output_q", "output_s"},
                          (std::int64_t{1} << 30) + 16);
}

TEST(PerTokenGroupQuantOnDevice, on_cuda_OffsetsPastTwoToThe31Elements) {
  if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda))
    expect_same_far_apart(kOp, rows_of(4, 96, true), {"input", "output_q", "output_s"},
                          (std::int64_t{1} << 30) + 16, variant);
}

}  // namespace
}  // namespace k3::harness
