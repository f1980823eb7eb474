// SPDX-License-Identifier: Apache-2.0
// Conversions on the device against those of the host: bf16, fp8, power-of-two scales, and the
// divider.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/bf16.h"
#include "core/fp8.h"
#include "cuda/common/divider.h"
#include "cuda/common/fp8.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "tests/cuda/device_arrays.h"

namespace k3::cuda {
namespace {

using harness::DeviceArray;
constexpr int kThreads = 256;

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}
__device__ std::uint32_t index() { return blockIdx.x * kThreads + threadIdx.x; }

/// Every bf16, the floats beside it, and a sample of all patterns.
std::vector<float> many_floats() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 65536; ++high)
    for (const std::uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 10007)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return values;
}

class Conversions_cuda_ : public harness::OnCuda {};

__global__ void to_e4m3_codes(const float* x, std::uint32_t count, std::uint32_t* pairs,
                              std::uint32_t* quads) {
  const std::uint32_t i = index();
  if (i >= count) return;
  pairs[i] = e4m3_pair(x[i], x[count - 1 - i]);
  quads[i] = e4m3_quad(x[i], x[count - 1 - i], 1.0F, x[i]);
}

TEST_F(Conversions_cuda_, Fp8CodesAreTheHostsInEveryPlaceOfAWord) {
  const std::vector<float> values = many_floats();
  const auto count = static_cast<std::uint32_t>(values.size());
  const DeviceArray<float> x{std::span(values)};
  const DeviceArray<std::uint32_t> pairs(count);
  const DeviceArray<std::uint32_t> quads(count);
  to_e4m3_codes<<<blocks_for(count), kThreads>>>(x.data(), count, pairs.data(), quads.data());
  const auto seen_pairs = pairs.read();
  const auto seen_quads = quads.read();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t here = to_e4m3(values[i]).bits;
    const std::uint32_t there = to_e4m3(values[count - 1 - i]).bits;
    ASSERT_EQ(seen_pairs[i], here | there << 8) << std::bit_cast<std::uint32_t>(values[i]);
    ASSERT_EQ(seen_quads[i], here | there << 8 | 0x38U << 16 | here << 24);
  }
}

__global__ void clamp_and_scale(const float* x, std::uint32_t count, float* clamped,
                                std::uint32_t* ceilings) {
  const std::uint32_t i = index();
  if (i >= count) return;
  clamped[i] = clamp_to_e4m3(x[i]);
  ceilings[i] = ue8m0_ceil(x[i]);
}

TEST_F(Conversions_cuda_, ClampTakesNaNForTheLargestValue) {
  const std::vector<float> values = many_floats();
  const auto count = static_cast<std::uint32_t>(values.size());
  const DeviceArray<float> x{std::span(values)};
  const DeviceArray<float> clamped(count);
  const DeviceArray<std::uint32_t> ceilings(count);
  clamp_and_scale<<<blocks_for(count), kThreads>>>(x.data(), count, clamped.data(),
                                                   ceilings.data());
  const auto seen = clamped.read();
  const auto bytes = ceilings.read();
  for (std::uint32_t i = 0; i < count; ++i) {
    const float v = values[i];
    ASSERT_EQ(seen[i], std::isnan(v) ? kMaxE4M3 : std::fmax(std::fmin(v, kMaxE4M3), -kMaxE4M3));
    if (v > 0.0F && std::isfinite(v)) {
      ASSERT_EQ(bytes[i], k3::ue8m0_ceil(v)) << v;
    }
  }
}

__global__ void scale_values(float* values, float* reciprocals) {
  values[threadIdx.x] = ue8m0_value(threadIdx.x);
  reciprocals[threadIdx.x] = ue8m0_reciprocal(threadIdx.x);
}

