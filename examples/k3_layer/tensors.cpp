// SPDX-License-Identifier: Apache-2.0
#include "examples/k3_layer/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "harness/inputs.h"

namespace k3::layer {
namespace {

using harness::Bundle;
using harness::Random;
using harness::Tensor;

class Specs {
 public:
  explicit Specs(const Request& request) : r_(request), s_(request.sizes) {
    inputs();
    kda();
    experts();
    mla();
  }
  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  void add(const char* name, DType dtype, std::vector<std::int64_t> shape, double deviation = 0.0,
           double mean = 0.0) {
    specs_.push_back({name, dtype, std::move(shape), deviation, mean});
  }
  void bf16(const char* name, std::vector<std::int64_t> shape, double deviation = 0.0) {
    add(name, DType::kBF16, std::move(shape), deviation);
  }
  /// Of a projection: keeps the size of what it projects.
  void weight(const char* name, std::int64_t rows, std::int64_t columns) {
    bf16(name, {rows, columns}, 1.0 / std::sqrt(static_cast<double>(columns)));
  }
  void norm_weight(const char* name, std::int64_t width) {
    add(name, DType::kBF16, {width}, 0.1, 1.0);
  }
  void mixture(const char* score_norm, const char* score_proj, const char* norm, const char* out) {
    norm_weight(score_norm, s_.hidden);
    bf16(score_proj, {s_.hidden}, 1.0 / std::sqrt(static_cast<double>(s_.hidden)));
    norm_weight(norm, s_.hidden);
    bf16(out, {rows_, s_.hidden});
  }

  void inputs() {
    bf16("bank", {rows_, s_.bank_rows, s_.hidden});
    bf16("prefix", {rows_, s_.hidden});
    bf16("zeros", {s_.hidden});
    add("cache_slots", DType::kI32, {rows_});
    add("slots", DType::kI32, {r_.batch});
    add("starts", DType::kI32, {r_.batch + 1});
  }

  void kda() {
    const std::int64_t inner = s_.inner();
    const std::int64_t channels = s_.channels();
    mixture("kda_score_norm", "kda_score_proj", "kda_norm", "kda_x");
    weight("w_qkvg", 4 * inner, s_.hidden);
    weight("w_forget_beta", s_.forget_beta(), s_.hidden);
    weight("w_forget", inner, kHeadDim);
    add("conv_weight", DType::kF32, {kConvTaps, channels}, 0.5);
    add("A_log", DType::kF32, {s_.heads}, 0.5);
    add("dt_bias", DType::kF32, {inner}, 1.0, -4.0);  // most channels remember for long
    add("kda_out_norm", DType::kF32, {kHeadDim}, 0.1, 1.0);
    weight("w_kda_out", s_.hidden, inner);
    bf16("qkvg", {rows_, 4 * inner});
    bf16("forget_beta", {rows_, s_.forget_beta()});
    bf16("forget", {rows_, inner});
    bf16("kda_qkv", {rows_, channels});  // after the convolution, where that is not fused
    bf16("kda_raw", {rows_, inner});     // before the output norm, likewise
    bf16("kda_out", {rows_, inner});
    bf16("kda_y", {rows_, s_.hidden});
    bf16("prefix_kda", {rows_, s_.hidden});
    add("state", DType::kF32, {r_.batch, s_.heads, kHeadDim, kHeadDim}, 0.1);
    bf16("conv_states", {r_.batch, kConvTaps - 1, channels}, 1.0);
    if (r_.mode != Mode::kVerify) return;
    bf16("ring_k", {r_.batch, s_.heads, r_.tokens, kHeadDim});
    bf16("ring_v", {r_.batch, s_.heads, r_.tokens, kHeadDim});
    add("ring_g", DType::kF32, {r_.batch, s_.heads, r_.tokens, kHeadDim});
    add("ring_beta", DType::kF32, {r_.batch, s_.heads, r_.tokens});
    bf16("conv_scratch", {r_.batch, r_.tokens, kConvTaps - 1, channels});
    add("accept_lens", DType::kI32, {r_.batch}, 0.0, static_cast<double>(r_.accepted));
  }

  void experts() {
    const std::int64_t slots = rows_ * s_.topk;
    const auto words = [](std::int64_t width, std::int64_t group) {
      return (width / group + 3) / 4;
    };
    mixture("moe_score_norm", "moe_score_proj", "moe_norm", "moe_x");
    weight("w_front", s_.experts + s_.latent, s_.hidden);
    add("router_bias", DType::kF32, {s_.experts}, 0.1);
    add("front", DType::kF32, {rows_, s_.experts + s_.latent});
    add("topk_weights", DType::kF32, {rows_, s_.topk});
    add("topk_ids", DType::kI32, {rows_, s_.topk});
    add("packed_topk", DType::kI32, {rows_, s_.topk});
    add("latent_codes", DType::kF8E4M3, {rows_, s_.latent});
    add("latent_scales", DType::kI32, {rows_, words(s_.latent, kQuantGroup)});
    // Stands for the experts' first product.
    bf16("expert_gate_up", {slots, 2 * s_.expert_width}, 2.0);
    bf16("expert_act", {slots, s_.expert_width});
    add("expert_codes", DType::kF8E4M3, {slots, s_.expert_width});
    add("expert_scales", DType::kI32, {slots, words(s_.expert_width, kQuantGroup)});
    // Stands for the second one; the row of each slot.
    bf16("expert_rows", {slots, s_.latent}, 1.0);
    add("expert_row", DType::kI32, {rows_, s_.topk});
    norm_weight("latent_norm", s_.latent);
    bf16("routed", {rows_, s_.latent});
    bf16("routed_x", {rows_, s_.latent});
    weight("w_up", s_.hidden, s_.latent);
    bf16("up", {rows_, s_.hidden});
    weight("w_shared", 2 * s_.shared_width, s_.hidden);
    weight("w_shared_down", s_.hidden, s_.shared_width);
    bf16("shared_gate_up", {rows_, 2 * s_.shared_width});
    bf16("shared_act", {rows_, s_.shared_width});
    bf16("shared", {rows_, s_.hidden});
    bf16("prefix_moe", {rows_, s_.hidden});
  }

