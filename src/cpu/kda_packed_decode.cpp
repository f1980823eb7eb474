// SPDX-License-Identifier: Apache-2.0

// The recurrence of kda_fused_decode, for inputs that have passed their convolution: one pass over
// the 64 KB of state of each (request, value head). docs/kda_packed_decode.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_packed_decode.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/head_tasks.h"
#include "cpu/kda_packed_decode.h"
#include "cpu/kda_recur-inl.h"
#include "cpu/kda_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Problem = KdaPackedDecodeProblem;
using step::Head;
using step::kD;

/// Value head j with its q/k head.
void prepare(const Problem& p, int n, int j, Head& head) {
  const bf16* const qkv = p.mixed_qkv + n * p.mixed_qkv_stride;
  const int h = j / (p.HV / p.H);
  step::widen(qkv + h * kD, head.q);
  step::widen(qkv + (p.H + h) * kD, head.k);
  step::widen(qkv + (2 * p.H + j) * kD, head.v);
  step::normalise(head.q, p.scale);
  step::normalise(head.k, 1.0F);
  step::raw_decays(p, p.g + n * p.g_stride + j * kD,
                   p.dt_bias != nullptr ? p.dt_bias + j * kD : nullptr,
                   p.A_log != nullptr ? std::exp(p.A_log[j]) : 1.0F, head.decay);
  step::finish(head);
  head.beta = step::beta_of(p.beta[n * p.beta_stride + j]);
}

template <class StateT>
void decode_live(const Problem& p, int n, std::int64_t slot, int j_begin, int j_end) {
  Head head;
  HWY_ALIGN float o[kD];
  StateT* const slot_state = static_cast<StateT*>(p.state) + slot * p.state_slot_stride;
  step::Prefetcher<StateT> prefetcher(slot_state + std::int64_t{j_begin} * kD * kD,
                                      slot_state + std::int64_t{j_end} * kD * kD);
  prefetcher.request(step::kAhead * kD);
  for (int j = j_begin; j < j_end; ++j) {
    StateT* const state = slot_state + std::int64_t{j} * kD * kD;
    prepare(p, n, j, head);
    step::recur(head, state, prefetcher, o);
    step::write_output(Rounding::kF32, nullptr, o, p.out + n * p.out_stride + j * kD);
  }
}

}  // namespace

/// Value heads [j_begin, j_end) of request n.
void packed_decode_heads(const Problem& p, int n, int j_begin, int j_end) {
  const std::int64_t slot = p.state_indices[n];
  if (!p.is_live(slot)) {
    std::fill_n(p.out + n * p.out_stride + j_begin * kD, (j_end - j_begin) * kD, bf16{});
  } else if (p.state_dtype == DType::kF32) {
    decode_live<float>(p, n, slot, j_begin, j_end);
  } else {
    decode_live<bf16>(p, n, slot, j_begin, j_end);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(packed_decode_heads);

constexpr double kHeadTime = 5.0;  ///< microseconds of one thread, roughly

}  // namespace

void kda_packed_decode(const KdaPackedDecodeProblem& p, const Target& target) {
  const auto decode = HWY_DYNAMIC_DISPATCH(packed_decode_heads);
  for_heads(p.B, p.HV, kHeadTime, target.threads, [&](std::int64_t n, int j_begin, int j_end) {
    decode(p, static_cast<int>(n), j_begin, j_end);
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
