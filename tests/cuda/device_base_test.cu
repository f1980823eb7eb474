// SPDX-License-Identifier: Apache-2.0
// The pieces that kernels are made of, each by itself: what lanes of a warp do together, copies,
// barriers, clusters, launches that overlap.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/mbarrier.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/common/warp.cuh"
#include "tests/cuda/device_arrays.h"

namespace k3::cuda {
namespace {

using harness::DeviceArray;

std::vector<std::uint32_t> numbered(std::size_t count, std::uint32_t seed = 1) {
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i)
    words[i] = (static_cast<std::uint32_t>(i) + seed) * 2654435761U;
  return words;
}

class Warp_cuda_ : public harness::OnCuda {};
class Copies_cuda_ : public harness::OnCuda {};
class Barriers_cuda_ : public harness::OnCuda {};
class Clusters_cuda_ : public harness::OnCuda {};
class Launches_cuda_ : public harness::OnCuda {};

__global__ void count_elected(std::uint32_t* counts) {
  const unsigned elected = __ballot_sync(warp::kAllLanes, warp::elect());
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = __popc(elected);
}

TEST_F(Warp_cuda_, ElectTakesOneLane) {
  const DeviceArray<std::uint32_t> counts(32);
  count_elected<<<1, 1024>>>(counts.data());
  for (const std::uint32_t count : counts.read()) EXPECT_EQ(count, 1U);
}

/// Sums of small integers have one right answer in any order.
template <int kLanes>
__global__ void reduce_groups(const float* x, float* sums, float* maxima) {
  sums[threadIdx.x] = warp::sum<kLanes>(x[threadIdx.x]);
  maxima[threadIdx.x] = warp::max<kLanes>(x[threadIdx.x]);
}

template <int kLanes>
void check_groups(const std::vector<float>& x) {
  const DeviceArray<float> from{std::span(x)};
  const DeviceArray<float> sums(32);
  const DeviceArray<float> maxima(32);
  reduce_groups<kLanes><<<1, 32>>>(from.data(), sums.data(), maxima.data());
  const auto seen_sums = sums.read();
  const auto seen_maxima = maxima.read();
  for (int lane = 0; lane < 32; ++lane) {
    const auto group = x.begin() + lane / kLanes * kLanes;
    EXPECT_EQ(seen_sums[lane], std::accumulate(group, group + kLanes, 0.0F)) << kLanes;
    EXPECT_EQ(seen_maxima[lane], *std::max_element(group, group + kLanes)) << kLanes;
  }
}

TEST_F(Warp_cuda_, SumAndMaxOfGroups) {
  std::vector<float> x(32);
  for (int lane = 0; lane < 32; ++lane) x[lane] = static_cast<float>(lane * lane * 37 % 101 - 50);
  check_groups<1>(x);
  check_groups<2>(x);
  check_groups<4>(x);
  check_groups<8>(x);
  check_groups<16>(x);
  check_groups<32>(x);
}

/// Value i of lane l is 100 i + l.
template <int kCount>
__global__ void scatter(float* sums, int* indices) {
  const auto lane = threadIdx.x;
  float x[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = static_cast<float>(100 * i + static_cast<int>(lane));
  sums[lane] = warp::scatter_sums<kCount>(x, lane);
  indices[lane] = warp::scattered_index<kCount>(lane);
}

template <int kCount>
void check_scatter() {
  const DeviceArray<float> sums(32);
  const DeviceArray<int> indices(32);
  scatter<kCount><<<1, 32>>>(sums.data(), indices.data());
  const auto seen = sums.read();
  const auto index = indices.read();
  std::vector<int> owners(kCount, 0);
  for (int lane = 0; lane < 32; ++lane) {
    if (index[lane] < 0) continue;
    ASSERT_LT(index[lane], kCount);
    ++owners[index[lane]];
    EXPECT_EQ(seen[lane], static_cast<float>(3200 * index[lane] + 496))
        << kCount << " values, lane " << lane;
  }
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(owners[i], 1) << kCount << " values, value " << i;
}

TEST_F(Warp_cuda_, ScatterSumsLeavesEachSumInOneLane) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (check_scatter<i + 1>(), ...);
  }(std::make_integer_sequence<int, 32>());
}