  void mla() {
    const std::int64_t inner = s_.inner();
    const std::int64_t cached = s_.kv_rank + s_.rope;
    mixture("mla_score_norm", "mla_score_proj", "mla_norm", "mla_x");
    weight("w_latents", s_.q_rank + cached, s_.hidden);
    norm_weight("q_norm", s_.q_rank);
    norm_weight("kv_norm", s_.kv_rank);
    weight("w_q", s_.heads * (kHeadDim + s_.rope), s_.q_rank);
    weight("w_mla_gate", inner, s_.hidden);
    weight("w_mla_out", s_.hidden, inner);
    bf16("latents", {rows_, s_.q_rank + cached});
    bf16("q_latent", {rows_, s_.q_rank});
    bf16("kv_latent", {rows_, s_.kv_rank});
    bf16("q", {rows_, s_.heads, kHeadDim + s_.rope});
    // Stands for the queries' first halves through W_kc.
    bf16("absorbed_q", {rows_, s_.heads, s_.kv_rank}, 1.0);
    bf16("q_out", {rows_, s_.heads, cached});
    bf16("kv_cache", {r_.batch * r_.cache_rows(), cached}, 1.0);
    bf16("attention", {rows_, inner}, 1.0);  // stands for the attention
    bf16("mla_gate", {rows_, inner});
    bf16("mla_out", {rows_, inner});
    bf16("mla_y", {rows_, s_.hidden});
    bf16("out", {rows_, s_.hidden});
  }

  const Request& r_;
  const Sizes& s_;
  const std::int64_t rows_ = r_.rows();
  std::vector<TensorSpec> specs_;
};

void draw(Random& random, double deviation, double mean, Tensor& tensor) {
  constexpr std::int64_t kPeriod = (1 << 20) - 3;  // a prime
  const Tensor block =
      harness::normal(random, tensor.dtype(), {std::min(kPeriod, tensor.numel())}, deviation, mean);
  for (std::size_t at = 0; at < tensor.storage_bytes(); at += block.storage_bytes())
    std::memcpy(tensor.storage() + at, block.storage(),
                std::min(block.storage_bytes(), tensor.storage_bytes() - at));
}

/// Every row of `expert_rows` once, in an order that no prefetcher guesses.
void shuffle_rows(Random& random, Tensor& rows) {
  for (std::int64_t i = 0; i < rows.numel(); ++i) rows.set(i, static_cast<double>(i));
  for (std::int64_t i = rows.numel(); i > 1; --i) {
    const auto j = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(i));
    const double other = rows.get(j);
    rows.set(j, rows.get(i - 1));
    rows.set(i - 1, other);
  }
}

}  // namespace

std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte byte : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3ULL;
  return hash;
}

std::vector<TensorSpec> tensor_specs(const Request& request) { return Specs(request).take(); }

double bytes_of(const std::vector<TensorSpec>& specs) {
  double bytes = 0.0;
  for (const TensorSpec& spec : specs) {
    auto tensor = static_cast<double>(size_of(spec.dtype));
    for (const std::int64_t size : spec.shape) tensor *= static_cast<double>(size);
    bytes += tensor;
  }
  return bytes;
}

Bundle make_tensors(const Request& request) {
  Bundle bundle;
  for (const TensorSpec& spec : tensor_specs(request)) {
    Tensor& tensor = bundle.tensors[spec.name] = Tensor::dense(spec.dtype, spec.shape);
    Random random(request.seed +
                  fnv1a(std::as_bytes(std::span(spec.name, std::strlen(spec.name)))));
    if (spec.deviation != 0.0)
      draw(random, spec.deviation, spec.mean, tensor);
    else if (spec.mean != 0.0)
      tensor.fill(spec.mean);
  }
  for (std::int64_t n = 0; n < request.batch; ++n) {
    bundle.tensors.at("slots").set(n, static_cast<double>(request.batch - 1 - n));
    bundle.tensors.at("starts").set(n + 1, static_cast<double>((n + 1) * request.tokens));
  }
  Random random(request.seed);
  shuffle_rows(random, bundle.tensors.at("expert_row"));
  draw_inputs(request, 0, bundle);
  return bundle;
}

void draw_inputs(const Request& request, std::int64_t step, Bundle& tensors) {
  Random random(request.seed + 0x9E3779B97F4A7C15ULL * static_cast<std::uint64_t>(step + 1));
  draw(random, 1.0, 0.0, tensors.tensors.at("bank"));
  draw(random, 1.0, 0.0, tensors.tensors.at("prefix"));
  Tensor& slots = tensors.tensors.at("cache_slots");
  for (std::int64_t row = 0; row < request.rows(); ++row) {
    const std::int64_t position = request.context + step * request.growth() + row % request.tokens;
    slots.set(row, static_cast<double>(row / request.tokens * request.cache_rows() + position));
  }
}

}  // namespace k3::layer
