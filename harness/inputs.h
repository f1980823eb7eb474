// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "harness/tensor.h"

/// Makers of test and bench inputs. The same seed gives the same values on every machine.
namespace k3::harness {

/// SplitMix64 with uniform and normal draws.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  double uniform(double low = 0.0, double high = 1.0) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
  /// Nearly normal, within 3.47 deviations: the sum of the draw's four 16-bit pieces, each taken as
  /// uniform. No function of a mathematics library, whose last bits differ between machines.
  double normal() {
    const std::uint64_t bits = next();
    std::uint64_t sum = 0;
    for (int piece = 0; piece < 4; ++piece) sum += bits >> 16 * piece & 0xFFFF;
    constexpr double kMean = 2.0 * 0xFFFF;
    constexpr double kDeviation = 0x10000 * 0.57735026918962576;  // of four: 2 / sqrt(12) each
    return (static_cast<double>(sum) - kMean) / kDeviation;
  }

 private:
  std::uint64_t state_;
};

template <class Draw>
Tensor filled(DType dtype, std::vector<std::int64_t> shape, Draw draw) {
  Tensor tensor = Tensor::dense(dtype, std::move(shape));
  const std::int64_t n = tensor.numel();
  for (std::int64_t i = 0; i < n; ++i) tensor.set(i, draw());
  return tensor;
}

inline Tensor normal(Random& random, DType dtype, std::vector<std::int64_t> shape,
                     double deviation = 1.0, double mean = 0.0) {
  return filled(dtype, std::move(shape), [&] { return mean + deviation * random.normal(); });
}

/// As `normal`, but the same `period` values over and over, the last time perhaps not all of them:
/// for pools whose values matter less than the time it takes to draw them.
inline Tensor repeated_normal(Random& random, DType dtype, std::vector<std::int64_t> shape,
                              std::int64_t period) {
  Tensor tensor = Tensor::dense(dtype, std::move(shape));
  const Tensor block = normal(random, dtype, {std::min(period, tensor.numel())});
  for (std::size_t at = 0; at < tensor.storage_bytes(); at += block.storage_bytes())
    std::memcpy(tensor.storage() + at, block.storage(),
                std::min(block.storage_bytes(), tensor.storage_bytes() - at));
  return tensor;
}

inline Tensor uniform(Random& random, DType dtype, std::vector<std::int64_t> shape, double low,
                      double high) {
  return filled(dtype, std::move(shape), [&] { return random.uniform(low, high); });
}

inline Tensor constant(DType dtype, std::vector<std::int64_t> shape, double value) {
  return filled(dtype, std::move(shape), [&] { return value; });
}

inline Tensor integers(DType dtype, const std::vector<std::int64_t>& values) {
  Tensor tensor = Tensor::dense(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return tensor;
}

/// An output to be written: dense, every byte 0xFF, which reads as NaN in every float type.
inline Tensor poisoned(DType dtype, std::vector<std::int64_t> shape) {
  Tensor tensor = Tensor::dense(dtype, std::move(shape));
  tensor.fill_bytes(std::byte{0xFF});
  return tensor;
}

/// Gaps between elements that read as NaN, so that a read of one shows.
inline constexpr std::byte kNaNGaps{0xFF};

/// The same values under other strides, every byte between them `gap_byte`.
inline Tensor restrided(const Tensor& tensor, std::vector<std::int64_t> strides,
                        std::int64_t offset = 0, std::byte gap_byte = std::byte{0xA5}) {
  Tensor result =
      Tensor::strided(tensor.dtype(), tensor.shape(), std::move(strides), offset, gap_byte);
  const std::int64_t n = tensor.numel();
  for (std::int64_t i = 0; i < n; ++i) result.set(i, tensor.get(i));
  return result;
}

}  // namespace k3::harness