template <int kBytes>
__global__ void copy_through_shared(const std::byte* from, std::byte* to) {
  alignas(16) __shared__ std::byte held[kBytes];
  warp::copy_bytes<kBytes>(from, held, threadIdx.x);
  __syncwarp();
  warp::copy_bytes<kBytes>(held, to, threadIdx.x);
}

/// Nothing beside the bytes changes.
template <int kBytes>
void check_copy() {
  constexpr std::size_t kGuard = 64;
  const auto words = numbered(kBytes / 4);
  const DeviceArray<std::uint32_t> from{std::span<const std::uint32_t>(words)};
  const DeviceArray<std::byte> to(kBytes + 2 * kGuard);
  copy_through_shared<kBytes>
      <<<1, 32>>>(reinterpret_cast<const std::byte*>(from.data()), to.data() + kGuard);
  const auto seen = to.read();
  const auto* const expected = reinterpret_cast<const std::byte*>(words.data());
  EXPECT_TRUE(std::equal(expected, expected + kBytes, seen.begin() + kGuard)) << kBytes;
  for (std::size_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(seen[i], std::byte{0xFF}) << kBytes;
    ASSERT_EQ(seen[kGuard + kBytes + i], std::byte{0xFF}) << kBytes;
  }
}

TEST_F(Copies_cuda_, CopyBytesOfEveryUnitAndTail) {
  check_copy<4>();
  check_copy<64>();
  check_copy<124>();
  check_copy<128>();
  check_copy<132>();
  check_copy<256>();
  check_copy<512>();
  check_copy<576>();
  check_copy<768>();
  check_copy<1024>();
  check_copy<1152>();
  check_copy<4096>();
  check_copy<14336>();
}

__global__ void copy_asynchronously(const uint4* from, int count, uint4* to) {
  __shared__ uint4 held[256];
  held[threadIdx.x] = uint4{1, 2, 3, 4};
  copy_async_16(shared_address(&held[threadIdx.x]), from + threadIdx.x,
                static_cast<int>(threadIdx.x) < count);
  wait_for_async_copies();
  __syncthreads();
  to[255 - threadIdx.x] = held[255 - threadIdx.x];
}

TEST_F(Copies_cuda_, AsyncCopiesGiveZerosForWhatDoesNotExist) {
  constexpr int kExisting = 201;  // the buffer ends there
  const auto words = numbered(4 * kExisting);
  const DeviceArray<std::uint32_t> from{std::span<const std::uint32_t>(words)};
  const DeviceArray<std::uint32_t> to(4 * 256);
  copy_asynchronously<<<1, 256>>>(reinterpret_cast<const uint4*>(from.data()), kExisting,
                                  reinterpret_cast<uint4*>(to.data()));
  const auto seen = to.read();
  for (std::size_t i = 0; i < seen.size(); ++i)
    ASSERT_EQ(seen[i], i < words.size() ? words[i] : 0U) << i;
}

/// Two groups of a thread; the first is used while the second may still be on its way.
__global__ void copy_in_groups(const uint4* from, uint4* to) {
  __shared__ uint4 held[2][256];
  for (int g = 0; g < 2; ++g) {
    copy_async_16(shared_address(&held[g][threadIdx.x]), from + 256 * g + threadIdx.x, true);
    commit_async_copies();
  }
  wait_for_async_copies<1>();
  to[threadIdx.x] = held[0][threadIdx.x];
  wait_for_async_copies<0>();
  to[256 + threadIdx.x] = held[1][threadIdx.x];
}

TEST_F(Copies_cuda_, AsyncCopiesArriveInGroups) {
  const auto words = numbered(4 * 512);
  const DeviceArray<std::uint32_t> from{std::span<const std::uint32_t>(words)};
  const DeviceArray<std::uint32_t> to(4 * 512);
  copy_in_groups<<<1, 256>>>(reinterpret_cast<const uint4*>(from.data()),
                             reinterpret_cast<uint4*>(to.data()));
  EXPECT_EQ(to.read(), words);
}

