// SPDX-License-Identifier: Apache-2.0
//
// What the pieces under src/cuda/common cost on this GPU: three ways for a warp to copy rows,
// meetings of threads, exchanges between CTAs, sums over a warp, conversions to fp8, launches.
//   k3_device_base --json OUT
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/error.h"
#include "cuda/common/fp8.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/mbarrier.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/device.h"
#include "harness/cuda_timing.h"
#include "harness/machine.h"

namespace {

using namespace k3::cuda;
using k3::harness::CudaBuffer;
using Json = nlohmann::ordered_json;

// --- rows --------------------------------------------------------------------------------------
// A row of the destination is put together from a row of each of two sources, as a latent row of
// a KV cache is from its two parts.

constexpr int kWarpsOfCta = 4;
constexpr int kDepth = 4;  ///< rows of a warp on their way at once, where shared memory holds them

struct Rows {
  const std::byte* first;   ///< [count][kFirst]
  const std::byte* second;  ///< [count][kSecond]
  std::byte* to;            ///< [count][kFirst + kSecond]
  int count;
};

__device__ int first_row() { return static_cast<int>(blockIdx.x * kWarpsOfCta + threadIdx.x / 32); }
__device__ int num_warps() { return static_cast<int>(gridDim.x * kWarpsOfCta); }

template <int kFirst, int kSecond>
__global__ __launch_bounds__(32 * kWarpsOfCta) void copy_by_registers(const Rows rows) {
  const auto lane = threadIdx.x % 32;
  pdl_launch_dependents();
  pdl_wait();
  for (std::int64_t r = first_row(); r < rows.count; r += num_warps()) {
    std::byte* const to = rows.to + r * (kFirst + kSecond);
    warp::copy_bytes<kFirst>(rows.first + r * kFirst, to, lane);
    warp::copy_bytes<kSecond>(rows.second + r * kSecond, to + kFirst, lane);
  }
}

/// Pieces of 16 bytes through shared memory; the way out is through registers.
template <int kFirst, int kSecond>
__global__ __launch_bounds__(32 * kWarpsOfCta) void copy_by_async_copies(const Rows rows) {
  constexpr int kPieces = (kFirst + kSecond) / 16;
  extern __shared__ uint4 memory[];
  uint4* const held = memory + threadIdx.x / 32 * kDepth * kPieces;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  pdl_launch_dependents();
  pdl_wait();
  const std::int64_t step = num_warps();
  for (std::int64_t begin = first_row(); begin < rows.count; begin += kDepth * step) {
    for (int d = 0; d < kDepth; ++d) {
      const std::int64_t r = begin + d * step;
      if (r >= rows.count) break;
      for (int i = lane; i < kPieces; i += 32)
        copy_async_16(shared_address(held + d * kPieces + i),
                      16 * i < kFirst ? rows.first + r * kFirst + 16 * i
                                      : rows.second + r * kSecond + (16 * i - kFirst),
                      true);
    }
    wait_for_async_copies();
    __syncwarp();
    for (int d = 0; d < kDepth; ++d) {
      const std::int64_t r = begin + d * step;
      if (r >= rows.count) break;
      for (int i = lane; i < kPieces; i += 32)
        reinterpret_cast<uint4*>(rows.to + r * (kFirst + kSecond))[i] = held[d * kPieces + i];
    }
    __syncwarp();
  }
}

/// One lane of each warp asks for everything.
template <int kFirst, int kSecond>
__global__ __launch_bounds__(32 * kWarpsOfCta) void copy_by_bulk_copies(const Rows rows) {
  constexpr int kRow = kFirst + kSecond;
  extern __shared__ __align__(128) std::byte bytes[];
  __shared__ MBarrier full[kWarpsOfCta][kDepth];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  std::byte* const held = bytes + warp * kDepth * kRow;
  pdl_launch_dependents();
  pdl_wait();
  if (!warp::elect()) return;
  for (MBarrier& barrier : full[warp]) mbarrier_init(&barrier, 1);
  mbarrier_publish_inits();
  const std::int64_t step = num_warps();
  const auto ask = [&](std::int64_t r, int stage) {
    if (r >= rows.count) return;
    mbarrier_expect(&full[warp][stage], kRow);
    bulk_load(held + stage * kRow, rows.first + r * kFirst, kFirst, &full[warp][stage]);
    bulk_load(held + stage * kRow + kFirst, rows.second + r * kSecond, kSecond, &full[warp][stage]);
  };
  for (int d = 0; d < kDepth; ++d) ask(first_row() + d * step, d);
  int i = 0;
  for (std::int64_t r = first_row(); r < rows.count; r += step, ++i) {
    const int stage = i % kDepth;
    mbarrier_wait(&full[warp][stage], i / kDepth % 2);
    bulk_store(rows.to + r * kRow, held + stage * kRow, kRow);
    wait_until_bulk_stores_have_read<1>();
    if (i > 0) ask(r + (kDepth - 1) * step, (i - 1) % kDepth);
  }
  wait_until_bulk_stores_have_read();
}

template <int kFirst, int kSecond>
void time_rows(Json& report) {
  constexpr int kRow = kFirst + kSecond;
  const int num_sms = properties(0).num_sms;
  const int count = num_sms * 512;
  const std::size_t row_bytes = kRow;
  constexpr int kSets = 3;  // each past the L2, with what it writes
  std::vector<CudaBuffer> buffers;
  std::vector<Rows> sets;
  for (int s = 0; s < kSets; ++s) {
    buffers.emplace_back(count * row_bytes);
    buffers.emplace_back(count * row_bytes);
    std::byte* const from = buffers[2 * s].data();
    K3_CUDA_CHECK(cudaMemset(from, 0x3C, count * row_bytes));
    sets.push_back({from, from + std::size_t{kFirst} * count, buffers[2 * s + 1].data(), count});
  }
  struct Strategy {
    const char* name;
    void (*kernel)(Rows);
    std::size_t smem;
  };
  const std::size_t held = kWarpsOfCta * kDepth * row_bytes;
  const Strategy strategies[] = {{"registers", copy_by_registers<kFirst, kSecond>, 0},
                                 {"cp.async", copy_by_async_copies<kFirst, kSecond>, held},
                                 {"bulk", copy_by_bulk_copies<kFirst, kSecond>, held}};
  std::printf("rows of %d + %d bytes, %d of them; us, and TB/s read and written\n", kFirst, kSecond,
              count);
  for (const Strategy& strategy : strategies) {
    std::printf("  %-10s", strategy.name);
    for (const int warps_of_sm : {8, 16, 32}) {
      LaunchConfig config;
      config.grid = dim3(num_sms * warps_of_sm / kWarpsOfCta);
      config.block = dim3(32 * kWarpsOfCta);
      config.dynamic_smem_bytes = strategy.smem;
      config.pdl = true;
      const double us = k3::harness::time_in_graphs(kSets, [&](int set, cudaStream_t stream) {
                          config.stream = stream;
                          K3_CUDA_CHECK(launch(strategy.kernel, config, sets[set]));
                        }).median_us;
      const double tbps = 2e-6 * static_cast<double>(count * row_bytes) / us;
      std::printf("  %2d warps an SM: %6.1f %5.2f", warps_of_sm, us, tbps);
      report["rows"].push_back({{"piece", "copy_bytes"},
                                {"row_bytes", kRow},
                                {"strategy", strategy.name},
                                {"warps_per_sm", warps_of_sm},
                                {"us", us},
                                {"tbps", tbps}});
    }
    std::printf("\n");
  }
}

// --- cycles ------------------------------------------------------------------------------------

constexpr int kTurns = 256;

/// Cycles of `body` in a chain of kTurns, seen by thread 0.
template <class Body>
__device__ void time_turns(float* cycles, const Body& body) {
  for (int i = 0; i < 8; ++i) body(i);
  __syncthreads();
  const long long begin = clock64();
  for (int i = 0; i < kTurns; ++i) body(i);
  const long long end = clock64();
  if (threadIdx.x == 0 && blockIdx.x == 0) *cycles = static_cast<float>(end - begin) / kTurns;
}

__global__ void time_elect(float* cycles, unsigned* sink) {
  unsigned elected = 0;
  time_turns(cycles, [&](int i) { elected += warp::elect() ? i : 0; });
  sink[threadIdx.x] = elected;
}

__global__ void time_named_barrier(float* cycles, unsigned*) {
  const auto threads = static_cast<int>(blockDim.x);
  time_turns(cycles, [&](int) { named_barrier_sync(1, threads); });
}

/// There and back between two warps, each of which waits for the other's arrival.
__global__ void time_mbarrier(float* cycles, unsigned*) {
  __shared__ MBarrier barriers[2];
  if (threadIdx.x == 0)
    for (MBarrier& barrier : barriers) mbarrier_init(&barrier, 1);
  __syncthreads();
  const unsigned own = threadIdx.x / 32;
  unsigned parity = 0;
  time_turns(cycles, [&](int) {
    if (own == 0) {
      if (threadIdx.x == 0) mbarrier_arrive(&barriers[1]);
      mbarrier_wait(&barriers[0], parity);
    } else {
      mbarrier_wait(&barriers[1], parity);
      if (threadIdx.x == 32) mbarrier_arrive(&barriers[0]);
    }
    parity ^= 1;
  });
}

/// There and back between two CTAs of a cluster.
template <class Value>
__global__ void time_cluster(float* cycles, unsigned*) {
  __shared__ Value value;
  __shared__ ByteBarrier arrived;
  const int rank = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) arm(&arrived, sizeof(Value));
  cluster_arrive_relaxed();
  cluster_wait();
  unsigned parity = 0;
  time_turns(cycles, [&](int) {
    if (rank == 0 && threadIdx.x == 0) send(&value, &arrived, 1, Value{});
    wait(&arrived, parity);
    if (threadIdx.x == 0) mbarrier_expect(&arrived, sizeof(Value));
    if (rank == 1 && threadIdx.x == 0) send(&value, &arrived, 0, Value{});
    parity ^= 1;
  });
  cluster_arrive_relaxed();
  cluster_wait();
}

