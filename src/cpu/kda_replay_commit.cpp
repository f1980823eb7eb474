// SPDX-License-Identifier: Apache-2.0

// Per (layer, request, value head): norms and decays of the accepted tokens once, then one pass
// over the 64 KB of state, all tokens on each block of rows. docs/kda_replay_commit.md has the
// bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_replay_commit.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/head_tasks.h"
#include "cpu/kda_chain-inl.h"
#include "cpu/kda_recur-inl.h"
#include "cpu/kda_replay_commit.h"
#include "cpu/kda_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Problem = KdaReplayCommitProblem;
using step::ChainToken;
using step::kD;

/// Tokens that are at hand at once: 25 KB, of which a block of rows reads all.
constexpr int kChain = 16;

/// Blocks that take turns, and their rows.
constexpr int kBlocks = 2;
constexpr int kRows = kBlocks * step::kRows;

/// What the call says of one request, in every layer.
struct Request {
  int n;
  int tokens;  ///< 0: nothing to do
  std::int64_t slot;
  std::int64_t ring_row;
  std::int64_t scratch_row;
  std::int64_t track_slot;
  int track_step;  ///< -1: none
};

/// In host memory the contract has seen to the ranges.
Request request_of(const Problem& p, int n) {
  Request r{.n = n, .tokens = 0, .slot = p.state_indices[n], .track_step = -1};
  if (!p.is_live(r.slot) || p.accept_lens[n] <= 0) return r;
  r.tokens = p.accept_lens[n];
  r.ring_row = p.ring_indices.defined() ? p.ring_indices[n] : r.slot;
  r.scratch_row = p.scratch_indices.defined() ? p.scratch_indices[n] : n;
  if (p.track_indices.defined() && p.is_live(p.track_indices[n]) && p.track_steps[n] < r.tokens) {
    r.track_slot = p.track_indices[n];
    r.track_step = p.track_steps[n];
  }
  return r;
}

void load_ring(const void* ring, DType dtype, std::int64_t at, float* to) {
  if (dtype == DType::kF32)
    step::widen(static_cast<const float*>(ring) + at, to);
  else
    step::widen(static_cast<const bf16*>(ring) + at, to);
}

void load_decay(const Problem& p, int layer, int j, std::int64_t at, float* decay) {
  if (p.ring_g_dtype == DType::kF32) {
    const float* const log_decay = static_cast<const float*>(p.ring_g) + at;
    step::for_channels([&](auto d, int i) HWY_ATTR {
      hn::Store(exp_nonpositive(d, hn::LoadU(d, log_decay + i)), d, decay + i);
    });
    return;
  }
  const float* const bias =
      p.dt_bias != nullptr ? p.dt_bias + layer * p.dt_bias_layer_stride + j * kD : nullptr;
  const float a = p.A_log != nullptr ? std::exp(p.A_log[layer * p.A_log_layer_stride + j]) : 1.0F;
  step::raw_decays(p, static_cast<const bf16*>(p.ring_g) + at, bias, a, decay);
}

void load_token(const Problem& p, int layer, std::int64_t row, int j, int t, ChainToken& token) {
  HWY_ALIGN float natural[kD];
  const std::int64_t of_key = std::int64_t{j / (p.HV / p.H)} * p.L + t;
  const std::int64_t of_value = std::int64_t{j} * p.L + t;
  load_ring(p.ring_k, p.ring_kv_dtype,
            layer * p.ring_k_layer_stride + row * p.ring_k_row_stride + of_key * kD, natural);
  if (p.qk_l2norm) step::normalise(natural, 1.0F);
  t128_split(natural, token.k_split);
  load_decay(p, layer, j, layer * p.ring_g_layer_stride + row * p.ring_g_row_stride + of_value * kD,
             natural);
  t128_split(natural, token.decay_split);
  load_ring(p.ring_v, p.ring_kv_dtype,
            layer * p.ring_v_layer_stride + row * p.ring_v_row_stride + of_value * kD, token.v);
  token.beta =
      p.ring_beta[layer * p.ring_beta_layer_stride + row * p.ring_beta_row_stride + of_value];
}

