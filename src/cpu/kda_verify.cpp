// SPDX-License-Identifier: Apache-2.0

// A chain of KDA steps per (request, head), from a slot that stays as it is: first everything that
// the tokens need (convolutions, norms, decays) and the rings, then the state by blocks of rows,
// all tokens on each block (kda_chain-inl.h). docs/kda_verify.md has the bound and the
// schedule, kda_step-inl.h the arithmetic.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_verify.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kda_chain-inl.h"
#include "cpu/kda_recur-inl.h"
#include "cpu/kda_step-inl.h"
#include "cpu/kda_verify.h"
#include "cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Problem = KdaVerifyProblem;
using step::kD;
using step::OutputToken;

/// One head of a request, its tokens and where their side outputs go (rows of what is absent are
/// not used).
struct Chain {
  std::int64_t slot;
  std::int64_t begin;  ///< first token
  int length;          ///< tokens
  int h;
  std::int64_t ring_row;
  std::int64_t scratch_row;
};

/// 128 channels of the raw input at position `at` of the chain; -3 .. -1 are the slot's window.
const bf16* input_at(const Problem& p, const Chain& c, int at, int channel) {
  if (at >= 0) return p.mixed_qkv + (c.begin + at) * p.mixed_qkv_stride + channel;
  return p.conv_states + c.slot * p.conv_slot_stride +
         (at + kKdaConvWidth - 1) * p.conv_tap_stride + channel;
}

/// Convolution and SiLU of the 128 channels from `channel` on at token t; writes the window that
/// the token leaves.
void convolve(const Problem& p, const Chain& c, int t, int channel, float* y) {
  const bf16* const x[kKdaConvWidth] = {input_at(p, c, t - 3, channel),
                                        input_at(p, c, t - 2, channel),
                                        input_at(p, c, t - 1, channel), input_at(p, c, t, channel)};
  const step::ConvWeights weights = {
      .tap0 = p.conv_weight + channel,
      .tap_stride = p.conv_weight_stride,
      .bias = p.conv_bias != nullptr ? p.conv_bias + channel : nullptr};
  step::conv_silu(weights, x, p.round_conv, y);
  if (p.conv_scratch == nullptr) return;
  bf16* const window = p.conv_scratch + c.scratch_row * p.conv_scratch_row_stride +
                       t * p.conv_scratch_token_stride + channel;
  for (int tap = 0; tap < kKdaConvWidth - 1; ++tap)
    std::memcpy(window + tap * p.conv_scratch_tap_stride, x[tap + 1], kD * sizeof(bf16));
}

void write_as_bf16(const float* x, bf16* to) {
  step::for_channels([&](auto d, int i) HWY_ATTR { store_bf16(d, hn::Load(d, x + i), to + i); });
}

/// Everything that token t needs, and its entries of the rings.
void prepare(const Problem& p, const Chain& c, int t, OutputToken& token) {
  HWY_ALIGN float q[kD];
  HWY_ALIGN float k[kD];
  HWY_ALIGN float decay[kD];
  convolve(p, c, t, c.h * kD, q);
  convolve(p, c, t, (p.H + c.h) * kD, k);
  convolve(p, c, t, (2 * p.H + c.h) * kD, token.v);
  const std::int64_t row = c.begin + t;
  token.beta = step::beta_of(p.beta[row * p.beta_stride + c.h]);
  const bf16* const g = p.g + row * p.g_stride + c.h * kD;
  float* log_decay = nullptr;
  if (p.has_rings) {
    const std::int64_t at = (std::int64_t{c.h} * p.ring_len + t) * kD;
    write_as_bf16(k, p.ring_k + c.ring_row * p.ring_k_row_stride + at);
    write_as_bf16(token.v, p.ring_v + c.ring_row * p.ring_v_row_stride + at);
    const std::int64_t g_at = c.ring_row * p.ring_g_row_stride + at;
    if (p.ring_g_dtype == DType::kF32)
      log_decay = static_cast<float*>(p.ring_g) + g_at;
    else
      std::memcpy(static_cast<bf16*>(p.ring_g) + g_at, g, kD * sizeof(bf16));
    p.ring_beta[c.ring_row * p.ring_beta_row_stride + c.h * p.ring_beta_head_stride +
                t * p.ring_beta_token_stride] = token.beta;
  }
  step::normalise(q, p.scale);
  step::normalise(k, 1.0F);

  const float* const bias = p.dt_bias != nullptr ? p.dt_bias + c.h * kD : nullptr;
  const float a = p.A_log != nullptr ? std::exp(p.A_log[c.h]) : 1.0F;
  if (p.has_lower_bound)
    step::bounded_decays(g, bias, a, p.lower_bound, decay, log_decay);
  else
    step::softplus_decays(g, bias, a, decay, log_decay);
  t128_split(q, token.q_split);
  t128_split(k, token.k_split);
  t128_split(decay, token.decay_split);
  token.qk = t128_dot(k, q);
}

