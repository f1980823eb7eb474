// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/kda_pieces.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "k3/ops/kda_types.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kC = kKdaChunkTokens;
constexpr std::int64_t kD = 128;

}  // namespace

std::vector<double> chunk_keys(Random& random, const ChunkKeys& keys) {
  std::vector<double> common(kD);
  for (double& x : common) x = random.normal();
  std::vector<double> k(kC * kD);
  for (std::int64_t i = 0; i < kC; ++i) {
    double squares = 0.0;
    for (std::int64_t d = 0; d < kD; ++d) {
      double& x = k[i * kD + d];
      switch (keys.keys) {
        case Keys::kRandom:
          x = random.normal();
          break;
        case Keys::kPositive:
          x = random.uniform();
          break;
        case Keys::kNearEqual:
          x = common[d] + 0.1 * random.normal();
          break;
        case Keys::kEqual:
          x = common[d];
          break;
      }
      squares += x * x;
    }
    for (std::int64_t d = 0; d < kD; ++d) k[i * kD + d] *= keys.norm / std::sqrt(squares);
  }
  return k;
}

void set_chunk_matrices(Random& random, const ChunkKeys& keys, const Tensor& beta, Tensor& L) {
  const std::int64_t matrices = L.numel() / (kC * kC);
  for (std::int64_t m = 0; m < matrices; ++m) {
    const std::vector<double> k = chunk_keys(random, keys);
    for (std::int64_t i = 0; i < kC; ++i) {
      const double scale = beta.get(m * kC + i);
      for (std::int64_t j = 0; j < kC; ++j) {
        double x = (i + j) % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : std::numeric_limits<double>::infinity();
        if (j < i) {
          double dot = 0.0;
          for (std::int64_t d = 0; d < kD; ++d) dot += k[i * kD + d] * k[j * kD + d];
          x = scale * dot * std::exp(keys.log_gate * static_cast<double>(i - j));
        }
        L.set((m * kC + i) * kC + j, x);
      }
    }
  }
}

Tensor repeated(const Tensor& block, std::vector<std::int64_t> shape) {
  Tensor tensor = Tensor::dense(block.dtype(), std::move(shape));
  for (std::size_t at = 0; at < tensor.storage_bytes(); at += block.storage_bytes())
    std::memcpy(tensor.storage() + at, block.storage(), block.storage_bytes());
  return tensor;
}

std::vector<BenchShape> chunk_bench_shapes(Level level,
                                           BenchShape (*shape)(std::int64_t T, std::int64_t H)) {
  std::vector<BenchShape> shapes = {shape(512, 12), shape(2048, 12)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(shape(8192, 12));
  if (level == Level::kFull) shapes.push_back(shape(8192, 96));
  return shapes;
}

}  // namespace k3::harness
