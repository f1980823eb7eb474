// SPDX-License-Identifier: Apache-2.0

// Whether views share memory. Two elements lie at a distance that is a sum of strides times index
// differences, so the question is whether such a sum can fall into an interval. The search goes
// from the largest stride down and keeps to differences that the smaller axes can still make up
// for: two or three an axis where axes nest.

#include <algorithm>
#include <array>
#include <cstdint>

#include "contract/checks.h"

namespace k3 {
namespace {

using Wide = __int128;

Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }

/// A multiple of `stride` bytes, between `low` and `high` times.
struct Steps {
  std::int64_t stride;
  std::int64_t low;
  std::int64_t high;
};

/// Steps of distinct strides, largest first.
class StepList {
 public:
  void add(std::int64_t stride, std::int64_t low, std::int64_t high) {
    int at = 0;
    while (at < count_ && steps_[at].stride > stride) ++at;
    if (at < count_ && steps_[at].stride == stride) {
      steps_[at].low += low;
      steps_[at].high += high;
      return;
    }
    std::move_backward(steps_.begin() + at, steps_.begin() + count_, steps_.begin() + count_ + 1);
    steps_[at] = {stride, low, high};
    ++count_;
  }

  /// True where some choice of multiples sums to a value in [low, high]; also where the search
  /// grows too long, which takes strides that no pool or batch has.
  [[nodiscard]] bool can_reach(Wide low, Wide high) const {
    int budget = 1 << 14;
    return can_reach(0, low, high, budget);
  }

 private:
  bool can_reach(int at, Wide low, Wide high, int& budget) const {
    if (at == count_) return low <= 0 && 0 <= high;
    if (--budget < 0) return true;
    Wide rest_low = 0;
    Wide rest_high = 0;
    for (int i = at + 1; i < count_; ++i) {
      rest_low += static_cast<Wide>(steps_[i].low) * steps_[i].stride;
      rest_high += static_cast<Wide>(steps_[i].high) * steps_[i].stride;
    }
    const Steps& s = steps_[at];
    const Wide first = std::max<Wide>(s.low, -floor_div(rest_high - low, s.stride));
    const Wide last = std::min<Wide>(s.high, floor_div(high - rest_low, s.stride));
    for (Wide n = first; n <= last; ++n)
      if (can_reach(at + 1, low - n * s.stride, high - n * s.stride, budget)) return true;
    return false;
  }

  std::array<Steps, 2 * kMaxRank> steps_{};
  int count_ = 0;
};

/// A view as runs of `run` bytes at every combination of the axes, smallest stride first.
struct Runs {
  struct RunAxis {
    std::int64_t count;
    std::int64_t stride;  ///< bytes
  };
  std::array<RunAxis, kMaxRank> axes{};
  int num_axes = 0;
  std::int64_t run = 0;
  bool repeats = false;  ///< two elements of one run share memory

  explicit Runs(const ConstTensorView& t) : run(static_cast<std::int64_t>(size_of(t.dtype))) {
    const std::int64_t element = run;
    for (int d = 0; d < t.rank; ++d)
      if (t.shape[d] > 1) axes[num_axes++] = {t.shape[d], t.strides[d] * element};
    std::sort(axes.begin(), axes.begin() + num_axes,
              [](const RunAxis& a, const RunAxis& b) { return a.stride < b.stride; });
    int joined = 0;
    for (; joined < num_axes && axes[joined].stride <= run; ++joined) {
      repeats |= axes[joined].stride < run;
      run += (axes[joined].count - 1) * axes[joined].stride;
    }
    std::move(axes.begin() + joined, axes.begin() + num_axes, axes.begin());
    num_axes -= joined;
  }
};

}  // namespace

bool may_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0) return false;
  if (!(a.device == b.device)) return false;
  const Runs runs_a(a);
  const Runs runs_b(b);
  StepList steps;
  for (int i = 0; i < runs_b.num_axes; ++i)
    steps.add(runs_b.axes[i].stride, 0, runs_b.axes[i].count - 1);
  for (int i = 0; i < runs_a.num_axes; ++i)
    steps.add(runs_a.axes[i].stride, 1 - runs_a.axes[i].count, 0);
  const auto distance = static_cast<Wide>(reinterpret_cast<std::uintptr_t>(b.data)) -
                        static_cast<Wide>(reinterpret_cast<std::uintptr_t>(a.data));
  return steps.can_reach(1 - runs_b.run - distance, runs_a.run - 1 - distance);
}

bool may_overlap_itself(const ConstTensorView& t) {
  if (!t.defined() || t.numel() == 0) return false;
  const Runs runs(t);
  if (runs.repeats) return true;
  // Two runs differ in a first axis from the outside; without loss that difference is positive.
  StepList inner;
  for (int i = 0; i < runs.num_axes; ++i) {
    StepList steps = inner;
    steps.add(runs.axes[i].stride, 1, runs.axes[i].count - 1);
    if (steps.can_reach(1 - runs.run, runs.run - 1)) return true;
    inner.add(runs.axes[i].stride, 1 - runs.axes[i].count, runs.axes[i].count - 1);
  }
  return false;
}

}  // namespace k3
