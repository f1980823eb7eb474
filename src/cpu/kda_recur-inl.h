// SPDX-License-Identifier: Apache-2.0

// One pass over a head's state for one token, out of memory: the loop that the decode ops share.

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

/// Requests kRows rows from memory.
template <class StateT>
HWY_INLINE void prefetch_rows(const StateT* rows) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(StateT));
  for (int i = 0; i < kRows * kD; i += kLine) hwy::Prefetch(rows + i);
}

/// The first kAhead rows of a head.
template <class StateT>
HWY_INLINE void prefetch_head(const StateT* state) {
  for (int row = 0; row < kAhead; row += kRows) prefetch_rows(state + row * kD);
}

/// While the rows from `row` on are at work: requests those kAhead rows on, of this head or of the
/// next one (null: there is none).
template <class StateT>
HWY_INLINE void prefetch_ahead(const StateT* state, const StateT* next, int row) {
  if (row + kAhead < kD)
    prefetch_rows(state + (row + kAhead) * kD);
  else if (next != nullptr)
    prefetch_rows(next + (row + kAhead - kD) * kD);
}

/// The recurrence over all 128 rows of one head. `o` is the unnormalised output.
template <class StateT>
void recur(const Head& head, StateT* state, const StateT* next, float* o) {
  for (int row = 0; row < kD; row += kRows) {
    StateT* const rows = state + row * kD;
    prefetch_ahead(state, next, row);
    const RowDots dots = row_dots(head, rows);
    const T128QuadVec u = correction(head, dots, row);
    hn::Store(output(head, dots, u), T128Quad(), o + row);
    update_rows(head, u, rows);
  }
}

}  // namespace step
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