/// A bulk copy of kBytes from the L2.
template <int kBytes>
__global__ void time_bulk_load(float* cycles, unsigned* from) {
  alignas(128) __shared__ std::byte held[kBytes];
  __shared__ MBarrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_publish_inits();
  }
  __syncthreads();
  unsigned parity = 0;
  time_turns(cycles, [&](int) {
    if (threadIdx.x == 0) {
      mbarrier_expect(&full, kBytes);
      bulk_load(held, from, kBytes, &full);
    }
    mbarrier_wait(&full, parity);
    parity ^= 1;
  });
}

constexpr int kSums = 18;

__global__ void time_scatter_sums(float* cycles, unsigned* sink) {
  float x[kSums];
  for (int i = 0; i < kSums; ++i) x[i] = static_cast<float>(threadIdx.x + i);
  time_turns(cycles, [&](int) { x[0] = warp::scatter_sums<kSums>(x, threadIdx.x) * 0.01F; });
  sink[threadIdx.x] = __float_as_uint(x[0]);
}

__global__ void time_single_sums(float* cycles, unsigned* sink) {
  float x[kSums];
  for (int i = 0; i < kSums; ++i) x[i] = static_cast<float>(threadIdx.x + i);
  time_turns(cycles, [&](int) {
    float total = 0.0F;
#pragma unroll
    for (int i = 0; i < kSums; ++i) total += warp::sum(x[i]);
    x[0] = total * 0.01F;
  });
  sink[threadIdx.x] = __float_as_uint(x[0]);
}