constexpr int kStages = 3;
constexpr int kStageWords = 256;

/// A ring that bulk copies fill and empty: the producer warp asks for stages, a consumer warp adds
/// one to each word, its lane 0 asks for the way back.
__global__ void through_ring(const std::uint32_t* from, std::uint32_t* to, int stages) {
  alignas(128) __shared__ std::uint32_t held[kStages][kStageWords];
  __shared__ MBarrier full[kStages];
  __shared__ MBarrier free[kStages];
  const auto lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&free[s], 1);
    }
    mbarrier_publish_inits();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (!warp::elect()) return;
    for (int i = 0; i < stages; ++i) {
      const int s = i % kStages;
      mbarrier_wait(&free[s], i / kStages % 2 ^ 1);
      mbarrier_expect(&full[s], sizeof(held[s]));
      bulk_load(held[s], from + std::int64_t{i} * kStageWords, sizeof(held[s]), &full[s]);
    }
    return;
  }
  for (int i = 0; i < stages; ++i) {
    const int s = i % kStages;
    mbarrier_wait(&full[s], i / kStages % 2);
    for (auto w = lane; w < kStageWords; w += 32) held[s][w] += 1;
    publish_to_bulk_copies();
    __syncwarp();
    if (lane == 0) {
      bulk_store(to + std::int64_t{i} * kStageWords, held[s], sizeof(held[s]));
      wait_until_bulk_stores_have_read();
      mbarrier_arrive(&free[s]);
    }
  }
}

TEST_F(Copies_cuda_, BulkCopiesGoRoundARing) {
  for (const int stages : {1, 2, 3, 4, 7, 64}) {
    const auto words = numbered(static_cast<std::size_t>(stages) * kStageWords);
    const DeviceArray<std::uint32_t> from{std::span<const std::uint32_t>(words)};
    const DeviceArray<std::uint32_t> to(words.size());
    through_ring<<<1, 64>>>(from.data(), to.data(), stages);
    const auto seen = to.read();
    for (std::size_t i = 0; i < words.size(); ++i)
      ASSERT_EQ(seen[i], words[i] + 1) << stages << " stages, word " << i;
  }
}

__global__ void prefetch_and_read(const std::uint32_t* from, std::uint32_t* to) {
  prefetch_l2(from + threadIdx.x);
  if (threadIdx.x == 0) prefetch_l2(from, 1024);
  to[threadIdx.x] = static_cast<std::uint32_t>(
      load_guess(reinterpret_cast<const std::int32_t*>(from) + threadIdx.x));
}

TEST_F(Copies_cuda_, PrefetchesChangeNothing) {
  const auto words = numbered(256);
  const DeviceArray<std::uint32_t> from{std::span<const std::uint32_t>(words)};
  const DeviceArray<std::uint32_t> to(256);
  prefetch_and_read<<<1, 256>>>(from.data(), to.data());
  EXPECT_EQ(to.read(), words);
  EXPECT_EQ(from.read(), words);
}

/// What `test` says of each parity: of a new barrier, after half of the arrivals, after all, and
/// after a second phase.
__global__ void follow_phases(int* seen) {
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 64);
  __syncthreads();
  const auto note = [&](int at) {
    __syncthreads();
    if (threadIdx.x == 0)
      for (unsigned parity = 0; parity < 2; ++parity)
        seen[2 * at + static_cast<int>(parity)] = mbarrier_test(&barrier, parity) ? 1 : 0;
    __syncthreads();
  };
  note(0);
  if (threadIdx.x < 32) mbarrier_arrive(&barrier);
  note(1);
  if (threadIdx.x >= 32) mbarrier_arrive(&barrier);
  note(2);
  mbarrier_arrive(&barrier);
  mbarrier_wait(&barrier, 1);
  note(3);
}

TEST_F(Barriers_cuda_, AnMBarrierCompletesPhaseAfterPhase) {
  const DeviceArray<int> seen(8);
  follow_phases<<<1, 64>>>(seen.data());
  // Of parity 0 and 1: none yet, but the phase before the first; the same; the first; the second.
  EXPECT_EQ(seen.read(), (std::vector<int>{0, 1, 0, 1, 1, 0, 0, 1}));
}

