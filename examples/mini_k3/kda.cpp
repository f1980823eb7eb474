// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/kda.h"

#include "examples/mini_k3/view.h"
#include "k3/k3.h"

namespace k3::mini {
namespace {

/// The projections of a step's tokens.
struct Inputs {
  ConstTensorView mixed_qkv;  ///< [T, 3 h D], before the convolution
  ConstTensorView gate;       ///< [T, h D], of the output
  ConstTensorView g;          ///< [T, h D], raw log decay
  ConstTensorView beta;       ///< [T, h], logits
};

/// Convolution, delta rule over all tokens, gated norm: out [T, h D].
void prefill(Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer, const Inputs& in,
             const TensorView& out) {
  const std::int64_t tokens = out.shape[0];
  const std::int64_t heads = w.A_log.view().shape[0];
  const std::int64_t inner = out.shape[1];
  const Scratch::Frame frame(rt.scratch());
  const TensorView qkv = rt.bf16({tokens, 3 * inner});
  rt.machine().causal_conv(in.mixed_qkv, select(select(memory.conv_states.view(), 0, layer), 0, 0),
                           w.conv, qkv);

  const TensorView raw = rt.bf16({tokens, inner});
  const TensorView state = select(memory.state.view(), 0, layer);
  KdaPrefillArgs args;
  args.q = batch_of_one(split_last(columns(qkv, 0, inner), heads));
  args.k = batch_of_one(split_last(columns(qkv, inner, 2 * inner), heads));
  args.v = batch_of_one(split_last(columns(qkv, 2 * inner, 3 * inner), heads));
  args.g = batch_of_one(in.g);
  args.beta = batch_of_one(in.beta);
  args.A_log = w.A_log;
  args.dt_bias = w.dt_bias;
  args.initial_state = state;
  args.final_state = state;
  args.state_indices = memory.slot;
  args.out = batch_of_one(split_last(raw, heads));
  args.lower_bound = rt.config().lower_bound;
  args.qk_l2norm = true;
  args.gate_in_kernel = true;
  args.beta_sigmoid = true;
  rt.run(kda_prefill, kda_prefill_workspace_size, args);

  KdaOutputNormArgs norm;
  norm.raw = raw;
  norm.gate = in.gate;
  norm.weight = w.out_norm;
  norm.out = out;
  norm.eps = rt.config().rms_norm_eps;
  rt.run(kda_output_norm, kda_output_norm_workspace_size, norm);
}

/// What a decode and a verify step have in common.
template <class Args>
Args step_args(const Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer,
               const Inputs& in, const TensorView& out) {
  Args args;
  args.mixed_qkv = in.mixed_qkv;
  args.conv_states = select(memory.conv_states.view(), 0, layer);
  args.conv_weight = w.conv;
  args.g = in.g;
  args.beta = in.beta;
  args.A_log = w.A_log;
  args.dt_bias = w.dt_bias;
  args.onorm_gate = in.gate;
  args.onorm_weight = w.out_norm;
  args.state = select(memory.state.view(), 0, layer);
  args.state_indices = memory.slot;
  args.out = out;
  args.lower_bound = rt.config().lower_bound;
  args.eps_o = rt.config().rms_norm_eps;
  return args;
}

void decode(Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer, const Inputs& in,
            const TensorView& out) {
  const auto args = step_args<KdaFusedDecodeArgs>(rt, w, memory, layer, in, out);
  rt.run(kda_fused_decode, kda_fused_decode_workspace_size, args);
}

void verify(Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer, const Step& step,
            const Inputs& in, const TensorView& out) {
  auto args = step_args<KdaVerifyArgs>(rt, w, memory, layer, in, out);
  args.query_start_loc = step.query_start_loc;
  args.max_query_len = static_cast<int>(step.tokens);
  args.ring_k = select(memory.ring_k.view(), 0, layer);
  args.ring_v = select(memory.ring_v.view(), 0, layer);
  args.ring_g = select(memory.ring_g.view(), 0, layer);
  args.ring_beta = select(memory.ring_beta.view(), 0, layer);
  args.conv_scratch = select(memory.conv_scratch.view(), 0, layer);
  rt.run(kda_verify, kda_verify_workspace_size, args);
}

}  // namespace

KdaState::KdaState(const Config& config, Machine& machine, int num_layers)
    : slot(machine, DType::kI32, {1}), accept_len(machine, DType::kI32, {1}) {
  constexpr std::int64_t kSlots = 1;
  constexpr std::int64_t L = kMaxStepTokens;
  const std::int64_t layers = num_layers;
  const std::int64_t h = config.num_attention_heads;
  const std::int64_t D = config.head_dim;
  const std::int64_t window = config.conv - 1;
  state = Array(machine, DType::kF32, {layers, kSlots, h, D, D});
  conv_states = Array(machine, DType::kBF16, {layers, kSlots, window, 3 * h * D});
  ring_k = Array(machine, DType::kBF16, {layers, kSlots, h, L, D});
  ring_v = Array(machine, DType::kBF16, {layers, kSlots, h, L, D});
  ring_g = Array(machine, DType::kF32, {layers, kSlots, h, L, D});
  ring_beta = Array(machine, DType::kF32, {layers, kSlots, h, L});
  conv_scratch = Array(machine, DType::kBF16, {layers, kSlots, L, window, 3 * h * D});
}

void kda_attention(Runtime& rt, const KdaWeights& w, const KdaState& memory, int layer,
                   const Step& step, const ConstTensorView& x, const TensorView& y) {
  const std::int64_t T = step.tokens;
  const std::int64_t h = rt.config().num_attention_heads;
  const std::int64_t D = rt.config().head_dim;
  const std::int64_t inner = h * D;
  const Scratch::Frame frame(rt.scratch());

  const TensorView qkvg = rt.bf16({T, 4 * inner});
  rt.linear(x, w.qkvg, qkvg);
  const TensorView forget_beta = rt.bf16({T, w.forget_beta.view().shape[0]});
  rt.linear(x, w.forget_beta, forget_beta);
  const TensorView g = rt.bf16({T, inner});
  rt.linear(columns(forget_beta, 0, D), w.forget_up, g);

  const Inputs in = {columns(qkvg, 0, 3 * inner), columns(qkvg, 3 * inner, 4 * inner), g,
                     columns(forget_beta, D, D + h)};
  const TensorView out = rt.bf16({T, inner});
  switch (step.phase) {
    case Phase::kPrefill:
      prefill(rt, w, memory, layer, in, out);
      break;
    case Phase::kDecode:
      decode(rt, w, memory, layer, in, out);
      break;
    case Phase::kVerify:
      verify(rt, w, memory, layer, step, in, out);
      break;
  }
  rt.linear(out, w.out, y);
}

void kda_commit(Runtime& rt, const KdaState& memory, std::int32_t accepted) {
  if (memory.state.view().numel() == 0) return;  // a model without KDA layers
  rt.machine().upload(memory.accept_len.view().data, &accepted, sizeof accepted);
  KdaReplayCommitArgs args;
  args.state = memory.state;
  args.ring_k = memory.ring_k;
  args.ring_v = memory.ring_v;
  args.ring_g = memory.ring_g;
  args.ring_beta = memory.ring_beta;
  args.state_indices = memory.slot;
  args.accept_lens = memory.accept_len;
  args.conv_states = memory.conv_states;
  args.conv_scratch = memory.conv_scratch;
  rt.run(kda_replay_commit, kda_replay_commit_workspace_size, args);
}

}  // namespace k3::mini