/// Four codes a thread and turn, 1024 threads: what an SM can convert.
__global__ __launch_bounds__(1024) void time_e4m3(float* cycles, unsigned* sink) {
  unsigned codes = threadIdx.x;
  time_turns(cycles, [&](int) {
    const float x = __uint_as_float(0x3F000000U | (codes & 0xFFFFU));
    codes ^= e4m3_quad(x, 2.0F * x, 3.0F * x, 4.0F * x);
  });
  sink[threadIdx.x] = codes;
}

struct Turn {
  const char* piece;
  void (*kernel)(float*, unsigned*);
  unsigned threads;
  unsigned ctas = 1;
};

void time_cycles(Json& report) {
  const CudaBuffer cycles(sizeof(float));
  const CudaBuffer sink(1 << 16);
  K3_CUDA_CHECK(cudaMemset(sink.data(), 0, 1 << 16));
  const Turn turns[] = {
      {"elect", time_elect, 32},
      {"named barrier, 128 threads", time_named_barrier, 128},
      {"named barrier, 448 threads", time_named_barrier, 448},
      {"mbarrier, there and back", time_mbarrier, 64},
      {"4 bytes to another CTA, there and back", time_cluster<float>, 32, 2},
      {"16 bytes to another CTA, there and back", time_cluster<float4>, 32, 2},
      {"bulk copy of 128 bytes from the L2", time_bulk_load<128>, 32},
      {"bulk copy of 14336 bytes from the L2", time_bulk_load<14336>, 32},
      {"18 sums over a warp, scattered", time_scatter_sums, 32},
      {"18 sums over a warp, one by one", time_single_sums, 32},
      {"4096 fp8 codes of an SM", time_e4m3, 1024},
  };
  std::printf("cycles\n");
  for (const Turn& turn : turns) {
    LaunchConfig config;
    config.grid = dim3(turn.ctas);
    config.block = dim3(turn.threads);
    config.cluster_size = turn.ctas;
    std::vector<float> seen;
    for (int repeat = 0; repeat < 9; ++repeat) {
      K3_CUDA_CHECK(launch(turn.kernel, config, reinterpret_cast<float*>(cycles.data()),
                           reinterpret_cast<unsigned*>(sink.data())));
      float value = 0.0F;
      K3_CUDA_CHECK(cudaMemcpy(&value, cycles.data(), sizeof(value), cudaMemcpyDeviceToHost));
      seen.push_back(value);
    }
    std::sort(seen.begin(), seen.end());
    std::printf("  %-42s %8.1f\n", turn.piece, seen[4]);
    report["rows"].push_back({{"piece", turn.piece}, {"cycles", seen[4]}});
  }
}

