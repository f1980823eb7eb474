// SPDX-License-Identifier: Apache-2.0
#include "examples/k3_layer/program.h"

#include <map>
#include <utility>

#include "examples/k3_layer/drivers.h"
#include "k3/ops/tiny_gemm.h"

namespace k3::layer {
namespace {

using harness::Bundle;
using harness::Driver;
using harness::Tensor;
using Tensors = std::map<std::string, Tensor>;
using Scalars = std::map<std::string, std::string>;

/// Columns [begin, end) of a matrix.
Tensor columns(const Tensor& matrix, std::int64_t begin, std::int64_t end) {
  return matrix.alias({matrix.shape()[0], end - begin}, {matrix.strides()[0], 1}, begin);
}

/// [T, H * 128] as [1, T, H, 128].
Tensor sequences(const Tensor& rows) {
  const std::int64_t T = rows.shape()[0];
  const std::int64_t row = rows.strides()[0];
  return rows.alias({1, T, rows.shape()[1] / kHeadDim, kHeadDim}, {T * row, row, kHeadDim, 1});
}

/// [T, n] as [1, T, n].
Tensor one_batch(const Tensor& rows) {
  const std::int64_t row = rows.strides()[0];
  return rows.alias({1, rows.shape()[0], rows.shape()[1]}, {rows.shape()[0] * row, row, 1});
}

class Builder {
 public:
  Builder(const Request& request, const Bundle& tensors, bool fused)
      : r_(request), s_(request.sizes), t_(tensors.tensors), fused_(fused) {}

  Ops build() {
    kda();
    experts();
    mla();
    return std::move(ops_);
  }

 private:
  [[nodiscard]] const Tensor& at(const std::string& name) const { return t_.at(name); }

  void add(Part part, const char* label, const char* op, Tensors tensors, Scalars scalars = {}) {
    add(part, label, *harness::find_driver(op), std::move(tensors), std::move(scalars));
  }
  void add(Part part, const char* label, const Driver& driver, Tensors tensors,
           Scalars scalars = {}) {
    ops_.push_back({part, label, &driver, {std::move(tensors), std::move(scalars)}});
  }

  /// `name` stands for a sublayer, the first part of its tensors' names.
  void mixture(Part part, const char* label, const std::string& name, const Tensor& prefix) {
    add(part, label, "attn_res_mix",
        {{"bank", at("bank")},
         {"prefix", prefix},
         {"score_norm_weight", at(name + "_score_norm")},
         {"score_proj", at(name + "_score_proj")},
         {"out_norm_weight", at(name + "_norm")},
         {"out", at(name + "_x")}},
        {{"num_bank_rows", std::to_string(s_.bank_rows)}, {"eps", "1e-5"}, {"write_prefix", "0"}});
  }

  /// RMS norm: a mixture of nothing but its prefix.
  void rms_norm(Part part, const char* label, const Tensor& x, const Tensor& weight,
                const Tensor& out) {
    add(part, label, "attn_res_mix",
        {{"bank", Tensor::dense(DType::kBF16, {x.shape()[0], 0, x.shape()[1]})},
         {"prefix", x},
         {"score_weight", weight},
         {"out_norm_weight", weight},
         {"out", out}},
        {{"num_bank_rows", "0"}, {"eps", "1e-5"}, {"write_prefix", "0"}});
  }

  /// Up to 16 rows by an op whose rows have the same bits whatever the others are, so that a draft
  /// is verified with the bits of a decode; more by the matrix library.
  void product(Part part, const char* label, const Tensor& x, const Tensor& w, const Tensor& out) {
    const bool tiny = x.shape()[0] <= kTinyGemmMaxRows;
    const bool by_op = tiny && !(part == Part::kDense && r_.dense_by_library);
    add(tiny ? part : Part::kDense, label,
        by_op ? *harness::find_driver("tiny_gemm") : matrix_product_driver(),
        {{"x", x}, {"w", w}, {"out", out}});
  }