constexpr int kMeetings = 1000;

/// Two groups of warps, of different sizes, each of which passes values round by a barrier of its
/// own: a thread reads what its neighbour of the group wrote before the meeting.
__global__ void meet(std::uint32_t* sums) {
  __shared__ std::uint32_t values[224];
  const bool first = threadIdx.x < 96;
  const int id = first ? 1 : 15;
  const int size = first ? 96 : 128;
  const int begin = first ? 0 : 96;
  const int own = static_cast<int>(threadIdx.x);
  const int neighbour = begin + (own - begin + 33) % size;
  std::uint32_t sum = 0;
  for (int i = 0; i < kMeetings; ++i) {
    values[own] = static_cast<std::uint32_t>(i * own);
    named_barrier_sync(id, size);
    sum += values[neighbour];
    named_barrier_sync(id, size);
  }
  sums[threadIdx.x] = sum;
}

TEST_F(Barriers_cuda_, NamedBarriersOfTwoGroups) {
  const DeviceArray<std::uint32_t> sums(224);
  meet<<<1, 224>>>(sums.data());
  const auto seen = sums.read();
  for (int thread = 0; thread < 224; ++thread) {
    const int begin = thread < 96 ? 0 : 96;
    const int neighbour = begin + (thread - begin + 33) % (thread < 96 ? 96 : 128);
    ASSERT_EQ(seen[thread], static_cast<std::uint32_t>(kMeetings * (kMeetings - 1) / 2 * neighbour))
        << thread;
  }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define K3_TEST_SETMAXNREG 1
#endif

/// One warpgroup gives registers to another, which then works with more.
__global__ __launch_bounds__(256, 1) void move_registers(float* out) {
#ifdef K3_TEST_SETMAXNREG
  if (threadIdx.x < 128)
    lower_registers<40>();
  else
    raise_registers<232>();
#endif
  out[threadIdx.x] = static_cast<float>(threadIdx.x);
}

TEST_F(Barriers_cuda_, RegistersMoveBetweenWarpgroups) {
  const DeviceArray<float> out(256);
  move_registers<<<1, 256>>>(out.data());
  const auto seen = out.read();
  for (int i = 0; i < 256; ++i) ASSERT_EQ(seen[i], static_cast<float>(i));
}

constexpr int kPhases = 5;

/// Each CTA sends a value of its own to all, phase after phase, alone and as one of four; two
/// barriers take turns, each of which keeps the other's memory from being overwritten early.
__global__ void exchange(float* sums) {
  __shared__ float4 values[2][8];
  __shared__ ByteBarrier arrived[2];
  const int rank = static_cast<int>(blockIdx.x % gridDim.x);
  const int size = static_cast<int>(gridDim.x);
  const std::uint32_t bytes[2] = {static_cast<std::uint32_t>(size) * 4,
                                  static_cast<std::uint32_t>(size) * 16};
  if (threadIdx.x == 0)
    for (int which = 0; which < 2; ++which) arm(&arrived[which], bytes[which]);
  cluster_arrive_relaxed();
  cluster_wait();
  for (int phase = 0; phase < kPhases; ++phase)
    for (int which = 0; which < 2; ++which) {
      const auto value = static_cast<float>((phase + 1) * (rank + 1) * (which + 1));
      if (const auto to = static_cast<int>(threadIdx.x); to < size) {
        if (which == 0)
          send(&values[which][rank].x, &arrived[which], to, value);
        else
          send(&values[which][rank], &arrived[which], to,
               float4{0.25F * value, 0.25F * value, 0.25F * value, 0.25F * value});
      }
      wait(&arrived[which], static_cast<unsigned>(phase) & 1);
      float sum = 0.0F;
      for (int r = 0; r < size; ++r) {
        const float4 v = values[which][r];
        sum += which == 0 ? v.x : v.x + v.y + v.z + v.w;
      }
      __syncwarp();  // all lanes have read before the next value may come
      if (threadIdx.x == 0) {
        if (phase + 1 < kPhases) mbarrier_expect(&arrived[which], bytes[which]);
        sums[(rank * kPhases + phase) * 2 + which] = sum;
      }
    }
}

TEST_F(Clusters_cuda_, ValuesReachEveryCtaInEveryPhase) {
  for (unsigned size = 2; size <= 8; ++size) {
    const DeviceArray<float> sums(size * kPhases * 2);
    LaunchConfig config;
    config.grid = dim3(size);
    config.block = dim3(32);
    config.cluster_size = size;
    K3_CUDA_CHECK(launch(exchange, config, sums.data()));
    const auto seen = sums.read();
    for (std::size_t i = 0; i < seen.size(); ++i)
      ASSERT_EQ(seen[i],
                static_cast<float>((i / 2 % kPhases + 1) * (i % 2 + 1) * (size * (size + 1) / 2)))
          << size << " CTAs, value " << i;
  }
}

/// Lets its successor start at once, takes its time, then adds one to each value.
__global__ void add_one_slowly(std::uint32_t* values) {
  pdl_launch_dependents();
  pdl_wait();
  const std::uint32_t value = values[threadIdx.x];
  const long long begin = clock64();
  while (clock64() - begin < 20000) {
  }
  values[threadIdx.x] = value + 1;
}

LaunchConfig overlapping(cudaStream_t stream) {
  LaunchConfig config;
  config.block = dim3(256);
  config.pdl = true;
  config.stream = stream;
  return config;
}

TEST_F(Launches_cuda_, WaitForTheirPredecessorsInAStreamAndInAGraph) {
  constexpr int kLaunches = 40;
  const harness::CudaStream stream;
  const DeviceArray<std::uint32_t> values{std::span<const std::uint32_t>(numbered(256))};
  const auto body = [&] {
    for (int i = 0; i < kLaunches; ++i)
      K3_CUDA_CHECK(launch(add_one_slowly, overlapping(stream.get()), values.data()));
  };
  body();
  K3_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  const harness::CudaGraph graph(stream.get(), body);
  graph.launch(stream.get());
  const auto seen = values.read();
  const auto first = numbered(256);
  for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], first[i] + 2 * kLaunches) << i;
}