// --- launches ----------------------------------------------------------------------------------

__global__ void empty_kernel() {
  pdl_launch_dependents();
  pdl_wait();
}

void time_launches(Json& report) {
  std::printf("empty launches in a graph, us\n");
  for (const unsigned cluster_size : {1U, 7U})
    for (const bool pdl : {false, true}) {
      LaunchConfig config;
      config.grid = dim3(cluster_size * 16);
      config.block = dim3(128);
      config.cluster_size = cluster_size;
      config.pdl = pdl;
      const double us = k3::harness::time_in_graphs(1, [&](int, cudaStream_t stream) {
                          config.stream = stream;
                          K3_CUDA_CHECK(launch(empty_kernel, config));
                        }).median_us;
      const char* const how = pdl ? "programmatic" : "plain";
      std::printf("  %u CTAs in clusters of %u, %-12s %6.2f\n", cluster_size * 16, cluster_size,
                  how, us);
      report["rows"].push_back(
          {{"piece", "launch"}, {"cluster_size", cluster_size}, {"order", how}, {"us", us}});
    }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"Times the pieces that the CUDA kernels are made of"};
  std::string path;
  app.add_option("--json", path, "Write the figures here")->required();
  CLI11_PARSE(app, argc, argv);

  Json report = {{"machine", k3::harness::machine_name(k3::Backend::kCuda)},
                 {"name", "device base"},
                 {"rows", Json::array()}};
  time_rows<1024, 128>(report);
  time_rows<512, 64>(report);
  time_cycles(report);
  time_launches(report);
  std::ofstream(path) << report.dump(2) << '\n';
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "k3_device_base: %s\n", error.what());
  return 1;
}
