// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/mla.h"

#include <cmath>

#include "examples/mini_k3/view.h"
#include "k3/k3.h"

namespace k3::mini {

void mla_attention(Runtime& rt, const MlaWeights& w, const TensorView& cache, const Step& step,
                   const ConstTensorView& x, const TensorView& y) {
  const Config& c = rt.config();
  const std::int64_t T = step.tokens;
  const std::int64_t h = c.num_attention_heads;
  const std::int64_t q_rank = c.q_lora_rank;
  const std::int64_t rank = c.kv_lora_rank;
  const std::int64_t nope = c.qk_nope_head_dim;
  const std::int64_t rope = c.qk_rope_head_dim;
  const std::int64_t v = c.v_head_dim;
  const Scratch::Frame frame(rt.scratch());

  // [q_a | kv_a | shared part of the key | output gate]
  const TensorView down = rt.bf16({T, w.down_gate.view().shape[0]});
  rt.linear(x, w.down_gate, down);
  const ConstTensorView shared_key = columns(down, q_rank + rank, q_rank + rank + rope);
  const ConstTensorView gate = columns(down, q_rank + rank + rope, down.shape[1]);

  const TensorView q_latent = rt.bf16({T, q_rank});
  const TensorView kv_latent = rt.bf16({T, rank});
  rt.rms_norm(columns(down, 0, q_rank), w.q_norm, q_latent);
  rt.rms_norm(columns(down, q_rank, q_rank + rank), w.kv_norm, kv_latent);

  // Queries, their first part in the space of the cache.
  const TensorView q_flat = rt.bf16({T, h * (nope + rope)});
  rt.linear(q_latent, w.q_up, q_flat);
  const TensorView q = split_last(q_flat, h);
  const TensorView q_absorbed = rt.bf16({T, h, rank});
  for (std::int64_t head = 0; head < h; ++head)
    rt.linear(columns(select(q, 1, head), 0, nope), select(w.k_absorb.view(), 0, head),
              select(q_absorbed, 1, head));

  const TensorView query = rt.bf16({T, h, rank + rope});
  MlaCacheWriteConcatQArgs write;
  write.kv_buffer = cache;
  write.slot_mapping = step.positions;
  write.k_nope = kv_latent;
  write.k_rope = shared_key;
  write.q_nope = q_absorbed;
  write.q_rope = columns(q, nope, nope + rope);
  write.q_out = query;
  rt.run(mla_cache_write_concat_q, mla_cache_write_concat_q_workspace_size, write);

  const TensorView mixed = rt.bf16({T, h, rank});
  AttentionArgs attention;
  attention.query = query;
  attention.cache = cache;
  attention.positions = step.positions;
  attention.scale = 1.0F / std::sqrt(static_cast<float>(nope + rope));
  attention.out = mixed;
  rt.machine().attend(attention);

  const TensorView out = rt.bf16({T, h * v});
  for (std::int64_t head = 0; head < h; ++head)
    rt.linear(select(mixed, 1, head), select(w.v_up.view(), 0, head),
              columns(out, head * v, (head + 1) * v));

  MlaOutputGateArgs output_gate;
  output_gate.x = out;
  output_gate.gate = gate;
  output_gate.out = out;
  rt.run(mla_output_gate, mla_output_gate_workspace_size, output_gate);
  rt.linear(out, w.out, y);
}

}  // namespace k3::mini
