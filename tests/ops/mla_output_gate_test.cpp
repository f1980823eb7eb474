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
  const Bundle input = rows_of(90, 1001);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")))
        << threads;
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

/// Large outputs are stored past the caches, from the first aligned vector on.
TEST(MlaOutputGate, LargeOutputsEqualTheirParts) {
  constexpr std::int64_t kRows = 4200;
  constexpr std::int64_t kWidth = 1001;
  Random random(5);
  Bundle b;
  for (const char* name : {"x", "gate"})
    b.tensors[name] = repeated_normal(random, DType::kBF16, {kRows, kWidth}, kWidth);
  b.tensors["out"] = Tensor::strided(DType::kBF16, {kRows, kWidth}, {kWidth + 2, 1}, 3);
  const Bundle whole = run_cpu(kOp, b, 2);
  Bundle row;
  for (const char* name : {"x", "gate"}) row.tensors[name] = slice(b.tensors.at(name), 0, 0, 1);
  row.tensors["out"] = poisoned(DType::kBF16, {1, kWidth});
  const Bundle part = run_cpu(kOp, row);
  for (std::int64_t r : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2099}, kRows - 1})
    EXPECT_TRUE(same_bits(slice(whole.tensors.at("out"), 0, r, r + 1), part.tensors.at("out")))
        << r;
}

TEST(MlaOutputGate, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between rows
  constexpr std::int64_t kRows = 4;                             // the last one is past 3 * 2^30
  constexpr std::int64_t kD = 40;
  const Bundle dense = rows_of(kRows, kD);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer x(static_cast<std::size_t>(kPitch * kRows) * 2);
  const SparseBuffer gate(static_cast<std::size_t>(kPitch * kRows) * 2);
  const SparseBuffer out(static_cast<std::size_t>(kPitch * kRows) * 2);
  if (!x.valid() || !gate.valid() || !out.valid()) GTEST_SKIP() << "no address space of 24 GiB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"x", &x}, {"gate", &gate}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
    if (std::string(name) == "out") continue;
    for (std::int64_t row = 0; row < kRows; ++row)
      std::memcpy(buffer->at(2 * row * kPitch), dense.tensors.at(name).element(kD * row).data(),
                  2 * kD);
  }
  run_call(*find_driver(kOp), call);
  for (std::int64_t row = 0; row < kRows; ++row)
    EXPECT_EQ(std::memcmp(out.at(2 * row * kPitch),
                          reference.tensors.at("out").element(kD * row).data(), 2 * kD),
              0)
        << row;
}

}  // namespace
}  // namespace k3::harness
