// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/ffn.h"

#include <vector>

#include "examples/mini_k3/view.h"
#include "k3/k3.h"

namespace k3::mini {
namespace {

/// y = W_down SiTU(W_gate_up x)
void feed_forward(Runtime& rt, const ConstTensorView& gate_up_weight,
                  const ConstTensorView& down_weight, const ConstTensorView& x,
                  const TensorView& y) {
  const Scratch::Frame frame(rt.scratch());
  const std::int64_t width = down_weight.shape[1];
  const TensorView gate_up = rt.bf16({x.shape[0], 2 * width});
  const TensorView activated = rt.bf16({x.shape[0], width});
  rt.linear(x, gate_up_weight, gate_up);
  rt.situ(gate_up, activated);
  rt.linear(activated, down_weight, y);
}

/// The experts of each token, and their weights.
struct Routing {
  TensorView ids;      ///< [T, topk] i32
  TensorView weights;  ///< [T, topk] f32
};

Routing route(Runtime& rt, const MoeWeights& w, const ConstTensorView& x) {
  const std::int64_t T = x.shape[0];
  const std::int64_t topk = rt.config().num_experts_per_token;
  const Routing routing = {rt.i32({T, topk}), rt.f32({T, topk})};
  const Scratch::Frame frame(rt.scratch());
  const TensorView scores = rt.f32({T, rt.config().num_experts});
  rt.linear(x, w.router, scores);
  MoeRouteTopkArgs args;
  args.scores = scores;
  args.bias = w.router_bias;
  args.topk_ids = routing.ids;
  args.topk_weights = routing.weights;
  args.topk = static_cast<int>(topk);
  rt.run(moe_route_topk, moe_route_topk_workspace_size, args);
  return routing;
}

/// The rows of tokens by expert, in whole blocks.
struct Sorted {
  TensorView rows;           ///< [S, latent]
  TensorView position;       ///< [T, topk] i32: where the token's row for this expert stands
  std::vector<int> experts;  ///< of each block
};

Sorted sort_by_expert(Runtime& rt, const ConstTensorView& latent, const TensorView& ids,
                      int block_size) {
  const std::int64_t T = ids.shape[0];
  const std::int64_t topk = ids.shape[1];
  const int num_experts = rt.config().num_experts;
  const std::int64_t capacity = moe_align_capacity(T, topk, num_experts, block_size);
  const std::int64_t num_blocks = capacity / block_size;
  Sorted sorted = {rt.bf16({capacity, latent.shape[1]}), rt.i32({T, topk}), {}};
  const Scratch::Frame frame(rt.scratch());
  const TensorView sorted_ids = rt.i32({capacity});
  const TensorView expert_ids = rt.i32({num_blocks});
  MoeAlignArgs args;
  args.topk_ids = ids;
  args.sorted_ids = sorted_ids;
  args.expert_ids = expert_ids;
  args.num_post = rt.i32({1});
  args.num_experts = num_experts;
  args.block_size = block_size;
  rt.run(moe_align, moe_align_workspace_size, args);
  rt.machine().sort_rows(latent, sorted_ids, sorted.rows, sorted.position);

  // Which weights a product takes is the host's to say, where the library has no grouped product.
  std::vector<std::int32_t> experts(static_cast<std::size_t>(num_blocks));
  rt.machine().download(experts.data(), expert_ids.data, experts.size() * sizeof(std::int32_t));
  for (const std::int32_t expert : experts)
    if (expert >= 0) sorted.experts.push_back(expert);
  return sorted;
}

/// out = sum of the chosen experts' results, weighted.
void routed_experts(Runtime& rt, const MoeWeights& w, const Routing& routing,
                    const ConstTensorView& latent, const TensorView& out) {
  const Scratch::Frame frame(rt.scratch());
  // Many tokens: large blocks of one size for the matrix library. Few: no padding at all.
  constexpr int kProductRows = 64;
  const int block = latent.shape[0] > kTinyGemmMaxRows ? kProductRows : 1;
  const Sorted sorted = sort_by_expert(rt, latent, routing.ids, block);
  const TensorView results = rt.bf16({sorted.rows.shape[0], latent.shape[1]});
  for (std::size_t begin = 0, end = 0; begin < sorted.experts.size(); begin = end) {
    const int expert = sorted.experts[begin];
    for (end = begin + 1; end < sorted.experts.size() && sorted.experts[end] == expert &&
                          block * static_cast<int>(end + 1 - begin) <= kTinyGemmMaxRows;)
      ++end;
    const auto first = static_cast<std::int64_t>(begin) * block;
    const auto last = static_cast<std::int64_t>(end) * block;
    feed_forward(rt, select(w.gate_up.view(), 0, expert), select(w.down.view(), 0, expert),
                 rows(sorted.rows, first, last), rows(results, first, last));
  }
  MoeFinalizeArgs args;
  args.experts_out = results;
  args.idx = sorted.position;
  args.topk_weights = routing.weights;
  args.out = out;
  rt.run(moe_finalize, moe_finalize_workspace_size, args);
}

}  // namespace

void dense_ffn(Runtime& rt, const DenseWeights& w, const ConstTensorView& x,
               const ConstTensorView& prefix, const TensorView& y) {
  feed_forward(rt, w.gate_up, w.down, x, y);
  rt.add(y, prefix, y);
}

void moe_ffn(Runtime& rt, const MoeWeights& w, const ConstTensorView& x,
             const ConstTensorView& prefix, const TensorView& y) {
  const std::int64_t T = x.shape[0];
  const std::int64_t width = rt.config().routed_expert_hidden_size;
  const Scratch::Frame frame(rt.scratch());

  const Routing routing = route(rt, w, x);
  const TensorView latent = rt.bf16({T, width});
  const TensorView routed = rt.bf16({T, width});
  rt.linear(x, w.latent_down, latent);
  routed_experts(rt, w, routing, latent, routed);
  const TensorView normed = rt.bf16({T, width});
  rt.rms_norm(routed, w.latent_norm, normed);
  rt.linear(normed, w.latent_up, y);

  const TensorView shared = rt.bf16({T, rt.config().hidden_size});
  feed_forward(rt, w.shared.gate_up, w.shared.down, x, shared);
  Add3Args sum;
  sum.a = y;
  sum.b = shared;
  sum.c = prefix;
  sum.out = y;
  rt.run(add3, add3_workspace_size, sum);
}

}  // namespace k3::mini
