// SPDX-License-Identifier: Apache-2.0

// One KDA decode step per (request, head): prologue of 384 channels, then one pass over the head's
// 64 KB of state, four rows at a time. docs/kda_fused_decode.md has the roofline and the schedule.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_fused_decode.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/bf16-inl.h"
#include "cpu/kernels.h"
#include "cpu/math-inl.h"
#include "cpu/parallel.h"
#include "cpu/t128-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Problem = KdaFusedDecodeProblem;
constexpr int kD = kKdaHeadDim;
constexpr int kRows = 4;  ///< state rows whose dot products are reduced together
/// Rows between a prefetch and its use: 16 KB of fp32, about what memory delivers in one prologue.
constexpr int kAhead = 32;

/// Everything that the pass over the state needs of one (request, head); fp32.
struct Head {
  HWY_ALIGN float q[kD];  ///< normalised and scaled
  HWY_ALIGN float k[kD];  ///< normalised
  HWY_ALIGN float v[kD];
  HWY_ALIGN float decay[kD];
  HWY_ALIGN float q_split[kD];  ///< these three as t128_split lays them out
  HWY_ALIGN float k_split[kD];
  HWY_ALIGN float decay_split[kD];
  float qk;    ///< dot(k, q)
  float beta;  ///< sigmoid of the logit
};

/// fn(vector tag, first index) over the 128 channels of a head.
template <class Fn>
HWY_INLINE void for_channels(const Fn& fn) {
  const T128Tag d;
  for (int i = 0; i < kD; i += static_cast<int>(hn::Lanes(d))) fn(d, i);
}

/// Convolution and SiLU of the 128 channels from `channel` on; shifts their window.
void conv(const Problem& p, int n, std::int64_t slot, int channel, float* y) {
  const bf16* const x = p.mixed_qkv + n * p.mixed_qkv_stride + channel;
  bf16* const tap0 = p.conv_states + slot * p.conv_slot_stride + channel;
  bf16* const tap1 = tap0 + p.conv_tap_stride;
  bf16* const tap2 = tap1 + p.conv_tap_stride;
  const float* const w0 = p.conv_weight + channel;
  const float* const w1 = w0 + p.conv_weight_stride;
  const float* const w2 = w1 + p.conv_weight_stride;
  const float* const w3 = w2 + p.conv_weight_stride;
  for_channels([&](auto d, int i) HWY_ATTR {
    auto acc = p.conv_bias != nullptr ? hn::LoadU(d, p.conv_bias + channel + i) : hn::Zero(d);
    acc = hn::MulAdd(load_bf16(d, tap0 + i), hn::LoadU(d, w0 + i), acc);
    acc = hn::MulAdd(load_bf16(d, tap1 + i), hn::LoadU(d, w1 + i), acc);
    acc = hn::MulAdd(load_bf16(d, tap2 + i), hn::LoadU(d, w2 + i), acc);
    acc = hn::MulAdd(load_bf16(d, x + i), hn::LoadU(d, w3 + i), acc);
    auto silu = hn::Mul(acc, sigmoid(d, acc));
    if (p.round_conv == Rounding::kBF16) silu = round_to_bf16(d, silu);
    hn::StoreU(silu, d, y + i);
  });
  std::memcpy(tap0, tap1, kD * sizeof(bf16));
  std::memcpy(tap1, tap2, kD * sizeof(bf16));
  std::memcpy(tap2, x, kD * sizeof(bf16));
}

/// x / sqrt(sum x^2 + eps) * scale.
void normalise(float* x, float scale) {
  const float inverse_norm = 1.0F / std::sqrt(t128_dot(x, x) + kKdaL2Eps);
  for_channels([&](auto d, int i) HWY_ATTR {
    const auto unit = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse_norm));
    hn::StoreU(hn::Mul(unit, hn::Set(d, scale)), d, x + i);
  });
}

