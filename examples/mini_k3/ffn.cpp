// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/ffn.h"

#include "examples/mini_k3/view.h"
#include "k3/k3.h"

namespace k3::mini {
namespace {

/// y = W_down SiTU(W_gate_up x)
void feed_forward(Runtime& rt, const DenseWeights& w, const ConstTensorView& x,
                  const TensorView& y) {
  const Scratch::Frame frame(rt.scratch());
  const std::int64_t width = w.down.view().shape[1];
  const TensorView gate_up = rt.bf16({x.shape[0], 2 * width});
  const TensorView activated = rt.bf16({x.shape[0], width});
  rt.linear(x, w.gate_up, gate_up);
  rt.situ(gate_up, activated);
  rt.linear(activated, w.down, y);
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

/// A row for each expert of each token, by expert.
struct Sorted {
  TensorView rows;      ///< [S, latent]
  TensorView experts;   ///< [S] i32
  TensorView position;  ///< [T, topk] i32: where the token's row for this expert stands
};

Sorted sort_by_expert(Runtime& rt, const ConstTensorView& latent, const TensorView& ids) {
  constexpr int kNoPadding = 1;  // blocks of one row
  const std::int64_t T = ids.shape[0];
  const std::int64_t topk = ids.shape[1];
  const std::int64_t S = moe_align_capacity(T, topk, rt.config().num_experts, kNoPadding);
  const Sorted sorted = {rt.bf16({S, latent.shape[1]}), rt.i32({S}), rt.i32({T, topk})};
  const Scratch::Frame frame(rt.scratch());
  MoeAlignArgs args;
  args.topk_ids = ids;
  args.sorted_ids = rt.i32({S});
  args.expert_ids = sorted.experts;
  args.num_post = rt.i32({1});
  args.num_experts = rt.config().num_experts;
  args.block_size = kNoPadding;
  rt.run(moe_align, moe_align_workspace_size, args);
  rt.machine().sort_rows(latent, args.sorted_ids, sorted.rows, sorted.position);
  return sorted;
}

/// out = sum of the chosen experts' results, weighted.
void routed_experts(Runtime& rt, const MoeWeights& w, const Routing& routing,
                    const ConstTensorView& latent, const TensorView& out) {
  const Scratch::Frame frame(rt.scratch());
  const Sorted sorted = sort_by_expert(rt, latent, routing.ids);
  const std::int64_t S = sorted.rows.shape[0];
  const std::int64_t width = rt.config().moe_intermediate_size;
  const TensorView gate_up = rt.bf16({S, 2 * width});
  const TensorView activated = rt.bf16({S, width});
  const TensorView results = rt.bf16({S, latent.shape[1]});
  rt.machine().linear_by_expert(sorted.rows, w.gate_up, sorted.experts, gate_up);
  rt.situ(gate_up, activated);
  rt.machine().linear_by_expert(activated, w.down, sorted.experts, results);

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
  feed_forward(rt, w, x, y);
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
  feed_forward(rt, w.shared, x, shared);
  Add3Args sum;
  sum.a = y;
  sum.b = shared;
  sum.c = prefix;
  sum.out = y;
  rt.run(add3, add3_workspace_size, sum);
}

}  // namespace k3::mini
