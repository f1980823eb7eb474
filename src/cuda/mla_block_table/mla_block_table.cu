// SPDX-License-Identifier: Apache-2.0

// One thread makes one entry: a chain of up to three dependent loads, lists, token and page. CTAs
// past a request's length leave at once, because only the device knows the lengths. No shared
// memory, no barrier.

#include "cuda/mla_block_table/mla_block_table.h"

#include <cstdint>

#include "cuda/common/divider.h"
#include "cuda/common/error.h"
#include "cuda/common/integers.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"

namespace k3::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int32_t kOutOfRange = -1;

/// The entry of a request's row for the page that begins at `column`.
__device__ std::int32_t entry_of(const MlaBlockTableProblem& p, const Divider& by_page_size,
                                 std::int64_t row, std::int64_t start, std::int64_t first) {
  if (row < 0 || row >= p.num_rows || start < 0 || start >= p.row_length) return kOutOfRange;
  const std::int64_t column = start + first;
  if (column >= p.row_length) return kOutOfRange;
  const std::int32_t token = p.req_to_token[row * p.row_stride + column];
  if (token < 0) return kOutOfRange;
  std::int64_t page = by_page_size.quotient(static_cast<std::uint32_t>(token));
  if (p.has_v2p) {
    if (page >= p.v2p.size) return kOutOfRange;
    page = load_integer(p.v2p, page);
  }
  constexpr std::int32_t kMax = 0x7FFFFFFF;
  if (page < 0 || page > kMax / p.page_mult) return kOutOfRange;
  return static_cast<std::int32_t>(page) * p.page_mult;
}

__global__ __launch_bounds__(kThreads) void mla_block_table_kernel(
    const __grid_constant__ MlaBlockTableProblem p, Divider by_page_size) {
  pdl_launch_dependents();
  const std::int64_t b = blockIdx.y + static_cast<std::int64_t>(blockIdx.z) * gridDim.y;
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b >= p.B || j >= p.M) return;
  const std::int64_t first = j * p.page_size;
  pdl_wait();
  const std::int64_t length = load_integer(p.seq_lens, b);
  const std::int64_t row = load_integer(p.req_pool, b);
  const std::int64_t start = p.start.data != nullptr ? load_integer(p.start, b) : 0;
  if (first >= length) return;
  p.block_table[b * p.block_table_stride + j] = entry_of(p, by_page_size, row, start, first);
}

}  // namespace

void mla_block_table(const MlaBlockTableProblem& problem, const Target& target) {
  if (problem.B == 0 || problem.M == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid =
      grid_over_requests((static_cast<unsigned>(problem.M) - 1) / kThreads + 1, problem.B);
  config.block = dim3(kThreads);
  K3_CUDA_CHECK(launch(mla_block_table_kernel, config, problem,
                       Divider(static_cast<std::uint32_t>(problem.page_size))));
}

}  // namespace k3::cuda