  /// out = bf16(a + b)
  void residual(const char* label, const Tensor& a, const Tensor& b, const Tensor& out) {
    add(Part::kResidual, label, "add3",
        {{"a", a}, {"b", b}, {"c", at("zeros").alias(a.shape(), {0, 1})}, {"out", out}});
  }

  void kda() {
    mixture(Part::kKda, "KDA mixture", "kda", at("prefix"));
    product(Part::kDense, "q, k, v, gate", at("kda_x"), at("w_qkvg"), at("qkvg"));
    product(Part::kKda, "forget, beta", at("kda_x"), at("w_forget_beta"), at("forget_beta"));
    product(Part::kKda, "forget gate", columns(at("forget_beta"), 0, kHeadDim), at("w_forget"),
            at("forget"));
    if (r_.mode == Mode::kDecode && fused_)
      add(Part::kKda, "decode", "kda_fused_decode", with_norm(step_tensors()), step_scalars());
    else if (r_.mode == Mode::kDecode)
      decode_chain();
    else if (r_.mode == Mode::kVerify)
      verify_and_commit();
    else
      prefill();
    product(Part::kDense, "KDA out", at("kda_out"), at("w_kda_out"), at("kda_y"));
    residual("KDA residual", at("prefix"), at("kda_y"), at("prefix_kda"));
  }

  [[nodiscard]] Tensor raw_qkv() const { return columns(at("qkvg"), 0, s_.channels()); }
  [[nodiscard]] Tensor output_gate() const {
    return columns(at("qkvg"), s_.channels(), 4 * s_.inner());
  }
  [[nodiscard]] Tensor beta() const {
    return columns(at("forget_beta"), kHeadDim, kHeadDim + s_.heads);
  }

  /// What each form of a step from token to token takes.
  [[nodiscard]] Tensors step_tensors() const {
    return {{"mixed_qkv", raw_qkv()},
            {"conv_states", at("conv_states")},
            {"conv_weight", at("conv_weight")},
            {"g", at("forget")},
            {"beta", beta()},
            {"A_log", at("A_log")},
            {"dt_bias", at("dt_bias")},
            {"state", at("state")},
            {"state_indices", at("slots")}};
  }
  [[nodiscard]] Tensors with_norm(Tensors tensors) const {
    tensors["onorm_gate"] = output_gate();
    tensors["onorm_weight"] = at("kda_out_norm");
    tensors["out"] = at("kda_out");
    return tensors;
  }
  [[nodiscard]] static Scalars step_scalars() { return {{"lower_bound", "-5"}}; }

  void short_conv() {
    add(Part::kKda, "convolution", short_conv_driver(),
        {{"in", raw_qkv()},
         {"conv_states", at("conv_states")},
         {"weight", at("conv_weight")},
         {"state_indices", at("slots")},
         {"out", at("kda_qkv")}});
  }
  void output_norm() {
    add(Part::kKda, "output norm", "kda_output_norm",
        {{"raw", at("kda_raw")},
         {"gate", output_gate()},
         {"weight", at("kda_out_norm")},
         {"out", at("kda_out")}},
        {{"eps", "1e-5"}});
  }

  void decode_chain() {
    short_conv();
    Tensors tensors = step_tensors();
    tensors.erase("conv_states");
    tensors.erase("conv_weight");
    tensors["mixed_qkv"] = at("kda_qkv");
    tensors["out"] = at("kda_raw");
    add(Part::kKda, "decode", "kda_packed_decode", std::move(tensors), step_scalars());
    output_norm();
  }

