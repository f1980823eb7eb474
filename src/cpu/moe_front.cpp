// SPDX-License-Identifier: Apache-2.0

// A plain product of bf16 matrices with fp32 sums, then the router. An element is one chain of
// vector multiply-adds over H and a sum of lanes, whatever tile it stands in, so a token's results
// do not depend on the others. docs/moe_front.md.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_front.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/moe_front.h"
#include "cpu/moe_route_topk.h"
#include "cpu/parallel.h"
#include "cpu/row_spans.h"

#ifndef K3_CPU_MOE_FRONT_TILE_
#define K3_CPU_MOE_FRONT_TILE_
namespace k3::cpu {

/// Tokens [t, t_end) by rows [n, n_end) of the weight.
struct FrontTile {
  std::int64_t t;
  std::int64_t t_end;
  std::int64_t n;
  std::int64_t n_end;
};

}  // namespace k3::cpu
#endif  // K3_CPU_MOE_FRONT_TILE_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

/// Logits to the workspace, the rest to its place.
void store_sum(const MoeFrontProblem& p, float* logits, std::int64_t t, std::int64_t n, float sum) {
  const MoeFrontEpilogueProblem& e = p.epilogue;
  if (n < e.routing.num_experts)
    logits[t * e.routing.num_experts + n] = sum;
  else
    e.routed[t * e.routed_stride + n - e.routing.num_experts] = to_bf16(sum);
}

/// kRows rows of the weight from n on with kTokens tokens from t on. Four by two leave AVX2 three
/// of its registers for operands.
template <int kRows, int kTokens>
void multiply(const MoeFrontProblem& p, float* logits, std::int64_t t, std::int64_t n) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const bf16* const w = p.weight + n * p.weight_stride;
  const bf16* const x = p.hidden + t * p.hidden_stride;
  hn::Vec<decltype(df)> sum[kRows][kTokens];
  for (auto& row : sum)
    for (auto& s : row) s = hn::Zero(df);
  const auto step = [&](auto load) HWY_ATTR {
    hn::Vec<decltype(df)> xs[kTokens];
    for (int j = 0; j < kTokens; ++j) xs[j] = load(x + j * p.hidden_stride);
    for (int i = 0; i < kRows; ++i) {
      const auto weights = load(w + i * p.weight_stride);
      for (int j = 0; j < kTokens; ++j) sum[i][j] = hn::MulAdd(weights, xs[j], sum[i][j]);
    }
  };
  std::int64_t h = 0;
  for (; h + lanes <= p.H; h += lanes)
    step([&](const bf16* row) HWY_ATTR { return load_bf16(df, row + h); });
  if (h < p.H) {
    const auto rest = static_cast<std::size_t>(p.H - h);
    step([&](const bf16* row) HWY_ATTR { return load_bf16_n(df, row + h, rest); });
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kTokens; ++j)
      store_sum(p, logits, t + j, n + i, hn::GetLane(hn::SumOfLanes(df, sum[i][j])));
}

template <int kRows>
void multiply_tokens(const MoeFrontProblem& p, float* logits, const FrontTile& tile,
                     std::int64_t n) {
  std::int64_t t = tile.t;
  for (; t + 2 <= tile.t_end; t += 2) multiply<kRows, 2>(p, logits, t, n);
  if (t < tile.t_end) multiply<kRows, 1>(p, logits, t, n);
}

}  // namespace

void multiply_tile(const MoeFrontProblem& p, float* logits, const FrontTile& tile) {
  std::int64_t n = tile.n;
  for (; n + 4 <= tile.n_end; n += 4) multiply_tokens<4>(p, logits, tile, n);
  for (; n < tile.n_end; ++n) multiply_tokens<1>(p, logits, tile, n);
}

/// Columns [begin, end) of one token, rounded.
void round_span(const MoeFrontEpilogueProblem& p, std::int64_t t, std::int64_t begin,
                std::int64_t end) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const float* const from = p.latent + t * p.latent_stride;
  bf16* const to = p.routed + t * p.routed_stride;
  std::int64_t l = begin;
  for (; l + lanes <= end; l += lanes) store_bf16(df, hn::LoadU(df, from + l), to + l);
  for (; l < end; ++l) to[l] = to_bf16(from[l]);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(multiply_tile);
HWY_EXPORT(round_span);

/// A tile's operands, some 200 and 450 KB for H = 7168, stay in a core's cache.
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileTokens = 32;
constexpr double kProductTime = 1e-4;  ///< microseconds of one thread for a multiply-add, roughly

constexpr RowSpans kRounded = {.task_outputs = 16384, .output_time = 4e-4};  // 7 us a task

}  // namespace

std::size_t moe_front_workspace_size(const MoeFrontProblem& p, const Target& /*target*/) {
  return static_cast<std::size_t>(p.T) * static_cast<std::size_t>(p.epilogue.routing.num_experts) *
         sizeof(float);
}

void moe_front(const MoeFrontProblem& p, const Target& target) {
  if (p.T == 0) return;
  auto* const logits = static_cast<float*>(target.workspace.data);
  const auto multiply = HWY_DYNAMIC_DISPATCH(multiply_tile);
  const std::int64_t row_tiles = (p.N - 1) / kTileRows + 1;
  const std::int64_t token_tiles = (p.T - 1) / kTileTokens + 1;
  const double products =
      static_cast<double>(p.T) * static_cast<double>(p.N) * static_cast<double>(p.H);
  parallel_for(row_tiles * token_tiles, useful_threads(target.threads, kProductTime * products),
               [&](std::int64_t task, int) {
                 const std::int64_t t = task / row_tiles * kTileTokens;
                 const std::int64_t n = task % row_tiles * kTileRows;
                 multiply(p, logits,
                          {t, std::min(t + kTileTokens, p.T), n, std::min(n + kTileRows, p.N)});
               });
  MoeRouting routing = p.epilogue.routing;
  routing.scores = logits;
  routing.scores_stride = routing.num_experts;
  moe_route(routing, target);
}

void moe_front_epilogue(const MoeFrontEpilogueProblem& p, const Target& target) {
  moe_route(p.routing, target);
  const auto round = HWY_DYNAMIC_DISPATCH(round_span);
  for_each_row_span(p.routing.num_tokens, p.L, target.threads, kRounded,
                    [&](std::int64_t token, std::int64_t begin, std::int64_t count) {
                      round(p, token, begin, begin + count);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
