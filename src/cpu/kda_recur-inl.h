// SPDX-License-Identifier: Apache-2.0

// One pass over a head's state for one token, out of memory: the loop that the decode ops share,
// and the prefetcher that goes before every pass over a state.

#if defined(K3_CPU_KDA_RECUR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_RECUR_INL_H_
#undef K3_CPU_KDA_RECUR_INL_H_
#else
#define K3_CPU_KDA_RECUR_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/kda_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace step {

/// Rows between a prefetch and its use: 16 KB of fp32, about what memory delivers in one prologue.
inline constexpr int kAhead = 32;
static_assert(kAhead % kRows == 0);

/// Requests the states of a task's heads from memory, in the order of their addresses. It moves
/// itself on: g++ drops a call that does nothing but prefetch.
template <class StateT>
class Prefetcher {
 public:
  Prefetcher(const StateT* begin, const StateT* end) : at_(begin), end_(end) {}

  HWY_INLINE void request(int elements) {
    if (at_ >= end_) return;
    for (int i = 0; i < elements; i += kLine) hwy::Prefetch(at_ + i);
    at_ += elements;
  }

 private:
  static constexpr int kLine = 64 / static_cast<int>(sizeof(StateT));
  const StateT* at_;
  const StateT* end_;
};

/// The recurrence over all 128 rows of one head. `o` is the unnormalised output. kRequests rows are
/// requested from memory, a few lines at a time between the parts of a step.
template <int kRequests = kD, class StateT>
void recur(const Head& head, StateT* state, Prefetcher<StateT>& prefetcher, float* o) {
  constexpr int kPart = kRequests * kRows / kParts;
  const auto ahead = [&]() HWY_ATTR { prefetcher.request(kPart); };
  Pending<StateT> pending;
  for (int row = 0; row < kD; row += kRows) {
    StateT* const rows = state + row * kD;
    const RowDots dots = row_dots(head, rows, pending, ahead);
    const T128QuadVec u = correction(head, dots, row);
    hn::Store(output(head, dots, u), T128Quad(), o + row);
    pending.rows = rows;
    hn::Store(u, T128Quad(), pending.u);
  }
  update_rows(head, pending);
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