/// Rows between a prefetch and its use: a chain of one token would outrun fewer.
constexpr int kAhead = 16;

/// All tokens over the head's state. `snapshot`: the head's after the first token, or null.
template <int kBlocks, class StateT>
void verify_rows(const Problem& p, const Chain& c, const StateT* state, StateT* snapshot,
                 OutputToken* tokens, step::Prefetcher<StateT>& prefetcher) {
  constexpr int kRows = kBlocks * step::kRows;
  for (int row = 0; row < kD; row += kRows) {
    prefetcher.request(kRows * kD);
    const auto after = [&](int t, const auto& write) HWY_ATTR {
      if (snapshot != nullptr) write(snapshot + t * p.snapshot_token_stride + row * kD);
    };
    step::chain_rows<kBlocks>(tokens, c.length, row, state + row * kD, after);
  }
}

template <class StateT>
void verify_live(const Problem& p, const Chain& c) {
  OutputToken tokens[kKdaMaxVerifyTokens];  // 43 KB; a block of rows reads 25
  const StateT* const state = static_cast<const StateT*>(p.state) + c.slot * p.state_slot_stride +
                              std::int64_t{c.h} * kD * kD;
  step::Prefetcher<StateT> prefetcher(state, state + kD * kD);
  prefetcher.request(kAhead * kD);
  for (int t = 0; t < c.length; ++t) prepare(p, c, t, tokens[t]);
  StateT* snapshot = static_cast<StateT*>(p.snapshots);
  if (snapshot != nullptr)
    snapshot += c.scratch_row * p.snapshot_row_stride + std::int64_t{c.h} * kD * kD;
  // A second block hides nothing behind one token, and snapshots are bound by memory.
  if (c.length == 1 || snapshot != nullptr)
    verify_rows<1>(p, c, state, snapshot, tokens, prefetcher);
  else
    verify_rows<2>(p, c, state, snapshot, tokens, prefetcher);
  for (int t = 0; t < c.length; ++t) {
    const std::int64_t token = c.begin + t;
    const step::OutputNorm norm = {.gate = p.onorm_gate + token * p.onorm_gate_stride + c.h * kD,
                                   .weight = p.onorm_weight,
                                   .eps = p.eps_o};
    step::write_output(p.round_o, p.onorm_gate != nullptr ? &norm : nullptr, tokens[t].o,
                       p.out + token * p.out_stride + c.h * kD);
  }
}

}  // namespace

/// Head h of request n.
void verify_head(const Problem& p, int n, int h) {
  const std::int64_t slot = p.state_indices[n];
  const Chain chain = {
      .slot = slot,
      .begin = p.query_start_loc[n],
      .length = p.query_start_loc[n + 1] - p.query_start_loc[n],
      .h = h,
      .ring_row = p.ring_indices.defined() ? p.ring_indices[n] : slot,
      .scratch_row = p.scratch_indices.defined() ? p.scratch_indices[n] : std::int64_t{n}};
  if (chain.length == 0) return;
  if (!p.is_live(slot)) {
    for (int t = 0; t < chain.length; ++t)
      std::fill_n(p.out + (chain.begin + t) * p.out_stride + h * kD, kD, bf16{});
  } else if (p.state_dtype == DType::kF32) {
    verify_live<float>(p, chain);
  } else {
    verify_live<bf16>(p, chain);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(verify_head);

constexpr double kTokenTime = 6.0;  ///< microseconds of one thread for a token of a head, roughly

}  // namespace

void kda_verify(const KdaVerifyProblem& p, const Target& target) {
  const auto verify = HWY_DYNAMIC_DISPATCH(verify_head);
  const std::int64_t tasks = std::int64_t{p.N} * p.H;
  const int threads =
      useful_threads(target.threads, kTokenTime * static_cast<double>(tasks * p.max_query_len));
  parallel_for(tasks, threads, [&](std::int64_t task, int /*thread*/) {
    verify(p, static_cast<int>(task / p.H), static_cast<int>(task % p.H));
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