void decay_of(const Problem& p, int n, int h, float* decay) {
  const bf16* const g = p.g + n * p.g_stride + h * kD;
  const float a = p.A_log != nullptr ? std::exp(p.A_log[h]) : 1.0F;
  for_channels([&](auto d, int i) HWY_ATTR {
    auto x = load_bf16(d, g + i);
    if (p.dt_bias != nullptr) x = hn::Add(x, hn::LoadU(d, p.dt_bias + h * kD + i));
    const auto log_decay = p.has_lower_bound ? hn::Mul(hn::Set(d, p.lower_bound),
                                                       sigmoid(d, hn::Mul(hn::Set(d, a), x)))
                                             : hn::Mul(hn::Set(d, -a), softplus(d, x));
    hn::StoreU(exp_nonpositive(d, log_decay), d, decay + i);
  });
}

void prepare(const Problem& p, int n, std::int64_t slot, int h, Head& head) {
  conv(p, n, slot, h * kD, head.q);
  conv(p, n, slot, (p.H + h) * kD, head.k);
  conv(p, n, slot, (2 * p.H + h) * kD, head.v);
  normalise(head.q, p.scale);
  normalise(head.k, 1.0F);
  decay_of(p, n, h, head.decay);
  t128_split(head.q, head.q_split);
  t128_split(head.k, head.k_split);
  t128_split(head.decay, head.decay_split);
  head.qk = t128_dot(head.k, head.q);
  head.beta = 1.0F / (1.0F + std::exp(-to_float(p.beta[n * p.beta_stride + h])));
}

HWY_INLINE void store_state(T128Tag d, T128Vec x, float* to) { hn::StoreU(x, d, to); }
HWY_INLINE void store_state(T128Tag d, T128Vec x, bf16* to) { store_bf16(d, x, to); }

/// dot(decayed row, k) and dot(decayed row, q) of kRows rows, one row per lane.
template <class StateT>
HWY_INLINE void row_dots(const Head& head, const StateT* rows, T128QuadVec& hk, T128QuadVec& hq) {
  T128QuadVec k_blocks[kRows];
  T128QuadVec q_blocks[kRows];
  for (int r = 0; r < kRows; ++r) {
    T128Vec k_sums[kT128Vectors];
    T128Vec q_sums[kT128Vectors];
    for (std::size_t i = 0; i < kT128Vectors; ++i) {
      const T128Elements decayed =
          t128_mul(t128_load(rows + r * kD, i), t128_load_split(head.decay_split, i));
      k_sums[i] = t128_group_sums(decayed, t128_load_split(head.k_split, i));
      q_sums[i] = t128_group_sums(decayed, t128_load_split(head.q_split, i));
    }
    k_blocks[r] = t128_blocks(k_sums);
    q_blocks[r] = t128_blocks(q_sums);
  }
  hk = t128_finish(k_blocks);
  hq = t128_finish(q_blocks);
}

/// rows <- rows * decay + u k^T, in natural order.
template <class StateT>
HWY_INLINE void update_rows(const Head& head, const float* u, StateT* rows) {
  for_channels([&](auto d, int i) HWY_ATTR {
    const auto k = hn::Load(d, head.k + i);
    const auto decay = hn::Load(d, head.decay + i);
    for (int r = 0; r < kRows; ++r) {
      StateT* const at = rows + r * kD + i;
      store_state(d, hn::MulAdd(k, hn::Set(d, u[r]), hn::Mul(t128_load_vector(at), decay)), at);
    }
  });
}

/// Requests kRows rows from memory.
template <class StateT>
HWY_INLINE void prefetch_rows(const StateT* rows) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(StateT));
  for (int i = 0; i < kRows * kD; i += kLine) hwy::Prefetch(rows + i);
}

