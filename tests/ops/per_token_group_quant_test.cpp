// SPDX-License-Identifier: Apache-2.0
// What must hold of per_token_group_quant beyond agreement with the oracle.
#include "k3/ops/per_token_group_quant.h"

#include <cmath>
#include <cstring>

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
  const Bundle input = rows_of(70, 992, true);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16}) {
    const Bundle many = run_cpu(kOp, input, threads);
    for (const char* name : {"output_q", "output_s"})
      EXPECT_TRUE(same_bits(one.tensors.at(name), many.tensors.at(name))) << name << threads;
  }
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
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 16;  // elements between rows
  constexpr std::int64_t kRows = 4;                              // the last is past 3 * 2^30
  constexpr std::int64_t kD = 96;
  const Bundle dense = rows_of(kRows, kD, false);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer input(static_cast<std::size_t>(kPitch * kRows) * 2);
  const SparseBuffer codes(static_cast<std::size_t>(kPitch * kRows));
  const SparseBuffer scales(static_cast<std::size_t>(kPitch * kRows) * 4);
  if (!input.valid() || !codes.valid() || !scales.valid())
    GTEST_SKIP() << "no address space of 28 GiB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] :
       {std::pair{"input", &input}, {"output_q", &codes}, {"output_s", &scales}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
  }
  for (std::int64_t row = 0; row < kRows; ++row)
    std::memcpy(input.at(2 * row * kPitch), dense.tensors.at("input").element(kD * row).data(),
                2 * kD);
  run_call(*find_driver(kOp), call);
  const auto same = [&](const SparseBuffer& seen, const char* name, std::int64_t row,
                        std::int64_t width, std::int64_t bytes) {
    return std::memcmp(seen.at(bytes * row * kPitch),
                       reference.tensors.at(name).element(width * row).data(),
                       static_cast<std::size_t>(bytes * width)) == 0;
  };
  for (std::int64_t row = 0; row < kRows; ++row) {
    EXPECT_TRUE(same(codes, "output_q", row, kD, 1)) << row;
    EXPECT_TRUE(same(scales, "output_s", row, kD / 32, 4)) << row;
  }
}

TEST(PerTokenGroupQuantOnDevice, on_cuda_OffsetsPastTwoToThe31Elements) {
  if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda))
    expect_same_far_apart(kOp, rows_of(4, 96, true), {"input", "output_q", "output_s"},
                          (std::int64_t{1} << 30) + 16, variant);
}

}  // namespace
}  // namespace k3::harness
