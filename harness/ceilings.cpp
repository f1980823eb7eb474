// SPDX-License-Identifier: Apache-2.0
// The rates of this CPU that bench rows are held against, each by the simplest loop that reaches
// it.
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "harness/ceilings.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace k3::harness::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// x <- -x, in place. `count` is a multiple of 64, `x` is aligned.
void negate(float* HWY_RESTRICT x, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    const auto x0 = hn::Load(d, x + i);
    const auto x1 = hn::Load(d, x + i + lanes);
    const auto x2 = hn::Load(d, x + i + 2 * lanes);
    const auto x3 = hn::Load(d, x + i + 3 * lanes);
    hn::Store(hn::Neg(x0), d, x + i);
    hn::Store(hn::Neg(x1), d, x + i + lanes);
    hn::Store(hn::Neg(x2), d, x + i + 2 * lanes);
    hn::Store(hn::Neg(x3), d, x + i + 3 * lanes);
  }
}

/// Runs `steps` multiply-adds on each of 12 vectors: more chains than two ports of latency 5 can
/// hold in flight, and few enough for 16 registers. Returns the multiply-adds done, over all lanes;
/// `sink` keeps the compiler from dropping them.
std::int64_t multiply_add(std::int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999F);
  const auto b = hn::Set(d, 0.001F);
  auto x0 = hn::Iota(d, 0.0F), x1 = hn::Iota(d, 1.0F), x2 = hn::Iota(d, 2.0F);
  auto x3 = hn::Iota(d, 3.0F), x4 = hn::Iota(d, 4.0F), x5 = hn::Iota(d, 5.0F);
  auto x6 = hn::Iota(d, 6.0F), x7 = hn::Iota(d, 7.0F), x8 = hn::Iota(d, 8.0F);
  auto x9 = hn::Iota(d, 9.0F), x10 = hn::Iota(d, 10.0F), x11 = hn::Iota(d, 11.0F);
  for (std::int64_t step = 0; step < steps; ++step) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b), x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b), x7 = hn::MulAdd(x7, a, b), x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b), x10 = hn::MulAdd(x10, a, b), x11 = hn::MulAdd(x11, a, b);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)),
                           hn::Add(hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)),
                                   hn::Add(hn::Add(x8, x9), hn::Add(x10, x11))));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 12 * steps * static_cast<std::int64_t>(hn::Lanes(d));
}

}  // namespace k3::harness::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <chrono>
#include <vector>

#include "cpu/parallel.h"
#include "harness/limits.h"

namespace k3::harness {
namespace {

HWY_EXPORT(negate);
HWY_EXPORT(multiply_add);

constexpr std::int64_t kWindows = 4;
constexpr std::int64_t kWindowBytes = std::int64_t{128} << 20;
constexpr std::int64_t kWindowFloats = kWindowBytes / static_cast<std::int64_t>(sizeof(float));

template <class Body>
double seconds_of(const Body& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

CpuCeilings::CpuCeilings(int threads)
    : threads_(threads > 0 ? threads : cpu::max_threads()),
      buffer_(Tensor::dense(DType::kF32, {kWindows * kWindowFloats})) {
  for (std::int64_t i = 0; i < kWindows; ++i) read();
}

Ceilings CpuCeilings::read() {
  return {.read_write_gbps = read_write_gbps(), .fma_gflops = fma_gflops()};
}

double CpuCeilings::read_write_gbps() {
  constexpr std::int64_t kBlocks = 512;
  constexpr std::int64_t kPerBlock = kWindowFloats / kBlocks;
  auto* const x = reinterpret_cast<float*>(buffer_.storage()) + window_ * kWindowFloats;
  window_ = (window_ + 1) % kWindows;
  const double seconds = seconds_of([&] {
    cpu::parallel_for(kBlocks, threads_, [&](std::int64_t block, int) {
      HWY_DYNAMIC_DISPATCH(negate)(x + block * kPerBlock, static_cast<std::size_t>(kPerBlock));
    });
  });
  return 2.0 * static_cast<double>(kWindowBytes) / seconds * 1e-9;
}

/// In short tasks, as the ops have them: a thread whose core is taken must not hold up the others.
double CpuCeilings::fma_gflops() {
  constexpr std::int64_t kSteps = 30'000;
  constexpr std::int64_t kTasksPerThread = 32;
  constexpr std::int64_t kCacheLine = 16;  // floats: no two threads' sinks share one
  std::vector<float> sinks(static_cast<std::size_t>(threads_ * kCacheLine));
  const std::int64_t tasks = threads_ * kTasksPerThread;
  std::int64_t operations = 0;
  const double seconds = seconds_of([&] {
    cpu::parallel_for(tasks, threads_, [&](std::int64_t task, int thread) {
      const std::int64_t done =
          HWY_DYNAMIC_DISPATCH(multiply_add)(kSteps, &sinks[thread * kCacheLine]);
      if (task == 0) operations = done;
    });
  });
  return 2.0 * static_cast<double>(operations * tasks) / seconds * 1e-9;
}

}  // namespace k3::harness
#endif  // HWY_ONCE