  void verify_and_commit() {
    Tensors tensors = with_norm(step_tensors());
    tensors["query_start_loc"] = at("starts");
    for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta", "conv_scratch"})
      tensors[name] = at(name);
    Scalars scalars = step_scalars();
    scalars["max_query_len"] = std::to_string(r_.tokens);
    add(Part::kKda, "verify", "kda_verify", std::move(tensors), std::move(scalars));
    tensors = {{"state_indices", at("slots")}};
    for (const char* name : {"state", "ring_k", "ring_v", "ring_g", "ring_beta", "accept_lens",
                             "conv_states", "conv_scratch"})
      tensors[name] = at(name);
    add(Part::kKda, "commit", "kda_replay_commit", std::move(tensors));
  }

  void prefill() {
    const std::int64_t inner = s_.inner();
    const Tensor& qkv = at("kda_qkv");
    short_conv();
    add(Part::kKda, "prefill", "kda_prefill",
        {{"q", sequences(columns(qkv, 0, inner))},
         {"k", sequences(columns(qkv, inner, 2 * inner))},
         {"v", sequences(columns(qkv, 2 * inner, 3 * inner))},
         {"g", one_batch(at("forget"))},
         {"beta", one_batch(beta())},
         {"A_log", at("A_log")},
         {"dt_bias", at("dt_bias")},
         {"cu_seqlens", at("starts")},
         {"initial_state", at("state")},
         {"final_state", at("state")},
         {"state_indices", at("slots")},
         {"out", sequences(at("kda_raw"))}},
        {{"lower_bound", "-5"},
         {"qk_l2norm", "1"},
         {"gate_in_kernel", "1"},
         {"beta_sigmoid", "1"}});
    output_norm();
  }

  void experts() {
    mixture(Part::kExperts, "MoE mixture", "moe", at("prefix_kda"));
    product(Part::kDense, "router, latent", at("moe_x"), at("w_front"), at("front"));
    route();
    activate_experts();
    add(Part::kExperts, "combine", "moe_finalize",
        {{"experts_out", at("expert_rows")},
         {"idx", at("expert_row")},
         {"topk_weights", at("topk_weights")},
         {"out", at("routed")}});
    rms_norm(Part::kExperts, "latent norm", at("routed"), at("latent_norm"), at("routed_x"));
    product(Part::kDense, "latent up", at("routed_x"), at("w_up"), at("up"));
    product(Part::kDense, "shared gate, up", at("moe_x"), at("w_shared"), at("shared_gate_up"));
    activate(at("shared_gate_up"), at("shared_act"), "shared SiTU");
    product(Part::kDense, "shared down", at("shared_act"), at("w_shared_down"), at("shared"));
    add(Part::kExperts, "MoE sum, residual", "add3",
        {{"a", at("up")}, {"b", at("shared")}, {"c", at("prefix_kda")}, {"out", at("prefix_moe")}});
  }

  void route() {
    const Tensor& front = at("front");
    const Tensor scores = columns(front, 0, s_.experts);
    const Tensor latent = columns(front, s_.experts, s_.experts + s_.latent);
    Tensors router = {{"scores", scores},
                      {"bias", at("router_bias")},
                      {"topk_weights", at("topk_weights")},
                      {"topk_ids", at("topk_ids")}};
    const std::string topk = std::to_string(s_.topk);
    if (!fused_) {
      add(Part::kExperts, "route", "moe_route_topk", std::move(router), {{"topk", topk}});
      add(Part::kExperts, "pack", "moe_pack_topk",
          {{"topk_ids", at("topk_ids")},
           {"topk_weights", at("topk_weights")},
           {"packed", at("packed_topk")}});
      quantise("quantise latent", latent, at("latent_codes"), at("latent_scales"));
      return;
    }
    router["x"] = latent;
    router["packed"] = at("packed_topk");
    router["x_q"] = at("latent_codes");
    router["x_s"] = at("latent_scales");
    add(Part::kExperts, "route, quantise", "moe_route_quant", std::move(router),
        {{"topk", topk}, {"group_size", std::to_string(kQuantGroup)}});
  }