TEST_F(Conversions_cuda_, ScalesOfEveryByte) {
  const DeviceArray<float> values(256);
  const DeviceArray<float> reciprocals(256);
  scale_values<<<1, 256>>>(values.data(), reciprocals.data());
  const auto v = values.read();
  const auto r = reciprocals.read();
  for (int byte = 1; byte <= 254; ++byte) EXPECT_EQ(v[byte], std::ldexp(1.0F, byte - 127)) << byte;
  for (int byte = 1; byte <= 253; ++byte) {
    EXPECT_EQ(r[byte], std::ldexp(1.0F, 127 - byte)) << byte;
    EXPECT_EQ(v[byte], k3::ue8m0_value(static_cast<std::uint8_t>(byte)));
    EXPECT_EQ(r[byte], k3::ue8m0_reciprocal(static_cast<std::uint8_t>(byte)));
  }
}

__global__ void round_and_widen(const float* x, std::uint32_t count, std::uint32_t* packed,
                                float* low, float* high) {
  const std::uint32_t i = index();
  if (i >= count) return;
  packed[i] = pack_bf16(x[i], x[count - 1 - i]);
  low[i] = low_half(packed[i]);
  high[i] = high_half(packed[i]);
}

/// The hardware's NaN has no payload; it must be one.
void expect_bf16(bf16 expected, std::uint32_t seen, float from) {
  if (std::isnan(from))
    ASSERT_TRUE(std::isnan(to_float(bf16{static_cast<std::uint16_t>(seen)})));
  else
    ASSERT_EQ(expected.bits, seen) << from;
}

TEST_F(Conversions_cuda_, PairsOfBf16RoundAsTheHostAndWidenToThemselves) {
  const std::vector<float> values = many_floats();
  const auto count = static_cast<std::uint32_t>(values.size());
  const DeviceArray<float> x{std::span(values)};
  const DeviceArray<std::uint32_t> packed(count);
  const DeviceArray<float> low(count);
  const DeviceArray<float> high(count);
  round_and_widen<<<blocks_for(count), kThreads>>>(x.data(), count, packed.data(), low.data(),
                                                   high.data());
  const auto words = packed.read();
  const auto lows = low.read();
  const auto highs = high.read();
  for (std::uint32_t i = 0; i < count; ++i) {
    expect_bf16(to_bf16(values[i]), words[i] & 0xFFFFU, values[i]);
    expect_bf16(to_bf16(values[count - 1 - i]), words[i] >> 16, values[count - 1 - i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(lows[i]), words[i] << 16);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(highs[i]), words[i] & 0xFFFF0000U);
  }
}

__global__ void divide(Divider by, const std::uint32_t* n, std::uint32_t count,
                       std::uint32_t* quotients) {
  if (index() < count) quotients[index()] = by.quotient(n[index()]);
}

TEST_F(Conversions_cuda_, DividerIsExactAtEveryEdge) {
  constexpr std::uint32_t kMost = 0x7FFFFFFFU;
  for (const std::uint32_t d : {1U, 2U, 3U, 7U, 96U, 128U, 641U, 7168U, 65535U, 65537U, 99999989U,
                                0x40000000U, 0x40000001U, kMost - 1, kMost}) {
    std::vector<std::uint32_t> n = {0, 1, kMost - 1, kMost};
    for (std::uint64_t multiple = d; multiple <= kMost; multiple += d * (kMost / d / 500 + 1ULL))
      for (const std::int64_t off : {-1, 0, 1})
        if (const auto value = static_cast<std::int64_t>(multiple) + off; value <= kMost)
          n.push_back(static_cast<std::uint32_t>(value));
    const auto count = static_cast<std::uint32_t>(n.size());
    const DeviceArray<std::uint32_t> on_device{std::span<const std::uint32_t>(n)};
    const DeviceArray<std::uint32_t> quotients(count);
    divide<<<blocks_for(count), kThreads>>>(Divider(d), on_device.data(), count, quotients.data());
    const auto seen = quotients.read();
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(seen[i], n[i] / d) << n[i] << " / " << d;
  }
}

}  // namespace
}  // namespace k3::cuda