/// The recurrence over all 128 rows of one head. `o` is the unnormalised output. Rows
/// [kAhead, 128) are requested from memory here, and as many rows of the next head's state.
template <class StateT>
void recur(const Head& head, StateT* state, const StateT* next, float* o) {
  const T128Quad d4;
  const auto beta = hn::Set(d4, head.beta);
  const auto qk = hn::Set(d4, head.qk);
  for (int row = 0; row < kD; row += kRows) {
    StateT* const rows = state + row * kD;
    if (row + kAhead < kD)
      prefetch_rows(rows + kAhead * kD);
    else if (next != nullptr)
      prefetch_rows(next + (row + kAhead - kD) * kD);
    T128QuadVec hk, hq;
    row_dots(head, rows, hk, hq);
    const auto u = hn::Mul(hn::Sub(hn::Load(d4, head.v + row), hk), beta);
    hn::Store(hn::MulAdd(u, qk, hq), d4, o + row);
    HWY_ALIGN float u_of_row[kRows];
    hn::Store(u, d4, u_of_row);
    update_rows(head, u_of_row, rows);
  }
}

/// Output norm, gate and rounding of one head.
void write_out(const Problem& p, int n, int h, float* o) {
  bf16* const out = p.out + n * p.out_stride + h * kD;
  if (p.round_o == Rounding::kBF16)
    for_channels([&](auto d, int i)
                     HWY_ATTR { hn::Store(round_to_bf16(d, hn::Load(d, o + i)), d, o + i); });
  if (p.onorm_gate == nullptr) {
    for_channels([&](auto d, int i) HWY_ATTR { store_bf16(d, hn::Load(d, o + i), out + i); });
    return;
  }
  const bf16* const gate = p.onorm_gate + n * p.onorm_gate_stride + h * kD;
  const float inverse_rms = 1.0F / std::sqrt(t128_dot(o, o) / kD + p.eps_o);
  for_channels([&](auto d, int i) HWY_ATTR {
    auto y = hn::Mul(hn::Load(d, o + i), hn::Set(d, inverse_rms));
    y = hn::Mul(y, hn::LoadU(d, p.onorm_weight + i));
    store_bf16(d, hn::Mul(y, sigmoid(d, load_bf16(d, gate + i))), out + i);
  });
}

template <class StateT>
void decode_live(const Problem& p, int n, std::int64_t slot, int h_begin, int h_end) {
  Head head;
  HWY_ALIGN float o[kD];
  StateT* const slot_state = static_cast<StateT*>(p.state) + slot * p.state_slot_stride;
  for (int row = 0; row < kAhead; row += kRows)
    prefetch_rows(slot_state + (std::int64_t{h_begin} * kD + row) * kD);
  for (int h = h_begin; h < h_end; ++h) {
    StateT* const state = slot_state + std::int64_t{h} * kD * kD;
    prepare(p, n, slot, h, head);
    recur(head, state, h + 1 < h_end ? state + kD * kD : nullptr, o);
    write_out(p, n, h, o);
  }
}

}  // namespace

/// Heads [h_begin, h_end) of request n.
void decode_heads(const Problem& p, int n, int h_begin, int h_end) {
  const std::int64_t slot = p.state_indices[n * p.state_indices_stride];
  if (slot <= p.null_index || slot >= p.num_slots) {
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

/// Tasks of several heads keep the prefetch going from one head to the next; at least this many
/// tasks per thread keep the threads evenly loaded.
constexpr std::int64_t kTasksPerThread = 8;

}  // namespace

void kda_fused_decode(const KdaFusedDecodeProblem& p, const Target& target) {
  const auto decode = HWY_DYNAMIC_DISPATCH(decode_heads);
  const std::int64_t most_tasks = std::int64_t{p.B} * p.H;
  const auto heads_per_task = static_cast<int>(std::clamp<std::int64_t>(
      most_tasks / (kTasksPerThread * std::max(target.threads, 1)), 1, p.H));
  const int tasks_per_request = (p.H + heads_per_task - 1) / heads_per_task;
  parallel_for(std::int64_t{p.B} * tasks_per_request, target.threads,
               [&](std::int64_t task, int /*thread*/) {
                 const auto n = static_cast<int>(task / tasks_per_request);
                 const auto h = static_cast<int>(task % tasks_per_request) * heads_per_task;
                 decode(p, n, h, std::min(h + heads_per_task, p.H));
               });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
