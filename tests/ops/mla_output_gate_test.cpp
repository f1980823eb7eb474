// SPDX-License-Identifier: Apache-2.0
// What must hold of mla_output_gate beyond agreement with the oracle.
#include "k3/ops/mla_output_gate.h"

#include <cmath>
#include <cstring>

#include "core/bf16.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_output_gate";

Bundle rows_of(std::int64_t rows, std::int64_t D) {
  Random random(1);
  Bundle b;
  b.tensors["x"] = normal(random, DType::kBF16, {rows, D});
  b.tensors["gate"] = normal(random, DType::kBF16, {rows, D}, 3.0);
  b.tensors["out"] = poisoned(DType::kBF16, {rows, D});
  return b;
}

TEST(MlaOutputGate, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, rows_of(90, 1001));
}

/// To the nearest bf16 in units of its last place, in long double: no tie is within 2^-28 of one.
TEST(MlaOutputGate, EverySigmoidIsRoundedOnce) {
  Bundle b = rows_of(1, 65536);
  Tensor& gate = b.tensors.at("gate");
  b.tensors.at("x").fill(1.0);
  for (std::int64_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(gate.storage() + 2 * i, &bits, sizeof(bits));
  }
  const Bundle result = run_cpu(kOp, b);
  for (std::int64_t i = 0; i < 65536; ++i) {
    const auto g = static_cast<long double>(gate.get(i));
    const double seen = result.tensors.at("out").get(i);
    if (std::isnan(g)) {
      EXPECT_TRUE(std::isnan(seen)) << i;
      continue;
    }
    const long double exact = 1.0L / (1.0L + std::exp(-g));
    const int place = std::max(exact > 0.0L ? std::ilogb(exact) : -200, -126) - 7;
    const long double units = std::nearbyint(std::ldexp(exact, -place));
    EXPECT_EQ(seen, static_cast<double>(std::ldexp(units, place))) << "gate " << gate.get(i);
  }
}

TEST(MlaOutputGate, InPlace) {
  const Bundle input = rows_of(5, 333);
  const Bundle apart = run_cpu(kOp, input);
  Bundle bundle = input.clone();
  Call call = host_call(*find_driver(kOp), bundle);
  call.tensors.at("out") = call.tensors.at("x");
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(apart.tensors.at("out"), bundle.tensors.at("x")));
}

TEST(MlaOutputGate, LargeOutputsEqualTheirParts) {
  expect_large_outputs_equal_their_parts(kOp, {"x", "gate"});
}

TEST(MlaOutputGate, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rows_of(4, 40), {"x", "gate", "out"});
}

}  // namespace
}  // namespace k3::harness
