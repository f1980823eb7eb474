// SPDX-License-Identifier: Apache-2.0

// One KDA decode step per (request, head): prologue of 384 channels, then one pass over the head's
// 64 KB of state. docs/kda_fused_decode.md has the roofline and the schedule, kda_step-inl.h the
// arithmetic.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_fused_decode.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/head_tasks.h"
#include "cpu/kda_fused_decode.h"
#include "cpu/kda_recur-inl.h"
#include "cpu/kda_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Problem = KdaFusedDecodeProblem;
using step::Head;
using step::kD;

/// Rows of state that a head's prologue and epilogue request, which are so long that memory would
/// idle: before each of the epilogue, the next prologue and its parts of kPart channels, without
/// the first half of q. The recurrence requests as many fewer.
constexpr int kBesideRows = 32;
/// Requested before a task's first prologue.
constexpr int kFirstRows = 12;
constexpr int kPart = 32;  ///< a cache line of each tap
constexpr int kRequestRows = 2;
static_assert((2 + (4 * kD - kD / 2) / kPart) * kRequestRows == kBesideRows);

/// Convolution and SiLU of kPart channels from `channel` on; shifts their window. Requests
/// what the next head will need in its turn; after the last one that is no access.
HWY_INLINE void convolve(const Problem& p, int n, std::int64_t slot, int channel, float* y) {
  bf16* const tap0 = p.conv_states + slot * p.conv_slot_stride + channel;
  const bf16* const x[] = {tap0, tap0 + p.conv_tap_stride, tap0 + 2 * p.conv_tap_stride,
                           p.mixed_qkv + n * p.mixed_qkv_stride + channel};
  for (const bf16* tap : x) hwy::Prefetch(tap + kD);
  const step::ConvWeights weights = {
      .tap0 = p.conv_weight + channel,
      .tap_stride = p.conv_weight_stride,
      .bias = p.conv_bias != nullptr ? p.conv_bias + channel : nullptr};
  step::conv_silu<kPart>(weights, x, p.round_conv, y);
  step::shift_window<kPart>(tap0, p.conv_tap_stride, x[3]);
}

template <class StateT>
void prepare(const Problem& p, int n, std::int64_t slot, int h,
             step::Prefetcher<StateT>& prefetcher, Head& head) {
  float* const qkv[] = {head.q, head.k, head.v};
  for (int i = 0; i < 3; ++i)
    for (int channel = 0; channel < kD; channel += kPart) {
      if (i > 0 || channel >= kD / 2) prefetcher.request(kRequestRows * kD);
      convolve(p, n, slot, (i * p.H + h) * kD + channel, qkv[i] + channel);
    }
  step::normalise(head.q, p.scale);
  step::normalise(head.k, 1.0F);

  const bf16* const g = p.g + n * p.g_stride + h * kD;
  const float* const bias = p.dt_bias != nullptr ? p.dt_bias + h * kD : nullptr;
  const float a = p.A_log != nullptr ? std::exp(p.A_log[h]) : 1.0F;
  for (int channel = 0; channel < kD; channel += kPart) {
    prefetcher.request(kRequestRows * kD);
    step::raw_decays<kPart>(p, g + channel, bias != nullptr ? bias + channel : nullptr, a,
                            head.decay + channel);
  }
  step::finish(head);
  head.beta = step::beta_of(p.beta[n * p.beta_stride + h]);
}

void write_out(const Problem& p, int n, int h, float* o) {
  const bf16* const gate = p.onorm_gate + n * p.onorm_gate_stride + h * kD;
  const step::OutputNorm norm = {.gate = gate, .weight = p.onorm_weight, .eps = p.eps_o};
  step::write_output(p.round_o, p.onorm_gate != nullptr ? &norm : nullptr, o,
                     p.out + n * p.out_stride + h * kD);
}

template <class StateT>
void decode_live(const Problem& p, int n, std::int64_t slot, int h_begin, int h_end) {
  Head head;
  HWY_ALIGN float o[kD];
  StateT* const slot_state = static_cast<StateT*>(p.state) + slot * p.state_slot_stride;
  step::Prefetcher<StateT> prefetcher(slot_state + std::int64_t{h_begin} * kD * kD,
                                      slot_state + std::int64_t{h_end} * kD * kD);
  prefetcher.request(kFirstRows * kD);
  for (int h = h_begin; h < h_end; ++h) {
    StateT* const state = slot_state + std::int64_t{h} * kD * kD;
    prepare(p, n, slot, h, prefetcher, head);
    step::recur<kD - kBesideRows>(head, state, prefetcher, o);
    prefetcher.request(kRequestRows * kD);
    write_out(p, n, h, o);
    prefetcher.request(kRequestRows * kD);
  }
}

}  // namespace

/// Heads [h_begin, h_end) of request n.
void decode_heads(const Problem& p, int n, int h_begin, int h_end) {
  const std::int64_t slot = p.state_indices[n];
  if (!p.is_live(slot)) {
    std::fill_n(p.out + n * p.out_stride + h_begin * kD, (h_end - h_begin) * kD, bf16{});
  } else if (p.state_dtype == DType::kF32) {
    decode_live<float>(p, n, slot, h_begin, h_end);
  } else {
    decode_live<bf16>(p, n, slot, h_begin, h_end);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(decode_heads);

constexpr double kHeadTime = 6.0;  ///< microseconds of one thread, roughly

}  // namespace

void kda_fused_decode(const KdaFusedDecodeProblem& p, const Target& target) {
  const auto decode = HWY_DYNAMIC_DISPATCH(decode_heads);
  for_heads(p.B, p.H, kHeadTime, target.threads, [&](std::int64_t n, int h_begin, int h_end) {
    decode(p, static_cast<int>(n), h_begin, h_end);
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
