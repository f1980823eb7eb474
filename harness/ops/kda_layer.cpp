// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/kda_layer.h"

#include <cstring>

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;

/// `layers` copies of a dense tensor under a new first axis.
Tensor repeated(const Tensor& layer, std::int64_t layers) {
  std::vector<std::int64_t> shape = {layers};
  shape.insert(shape.end(), layer.shape().begin(), layer.shape().end());
  Tensor all = Tensor::dense(layer.dtype(), shape);
  for (std::int64_t i = 0; i < layers; ++i)
    std::memcpy(all.storage() + static_cast<std::size_t>(i) * layer.storage_bytes(),
                layer.storage(), layer.storage_bytes());
  return all;
}

}  // namespace

Bundle prefill_layer(const PrefillLayer& layer) {
  Random random(layer.seed);
  std::vector<std::int64_t> cu = {0};
  for (const std::int64_t length : layer.lengths) cu.push_back(cu.back() + length);
  const std::int64_t T = cu.back();
  const std::int64_t H = layer.H;
  const auto N = static_cast<std::int64_t>(layer.lengths.size());
  const bool repeat = layer.period > 0;
  const std::int64_t tokens = repeat ? layer.period : std::max<std::int64_t>(T, 1);
  Bundle b;
  for (const char* name : {"q", "k", "v", "g"})
    b.tensors[name] = repeated_normal(random, DType::kBF16, {1, T, H, kD}, tokens * H * kD);
  b.tensors["beta"] = repeated_normal(random, DType::kBF16, {1, T, H}, tokens * H);
  b.tensors["A_log"] = uniform(random, DType::kF32, {H}, 0.0, 1.0);
  b.tensors["dt_bias"] = normal(random, DType::kF32, {H, kD});
  b.tensors["cu_seqlens"] = integers(DType::kI32, cu);
  if (layer.initial_state)
    b.tensors["initial_state"] =
        repeated_normal(random, DType::kF32, {N, H, kD, kD}, (repeat ? 1 : N) * H * kD * kD);
  b.tensors["out"] = poisoned(DType::kBF16, {1, T, H, kD});
  b.tensors["final_state"] = poisoned(DType::kF32, {N, H, kD, kD});
  b.scalars = {
      {"lower_bound", "-5"}, {"qk_l2norm", "1"}, {"gate_in_kernel", "1"}, {"beta_sigmoid", "1"}};
  return b;
}

Bundle decode_layer(const DecodeLayer& layer) {
  Random random(layer.seed);
  const std::int64_t B = layer.B;
  const std::int64_t segment = layer.H * kD;
  const std::int64_t slots = layer.slots > 0 ? layer.slots : B;
  std::vector<std::int64_t> indices = layer.indices;
  if (indices.empty())
    for (std::int64_t n = 0; n < B; ++n) indices.push_back(slots - 1 - n);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {B, 3 * segment});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {slots, 3, 3 * segment});
  b.tensors["conv_weight"] = normal(random, DType::kF32, {4, 3 * segment}, 0.4);
  b.tensors["g"] = normal(random, DType::kBF16, {B, segment});
  b.tensors["beta"] = normal(random, DType::kBF16, {B, layer.H});
  b.tensors["A_log"] = uniform(random, DType::kF32, {layer.H}, 0.0, 1.0);
  b.tensors["dt_bias"] = normal(random, DType::kF32, {segment});
  b.tensors["onorm_gate"] = normal(random, DType::kBF16, {B, segment});
  b.tensors["onorm_weight"] = normal(random, DType::kF32, {kD}, 0.1, 1.0);
  b.tensors["state"] =
      repeated_normal(random, DType::kF32, {slots, layer.H, kD, kD}, layer.H * kD * kD);
  b.tensors["state_indices"] = integers(DType::kI32, indices);
  b.tensors["out"] = poisoned(DType::kBF16, {B, segment});
  b.scalars = {{"lower_bound", "-5"}};
  return b;
}

Bundle packed_layer(const DecodeLayer& layer) {
  Bundle b = decode_layer(layer);
  for (const char* name : {"conv_states", "conv_weight", "onorm_gate", "onorm_weight"})
    b.tensors.erase(name);
  return b;
}

Bundle commit_layers(const CommitLayers& c) {
  Random random(c.seed);
  const std::int64_t channels = 3 * c.H * kD;
  const auto add = [&](Bundle& b, const char* name, const Tensor& layer) {
    b.tensors[name] = repeated(layer, c.layers);
  };
  Bundle b;
  add(b, "state", normal(random, DType::kF32, {c.B, c.H, kD, kD}));
  add(b, "ring_k", normal(random, DType::kBF16, {c.B, c.H, c.L, kD}));
  add(b, "ring_v", normal(random, DType::kBF16, {c.B, c.H, c.L, kD}));
  add(b, "ring_g", uniform(random, DType::kF32, {c.B, c.H, c.L, kD}, -5.0, 0.0));
  add(b, "ring_beta", uniform(random, DType::kF32, {c.B, c.H, c.L}, 0.0, 1.0));
  add(b, "conv_states", normal(random, DType::kBF16, {c.B, 3, channels}));
  add(b, "conv_scratch", normal(random, DType::kBF16, {c.B, c.L, 3, channels}));
  b.tensors["state_indices"] = integers(DType::kI32, shuffled_slots(c.B));
  b.tensors["accept_lens"] =
      integers(DType::kI32, std::vector<std::int64_t>(static_cast<std::size_t>(c.B), c.A));
  return b;
}

std::vector<std::int64_t> shuffled_slots(std::int64_t B) {
  constexpr std::int64_t kStep = 7919;  // a prime: visits every slot once
  std::vector<std::int64_t> slots;
  for (std::int64_t n = 0; n < B; ++n) slots.push_back(n * kStep % B);
  return slots;
}

void draw_next_token(Random& random, Bundle& decode) {
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate"}) {
    const auto found = decode.tensors.find(name);
    if (found == decode.tensors.end()) continue;
    found->second = normal(random, DType::kBF16, found->second.shape());
  }
}

Bundle verify_layer(const VerifyLayer& layer) {
  const std::int64_t N = layer.N;
  const std::int64_t T = layer.T;
  const std::int64_t H = layer.H;
  const std::int64_t slots = layer.slots > 0 ? layer.slots : N;
  std::vector<std::int64_t> indices = layer.indices;
  std::vector<std::int64_t> starts = {0};
  for (std::int64_t n = 0; n < N; ++n) {
    starts.push_back((n + 1) * T);
    if (layer.indices.empty()) indices.push_back(slots - 1 - n);
  }
  Bundle b =
      decode_layer({.B = N * T, .H = H, .slots = slots, .indices = indices, .seed = layer.seed});
  b.tensors["query_start_loc"] = integers(DType::kI32, starts);
  b.tensors["conv_scratch"] = poisoned(DType::kBF16, {N, T, 3, 3 * H * kD});
  if (layer.outputs == VerifyOutputs::kSnapshots) {
    b.tensors["snapshots"] = poisoned(DType::kF32, {N, T, H, kD, kD});
  } else {
    b.tensors["ring_k"] = poisoned(DType::kBF16, {slots, H, T, kD});
    b.tensors["ring_v"] = poisoned(DType::kBF16, {slots, H, T, kD});
    b.tensors["ring_g"] = poisoned(DType::kF32, {slots, H, T, kD});
    b.tensors["ring_beta"] = poisoned(DType::kF32, {slots, H, T});
  }
  return b;
}

}  // namespace k3::harness
