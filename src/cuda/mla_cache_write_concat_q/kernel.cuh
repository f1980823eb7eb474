// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/bf16.h"
#include "cuda/common/divider.h"
#include "cuda/common/fp8.cuh"
#include "cuda/common/integers.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// A token has H + 1 rows to write: one for each query head, then the cache's. One thread makes one
/// vector of one row: it finds where that comes from and goes to, loads, rounds, stores. Rows are
/// numbered through, so that warps see consecutive addresses on both sides across row ends. No
/// shared memory, no barrier. CTAs that may start while their predecessor still runs bring what
/// they will load into the L2 meanwhile.
namespace k3::cuda {

inline constexpr int kMlaCacheWriteThreads = 256;

/// Tokens of the problem, few enough for 32-bit vector indices.
struct MlaCacheWriteParams {
  const bf16* q_nope;  ///< [tokens, heads, nope]
  const bf16* q_rope;  ///< [tokens, heads, rope]
  const bf16* k_nope;  ///< [tokens, nope]
  const bf16* k_rope;  ///< [tokens, rope]
  void* q_out;         ///< [tokens, heads, nope + rope]
  void* kv_buffer;     ///< [num_rows, nope + rope]
  // Strides in elements.
  std::int64_t q_nope_token_stride;
  std::int64_t q_nope_head_stride;
  std::int64_t q_rope_token_stride;
  std::int64_t q_rope_head_stride;
  std::int64_t k_nope_stride;
  std::int64_t k_rope_stride;
  std::int64_t q_out_token_stride;
  std::int64_t q_out_head_stride;
  std::int64_t kv_stride;

  IntegerList slots;  ///< [tokens]
  std::int64_t num_rows;
  int dcp_world_size;
  int dcp_rank;
  int null_index;

  std::uint32_t heads;
  std::uint32_t nope_vectors;
  std::uint32_t row_vectors;
  std::uint32_t num_vectors;  ///< tokens * (heads + 1) * row_vectors, below 2^31
  std::uint32_t early_ctas;   ///< as many may start early
  Divider by_row_vectors;
  Divider by_token_rows;  ///< heads + 1
};

/// What a thread stores, and what it loads for that.
template <int kVec, bool kFp8>
struct MlaCacheWriteVector;
template <>
struct MlaCacheWriteVector<8, false> {
  using In = uint4;
  using Out = uint4;
};
template <>
struct MlaCacheWriteVector<16, true> {
  struct In {
    uint4 low;
    uint4 high;
  };
  using Out = uint4;
};
template <>
struct MlaCacheWriteVector<1, false> {
  using In = std::uint16_t;
  using Out = std::uint16_t;
};
template <>
struct MlaCacheWriteVector<1, true> {
  using In = std::uint16_t;
  using Out = std::uint8_t;
};

__device__ inline std::uint32_t e4m3_of_pairs(std::uint32_t first, std::uint32_t second) {
  return e4m3_quad(low_half(first), high_half(first), low_half(second), high_half(second));
}

/// Loaded elements as the cache holds them.
template <bool kFp8>
__device__ uint4 to_cache(uint4 x) {
  return x;
}
template <bool kFp8>
__device__ uint4 to_cache(MlaCacheWriteVector<16, true>::In x) {
  return {e4m3_of_pairs(x.low.x, x.low.y), e4m3_of_pairs(x.low.z, x.low.w),
          e4m3_of_pairs(x.high.x, x.high.y), e4m3_of_pairs(x.high.z, x.high.w)};
}
template <bool kFp8>
__device__ auto to_cache(std::uint16_t x) {
  if constexpr (kFp8)
    return static_cast<std::uint8_t>(e4m3_pair(low_half(x), 0.0F));
  else
    return x;
}

/// The cache row that this rank writes for a token, or -1: padding, another rank's, or past the
/// pool.
__device__ inline std::int64_t cache_row(const MlaCacheWriteParams& p, std::uint32_t token) {
  const std::int64_t slot = load_integer(p.slots, token);
  if (slot <= p.null_index) return -1;
  std::int64_t row = slot;
  if (p.dcp_world_size > 1) {
    row = slot / p.dcp_world_size;
    if (slot - row * p.dcp_world_size != p.dcp_rank) return -1;
  }
  return row < p.num_rows ? row : -1;
}

template <int kVec, bool kFp8>
__global__ __launch_bounds__(kMlaCacheWriteThreads) void mla_cache_write_concat_q_kernel(
    const __grid_constant__ MlaCacheWriteParams p) {
  using In = typename MlaCacheWriteVector<kVec, kFp8>::In;
  using Out = typename MlaCacheWriteVector<kVec, kFp8>::Out;
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kMlaCacheWriteThreads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::uint32_t vector = index - row * p.row_vectors;
  const std::uint32_t token = p.by_token_rows.quotient(row);
  const std::uint32_t head = row - token * (p.heads + 1);
  const bool is_key = head == p.heads;
  const bool is_rope = vector >= p.nope_vectors;
  const bf16* from;
  if (is_key)
    from = is_rope ? p.k_rope + token * p.k_rope_stride : p.k_nope + token * p.k_nope_stride;
  else
    from = is_rope ? p.q_rope + token * p.q_rope_token_stride + head * p.q_rope_head_stride
                   : p.q_nope + token * p.q_nope_token_stride + head * p.q_nope_head_stride;
  from += std::int64_t{kVec} * (is_rope ? vector - p.nope_vectors : vector);
  if constexpr (kVec > 1) {
    const bool begins = threadIdx.x == 0 || vector == 0 || vector == p.nope_vectors;
    if (begins && blockIdx.x < p.early_ctas) {
      const std::uint32_t of_part = (is_rope ? p.row_vectors : p.nope_vectors) - vector;
      const std::uint32_t of_cta = kMlaCacheWriteThreads - threadIdx.x;
      prefetch_l2(from, min(of_part, of_cta) * static_cast<std::uint32_t>(sizeof(In)));
    }
  }

  pdl_wait();
  // Before the slot is known: a key waits for the longer of the two loads, not for their sum. The
  // empty statement keeps the compiler from moving the load behind the other.
  const In x = *reinterpret_cast<const In*>(from);
  asm volatile("" ::: "memory");
  std::int64_t to = token * p.q_out_token_stride + head * p.q_out_head_stride;
  void* base = p.q_out;
  if (is_key) {
    const std::int64_t cache = cache_row(p, token);
    if (cache < 0) return;
    to = cache * p.kv_stride;
    base = p.kv_buffer;
  }
  to += std::int64_t{kVec} * vector;
  using Element = std::conditional_t<kFp8, std::uint8_t, std::uint16_t>;
  *reinterpret_cast<Out*>(static_cast<Element*>(base) + to) = to_cache<kFp8>(x);
}

}  // namespace k3::cuda
