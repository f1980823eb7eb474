// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/pdl.cuh"

/// out = bf16(bf16(a + b) + c). One thread makes one vector of one row; the bytes bind.
namespace k3::cuda {

inline constexpr int kAdd3Threads = 256;

/// A block of rows and columns of the problem, small enough for 32-bit vector indices.
struct Add3Params {
  const bf16* a;  ///< [rows, columns]
  const bf16* b;  ///< [rows, columns]
  const bf16* c;  ///< [rows, columns]
  bf16* out;      ///< [rows, columns]; may be a
  std::int64_t a_stride;
  std::int64_t b_stride;
  std::int64_t c_stride;
  std::int64_t out_stride;
  std::uint32_t row_vectors;  ///< columns of a vector each
  std::uint32_t num_vectors;  ///< rows * row_vectors, below 2^31
  Divider by_row_vectors;
};

/// bf16(a + b), exact sums rounded once.
template <int kVec>
__device__ Bf16Vector<kVec> add(const Bf16Vector<kVec>& a, const Bf16Vector<kVec>& b) {
  float x[kVec];
  float y[kVec];
  unpack(a, x);
  unpack(b, y);
#pragma unroll
  for (int i = 0; i < kVec; ++i) x[i] += y[i];
  return pack(x);
}

template <int kVec>
__global__ __launch_bounds__(kAdd3Threads) void add3_kernel(const __grid_constant__ Add3Params p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kAdd3Threads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::int64_t column = static_cast<std::int64_t>(index - row * p.row_vectors) * kVec;

  pdl_wait();
  const auto a = load_vector<kVec>(p.a + row * p.a_stride + column);
  const auto b = load_vector<kVec>(p.b + row * p.b_stride + column);
  const auto c = load_vector<kVec>(p.c + row * p.c_stride + column);
  store_streaming(p.out + row * p.out_stride + column, add(add(a, b), c));
}

}  // namespace k3::cuda
