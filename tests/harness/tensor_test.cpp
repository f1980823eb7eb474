// SPDX-License-Identifier: Apache-2.0
#include "harness/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness/driver.h"
#include "harness/inputs.h"
#include "k3/error.h"

namespace k3::harness {
namespace {

template <class Bits>
Bits bits_of(DType dtype, double value) {
  Tensor tensor = Tensor::dense(dtype, {1});
  tensor.set(0, value);
  Bits bits;
  std::memcpy(&bits, tensor.storage(), sizeof(bits));
  return bits;
}

/// Every code of a format reads as a number that is written back as the same code.
template <class Bits>
void expect_every_code_round_trips(DType dtype) {
  for (unsigned code = 0; code < 1U << (8 * sizeof(Bits)); ++code) {
    Tensor tensor = Tensor::dense(dtype, {1});
    const auto bits = static_cast<Bits>(code);
    std::memcpy(tensor.storage(), &bits, sizeof(bits));
    const double value = tensor.get(0);
    if (std::isnan(value)) continue;
    ASSERT_EQ(bits_of<Bits>(dtype, value), bits) << value;
  }
}

TEST(TensorNumbers, EveryCodeRoundTrips) {
  expect_every_code_round_trips<std::uint16_t>(DType::kBF16);
  expect_every_code_round_trips<std::uint16_t>(DType::kF16);
  expect_every_code_round_trips<std::uint8_t>(DType::kF8E4M3);
}

TEST(TensorNumbers, RoundToNearestEvenOnce) {
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kBF16, 1.0), 0x3F80);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kBF16, 1.0 + 0x1p-8), 0x3F80);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kBF16, 1.0 + 3 * 0x1p-8), 0x3F82);
  // A tie in float, but not in double.
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kBF16, 1.0 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kBF16, 1.0 + 3 * 0x1p-8 - 0x1p-40), 0x3F81);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kF16, 1.0 + 0x1p-11), 0x3C00);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kF16, 65519.0), 0x7BFF);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kF16, 65520.0), 0x7C00);
  EXPECT_EQ(bits_of<std::uint16_t>(DType::kF16, 0x1p-25), 0x0000);
  EXPECT_EQ(bits_of<std::uint8_t>(DType::kF8E4M3, 448.0), 0x7E);
  EXPECT_EQ(bits_of<std::uint8_t>(DType::kF8E4M3, 464.0), 0x7E);
  EXPECT_EQ(bits_of<std::uint8_t>(DType::kF8E4M3, -1e30), 0xFF);
  EXPECT_EQ(bits_of<std::uint8_t>(DType::kF8E4M3, 0x1p-9), 0x01);
}

TEST(TensorStorage, StridedViewsKeepTheirGaps) {
  Tensor tensor = Tensor::strided(DType::kF32, {2, 3}, {5, 1}, 2);
  EXPECT_EQ(tensor.storage_bytes(), (2 + 5 + 3) * sizeof(float));
  EXPECT_FALSE(tensor.is_dense());
  for (int i = 0; i < 6; ++i) tensor.set(i, i);
  EXPECT_EQ(tensor.values(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.storage()[0], std::byte{0xA5});
  EXPECT_EQ(tensor.storage()[5 * sizeof(float)], std::byte{0xA5});
  const Tensor copy = tensor.clone();
  tensor.fill(7.0);
  EXPECT_EQ(copy.get(5), 5.0);
  EXPECT_EQ(copy.view().strides[0], 5);
}

TEST(TensorStorage, AliasesShareIt) {
  Tensor tensor = Tensor::dense(DType::kF32, {2, 6});
  for (std::int64_t i = 0; i < 12; ++i) tensor.set(i, static_cast<double>(i));
  Tensor columns = tensor.alias({2, 2}, {6, 1}, 3);
  EXPECT_EQ(columns.values(), (std::vector<double>{3, 4, 9, 10}));
  EXPECT_EQ(columns.alias({2}, {6}, 1).values(), (std::vector<double>{4, 10}));
  EXPECT_EQ(columns.alias({3, 2}, {0, 1}).values(), (std::vector<double>{3, 4, 3, 4, 3, 4}));
  columns.set(3, 0.5);
  EXPECT_EQ(tensor.get(10), 0.5);
  EXPECT_EQ(tensor.alias({0, 6}, {6, 1}, 12).numel(), 0);
  EXPECT_THROW(static_cast<void>(columns.alias({2, 4}, {6, 1})), std::invalid_argument);
}

TEST(TensorStorage, EmptyTensorsAreDenseViews) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0}, {0, 4}, {4, 0}, {2, 0, 3}}) {
    const Tensor tensor = Tensor::dense(DType::kBF16, shape);
    EXPECT_TRUE(tensor.is_dense());
    EXPECT_EQ(tensor.storage_bytes(), 0U);
    EXPECT_TRUE(tensor.view().defined());
  }
}

TEST(Scalars, ReadTheWholeTextOrRefuse) {
  Call call;
  call.scalars = {{"f", "-5.0"}, {"empty", ""}, {"bad", "4x"},        {"plus", "+1e-5"},
                  {"b", "true"}, {"two", "2"},  {"i", "-2147483648"}, {"big", "2147483648"}};
  EXPECT_EQ(scalar_float("op", call, "f"), -5.0F);
  EXPECT_EQ(scalar_float("op", call, "plus", 0.0F), 1e-5F);
  EXPECT_EQ(scalar_float("op", call, "empty"), std::nullopt);
  EXPECT_EQ(scalar_float("op", call, "missing", 3.0F), 3.0F);
  EXPECT_THROW(scalar_float("op", call, "bad"), ContractError);
  EXPECT_TRUE(scalar_bool("op", call, "b", false));
  EXPECT_THROW(scalar_bool("op", call, "two", false), ContractError);
  EXPECT_EQ(scalar_int("op", call, "i", 0), -2147483647 - 1);
  EXPECT_THROW(scalar_int("op", call, "big", 0), ContractError);
  EXPECT_EQ(scalar_text(call, "empty", "fallback"), "fallback");
}

}  // namespace
}  // namespace k3::harness