__global__ void mark(std::uint8_t* seen, int n) {
  const auto request = blockIdx.y + blockIdx.z * gridDim.y;
  if (request < static_cast<unsigned>(n)) seen[request] = static_cast<std::uint8_t>(blockIdx.x + 1);
}

TEST_F(Launches_cuda_, AGridOverRequestsReachesEachOfThem) {
  for (const int n : {1, 2, 32767, 32768, 32769, 65535, 65536, 100000}) {
    const DeviceArray<std::uint8_t> seen(static_cast<std::size_t>(n) + 1);
    LaunchConfig config;
    config.grid = grid_over_requests(1, n);
    K3_CUDA_CHECK(launch(mark, config, seen.data(), n));
    const auto marks = seen.read();
    EXPECT_TRUE(std::all_of(marks.begin(), marks.end() - 1, [](auto m) { return m == 1; })) << n;
    EXPECT_EQ(marks.back(), 0xFF) << n;
  }
}

__global__ void use_much_shared_memory(std::uint32_t* last) {
  extern __shared__ std::uint32_t words[];
  words[(200 * 1024) / 4 - 1] = 7;
  *last = words[(200 * 1024) / 4 - 1];
}

TEST_F(Launches_cuda_, OptIntoSharedMemoryPastTheDefault) {
  const DeviceArray<std::uint32_t> last(1);
  LaunchConfig config;
  config.dynamic_smem_bytes = 200 * 1024;
  if (launch(use_much_shared_memory, config, last.data()) == cudaErrorInvalidValue) {
    static_cast<void>(cudaGetLastError());
    GTEST_SKIP() << "no chip with 200 KB a CTA";
  }
  EXPECT_EQ(last.read(), std::vector<std::uint32_t>{7});
}

}  // namespace
}  // namespace k3::cuda