template <class StateT>
void commit_states(const Problem& p, int layer, const Request& r, int j_begin, int j_end) {
  ChainToken tokens[kChain];
  StateT* const pool = static_cast<StateT*>(p.state) + layer * p.state_layer_stride;
  StateT* const slot_state = pool + r.slot * p.state_slot_stride;
  step::Prefetcher<StateT> prefetcher(slot_state + std::int64_t{j_begin} * kD * kD,
                                      slot_state + std::int64_t{j_end} * kD * kD);
  prefetcher.request(step::kAhead * kD);
  for (int j = j_begin; j < j_end; ++j) {
    const std::int64_t head = std::int64_t{j} * kD * kD;
    StateT* const state = slot_state + head;
    StateT* const tracked =
        r.track_step >= 0 ? pool + r.track_slot * p.state_slot_stride + head : nullptr;
    for (int first = 0; first < r.tokens; first += kChain) {
      const int count = std::min(r.tokens - first, kChain);
      for (int t = 0; t < count; ++t) load_token(p, layer, r.ring_row, j, first + t, tokens[t]);
      for (int row = 0; row < kD; row += kRows) {
        if (first == 0) prefetcher.request(kRows * kD);
        const auto after = [&](int t, const auto& write) HWY_ATTR {
          if (first + t == r.track_step) write(tracked + row * kD);
          if (t + 1 == count) write(state + row * kD);
        };
        step::chain_rows<kBlocks>(tokens, count, row, state + row * kD, after);
      }
    }
  }
}

/// The channels [begin, end) of slot's window after token t.
void roll_window(const Problem& p, int layer, const Request& r, int t, std::int64_t slot,
                 std::int64_t begin, std::int64_t end) {
  const bf16* const from = p.conv_scratch + layer * p.scratch_layer_stride +
                           r.scratch_row * p.scratch_row_stride + t * p.scratch_token_stride;
  bf16* const to = p.conv_states + layer * p.conv_layer_stride + slot * p.conv_slot_stride;
  for (int tap = 0; tap < kKdaConvWidth - 1; ++tap)
    std::copy(from + tap * p.scratch_tap_stride + begin, from + tap * p.scratch_tap_stride + end,
              to + tap * p.conv_tap_stride + begin);
}

}  // namespace

/// Value heads [j_begin, j_end) of request n in one layer, and their share of its window.
void commit_heads(const Problem& p, int layer, int n, int j_begin, int j_end) {
  const Request r = request_of(p, n);
  if (r.tokens == 0) return;
  if (p.state_dtype == DType::kF32)
    commit_states<float>(p, layer, r, j_begin, j_end);
  else
    commit_states<bf16>(p, layer, r, j_begin, j_end);
  if (p.conv_states == nullptr) return;
  const std::int64_t begin = std::int64_t{p.C} * j_begin / p.HV;
  const std::int64_t end = std::int64_t{p.C} * j_end / p.HV;
  roll_window(p, layer, r, r.tokens - 1, r.slot, begin, end);
  if (r.track_step >= 0) roll_window(p, layer, r, r.track_step, r.track_slot, begin, end);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(commit_heads);

constexpr double kHeadTime = 10.0;  ///< microseconds of one thread, roughly

}  // namespace

void kda_replay_commit(const KdaReplayCommitProblem& p, const Target& target) {
  if (p.num_slots == 0) return;  // no request is live, however many layers there are
  const auto commit = HWY_DYNAMIC_DISPATCH(commit_heads);
  for_heads(std::int64_t{p.num_layers} * p.B, p.HV, kHeadTime, target.threads,
            [&](std::int64_t row, int j_begin, int j_end) {
              commit(p, static_cast<int>(row / p.B), static_cast<int>(row % p.B), j_begin, j_end);
            });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