  void activate(const Tensor& input, const Tensor& out, const char* label) {
    add(Part::kExperts, label, "situ_and_mul", {{"input", input}, {"out", out}},
        {{"beta", "4"}, {"linear_beta", "25"}});
  }
  void quantise(const char* label, const Tensor& input, const Tensor& codes, const Tensor& scales) {
    add(Part::kExperts, label, "per_token_group_quant",
        {{"input", input}, {"output_q", codes}, {"output_s", scales}},
        {{"group_size", std::to_string(kQuantGroup)}, {"scale_ue8m0", "1"}});
  }

  /// The fused op has groups of 128 alone, which narrow slices of an expert do not fill.
  void activate_experts() {
    constexpr std::int64_t kFusedGroup = 128;
    const Tensor& codes = at("expert_codes");
    if (!fused_ || s_.expert_width % kFusedGroup != 0) {
      activate(at("expert_gate_up"), at("expert_act"), "expert SiTU");
      quantise("quantise experts", at("expert_act"), codes, at("expert_scales"));
      return;
    }
    const std::int64_t rows = codes.shape()[0];
    const std::int64_t words = (s_.expert_width / kFusedGroup + 3) / 4;
    add(Part::kExperts, "expert SiTU, quantise", "situ_mul_quant",
        {{"input", at("expert_gate_up")},
         {"output_q", codes},
         {"output_s", at("expert_scales").alias({words, rows}, {rows, 1})}},
        {{"scale_ue8m0", "1"}, {"transposed", "1"}});
  }

  void mla() {
    const Tensor& latents = at("latents");
    const std::int64_t cached = s_.q_rank + s_.kv_rank;
    const Tensor& q = at("q");
    mixture(Part::kMla, "MLA mixture", "mla", at("prefix_moe"));
    product(Part::kDense, "q, kv latents", at("mla_x"), at("w_latents"), latents);
    rms_norm(Part::kMla, "q norm", columns(latents, 0, s_.q_rank), at("q_norm"), at("q_latent"));
    rms_norm(Part::kMla, "kv norm", columns(latents, s_.q_rank, cached), at("kv_norm"),
             at("kv_latent"));
    product(Part::kDense, "queries", at("q_latent"), at("w_q"),
            q.alias({r_.rows(), q.strides()[0]}, {q.strides()[0], 1}));
    add(Part::kMla, "cache write", "mla_cache_write_concat_q",
        {{"kv_buffer", at("kv_cache")},
         {"slot_mapping", at("cache_slots")},
         {"k_nope", at("kv_latent")},
         {"k_rope", columns(latents, cached, cached + s_.rope)},
         {"q_nope", at("absorbed_q")},
         {"q_rope", q.alias({r_.rows(), s_.heads, s_.rope}, q.strides(), kHeadDim)},
         {"q_out", at("q_out")}});
    product(Part::kDense, "MLA gate", at("mla_x"), at("w_mla_gate"), at("mla_gate"));
    add(Part::kMla, "output gate", "mla_output_gate",
        {{"x", at("attention")}, {"gate", at("mla_gate")}, {"out", at("mla_out")}});
    product(Part::kDense, "MLA out", at("mla_out"), at("w_mla_out"), at("mla_y"));
    residual("MLA residual", at("prefix_moe"), at("mla_y"), at("out"));
  }

  const Request& r_;
  const Sizes& s_;
  const Tensors& t_;
  bool fused_;
  Ops ops_;
};

}  // namespace

const char* name_of(Part part) {
  switch (part) {
    case Part::kKda:
      return "KDA";
    case Part::kExperts:
      return "MoE";
    case Part::kMla:
      return "MLA";
    case Part::kResidual:
      return "residual";
    case Part::kDense:
      return "dense";
  }
  return "unknown";
}

Ops step_ops(const Request& request, const Bundle& tensors, bool fused) {
  return Builder(request, tensors, fused).build();
}

}  // namespace k3::layer
