// SPDX-License-Identifier: Apache-2.0
#include "tests/k3_layer/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/bf16.h"
#include "cpu/parallel.h"
#include "oracle/kda_gate.h"

namespace k3::layer {
namespace {

using harness::Bundle;
using harness::Tensor;
using Values = Reference::Values;
using oracle::sigmoid;

constexpr double kEps = 1e-5;
constexpr std::int64_t kD = kHeadDim;

const Tensor& at(const Bundle& tensors, const std::string& name) {
  return tensors.tensors.at(name);
}

/// x [rows, K] w [N, K]^T
Values product(const Values& x, const Tensor& w) {
  constexpr int kChains = 8;
  const std::int64_t N = w.shape()[0];
  const std::int64_t K = w.shape()[1];
  const auto rows = static_cast<std::int64_t>(x.size()) / K;
  const auto* const weights = reinterpret_cast<const bf16*>(w.storage());
  Values out(static_cast<std::size_t>(rows * N));
  cpu::parallel_for(N, cpu::max_threads(), [&](std::int64_t n, int) {
    for (std::int64_t r = 0; r < rows; ++r) {
      double sums[kChains] = {};
      for (std::int64_t k = 0; k < K; k += kChains)
        for (int i = 0; i < kChains; ++i)
          sums[i] += x[r * K + k + i] * static_cast<double>(to_float(weights[n * K + k + i]));
      for (const double sum : sums) out[r * N + n] += sum;
    }
  });
  return out;
}

/// Columns [begin, end) of rows of `width`.
Values columns(const Values& x, std::int64_t width, std::int64_t begin, std::int64_t end) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(width))
    out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(row) + begin,
               x.begin() + static_cast<std::ptrdiff_t>(row) + end);
  return out;
}

Values rms_norm(Values x, const Tensor& weight) {
  const std::int64_t width = weight.numel();
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(width)) {
    double squares = 0.0;
    for (std::int64_t i = 0; i < width; ++i) squares += x[row + i] * x[row + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (std::int64_t i = 0; i < width; ++i) x[row + i] *= scale * weight.get(i);
  }
  return x;
}

Values sum(const Values& a, const Values& b) {
  Values out = a;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

/// 4 tanh(a / 4) sigmoid(a) * 25 tanh(b / 25) of rows [a | b].
Values situ(const Values& x, std::int64_t width) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(2 * width))
    for (std::int64_t i = 0; i < width; ++i) {
      const double a = x[row + i];
      const double b = x[row + width + i];
      out.push_back(4.0 * std::tanh(a / 4.0) * sigmoid(a) * 25.0 * std::tanh(b / 25.0));
    }
  return out;
}

}  // namespace

Reference::Reference(const Request& request, const Bundle& tensors)
    : state(at(tensors, "state").values()),
      conv_states(at(tensors, "conv_states").values()),
      r_(request),
      s_(request.sizes) {}

void Reference::step(const Bundle& tensors, double tie) {
  kda(tensors);
  experts(tensors, tie);
  mla(tensors);
}

Values Reference::mixture(const Bundle& tensors, const std::string& name,
                          const Values& prefix) const {
  const std::int64_t H = s_.hidden;
  const std::int64_t n = s_.bank_rows;
  const Values bank = at(tensors, "bank").values();
  const Values norm = at(tensors, name + "_score_norm").values();
  const Values proj = at(tensors, name + "_score_proj").values();
  Values mixed(prefix.size());
  for (std::int64_t r = 0; r < r_.rows(); ++r) {
    const auto row = [&](std::int64_t j) {
      return j < n ? &bank[(r * n + j) * H] : &prefix[r * H];
    };
    Values weights;
    double total = 0.0;
    for (std::int64_t j = 0; j <= n; ++j) {
      double dot = 0.0;
      double squares = 0.0;
      for (std::int64_t i = 0; i < H; ++i) {
        dot += row(j)[i] * norm[i] * proj[i];
        squares += row(j)[i] * row(j)[i];
      }
      weights.push_back(std::exp(dot / std::sqrt(squares / static_cast<double>(H) + kEps)));
      total += weights.back();
    }
    for (std::int64_t j = 0; j <= n; ++j)
      for (std::int64_t i = 0; i < H; ++i) mixed[r * H + i] += weights[j] / total * row(j)[i];
  }
  return rms_norm(std::move(mixed), at(tensors, name + "_norm"));
}

void Reference::kda(const Bundle& tensors) {
  const Values prefix = at(tensors, "prefix").values();
  kda_x = mixture(tensors, "kda", prefix);
  const Values qkvg = product(kda_x, at(tensors, "w_qkvg"));
  const Values forget_beta = product(kda_x, at(tensors, "w_forget_beta"));
  forget = product(columns(forget_beta, s_.forget_beta(), 0, kD), at(tensors, "w_forget"));
  kda_out.assign(static_cast<std::size_t>(r_.rows() * s_.inner()), 0.0);
  for (std::int64_t row = 0; row < r_.rows(); ++row) kda_token(tensors, row, qkvg, forget_beta);
  prefix_kda = sum(prefix, product(kda_out, at(tensors, "w_kda_out")));
}

void Reference::kda_token(const Bundle& tensors, std::int64_t row, const Values& qkvg,
                          const Values& forget_beta) {
  const std::int64_t C = s_.channels();
  const Tensor& weight = at(tensors, "conv_weight");
  const auto slot = static_cast<std::int64_t>(at(tensors, "slots").get(row / r_.tokens));
  double* const window = &conv_states[slot * (kConvTaps - 1) * C];
  const double* const raw = &qkvg[row * 4 * s_.inner()];
  Values qkv;
  for (std::int64_t c = 0; c < C; ++c) {
    double y = raw[c] * weight.get(3 * C + c);
    for (std::int64_t w = 0; w < kConvTaps - 1; ++w) y += window[w * C + c] * weight.get(w * C + c);
    qkv.push_back(y * sigmoid(y));
    window[c] = window[C + c];
    window[C + c] = window[2 * C + c];
    window[2 * C + c] = raw[c];
  }
  for (std::int64_t h = 0; h < s_.heads; ++h)
    kda_head(tensors, row, h, qkv, sigmoid(forget_beta[row * s_.forget_beta() + kD + h]),
             raw + C + h * kD);
}

void Reference::kda_head(const Bundle& tensors, std::int64_t row, std::int64_t head,
                         const Values& qkv, double beta, const double* gate) {
  const auto unit = [&](std::int64_t begin) {
    Values x(qkv.begin() + begin, qkv.begin() + begin + kD);
    double squares = 1e-6;
    for (const double value : x) squares += value * value;
    for (double& value : x) value /= std::sqrt(squares);
    return x;
  };
  const Values q = unit(head * kD);
  const Values k = unit(s_.inner() + head * kD);
  const double* const v = &qkv[2 * s_.inner() + head * kD];
  const double a = std::exp(at(tensors, "A_log").get(head));
  const Tensor& bias = at(tensors, "dt_bias");
  Values decay;
  for (std::int64_t d = 0; d < kD; ++d) {
    const double x = forget[row * s_.inner() + head * kD + d] + bias.get(head * kD + d);
    decay.push_back(std::exp(-5.0 * sigmoid(a * x)));
  }
  const auto slot = static_cast<std::int64_t>(at(tensors, "slots").get(row / r_.tokens));
  double* const S = &state[(slot * s_.heads + head) * kD * kD];  // [V, K]
  Values o;
  double squares = 0.0;
  for (std::int64_t i = 0; i < kD; ++i) {
    double* const s = S + i * kD;
    double known = 0.0;
    for (std::int64_t d = 0; d < kD; ++d) known += (s[d] *= decay[d]) * k[d];
    double sum = 0.0;
    for (std::int64_t d = 0; d < kD; ++d) sum += (s[d] += beta * (v[i] - known) * k[d]) * q[d];
    o.push_back(sum / std::sqrt(static_cast<double>(kD)));
    squares += o.back() * o.back();
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(kD) + kEps);
  for (std::int64_t i = 0; i < kD; ++i)
    kda_out[row * s_.inner() + head * kD + i] =
        o[i] * scale * at(tensors, "kda_out_norm").get(i) * sigmoid(gate[i]);
}

void Reference::choose(const Bundle& tensors, const double* scores, std::int64_t row, double tie) {
  const std::int64_t k = s_.topk;
  std::vector<bool> chosen(static_cast<std::size_t>(s_.experts));
  double total = 0.0;
  for (std::int64_t j = 0; j < k; ++j) {
    const auto id = static_cast<std::int64_t>(at(tensors, "topk_ids").get(row * k + j));
    if (id < 0 || id >= s_.experts || chosen[id]) throw std::runtime_error("not k experts");
    chosen[id] = true;
    topk_weights.push_back(sigmoid(scores[id]));
    total += topk_weights.back();
  }
  for (std::int64_t j = 0; j < k; ++j) topk_weights[row * k + j] /= total;
  double lowest_chosen = HUGE_VAL;
  double highest_other = -HUGE_VAL;
  for (std::int64_t e = 0; e < s_.experts; ++e) {
    const double biased = sigmoid(scores[e]) + at(tensors, "router_bias").get(e);
    if (chosen[e])
      lowest_chosen = std::min(lowest_chosen, biased);
    else
      highest_other = std::max(highest_other, biased);
  }
  if (lowest_chosen < highest_other - tie) throw std::runtime_error("another expert is better");
}

void Reference::experts(const Bundle& tensors, double tie) {
  const std::int64_t k = s_.topk;
  const std::int64_t width = s_.experts + s_.latent;
  moe_x = mixture(tensors, "moe", prefix_kda);
  const Values front = product(moe_x, at(tensors, "w_front"));
  latent = columns(front, width, s_.experts, width);
  topk_weights.clear();
  for (std::int64_t row = 0; row < r_.rows(); ++row) choose(tensors, &front[row * width], row, tie);
  expert_act = situ(at(tensors, "expert_gate_up").values(), s_.expert_width);

  const Values rows = at(tensors, "expert_rows").values();
  routed.assign(static_cast<std::size_t>(r_.rows() * s_.latent), 0.0);
  for (std::int64_t slot = 0; slot < r_.rows() * k; ++slot) {
    const auto from = static_cast<std::int64_t>(at(tensors, "expert_row").get(slot));
    for (std::int64_t i = 0; i < s_.latent; ++i)
      routed[slot / k * s_.latent + i] += topk_weights[slot] * rows[from * s_.latent + i];
  }
  const Values up = product(rms_norm(routed, at(tensors, "latent_norm")), at(tensors, "w_up"));
  const Values shared = product(situ(product(moe_x, at(tensors, "w_shared")), s_.shared_width),
                                at(tensors, "w_shared_down"));
  prefix_moe = sum(sum(up, shared), prefix_kda);
}

void Reference::mla(const Bundle& tensors) {
  const std::int64_t cached = s_.kv_rank + s_.rope;
  const std::int64_t width = s_.q_rank + cached;
  const Values x = mixture(tensors, "mla", prefix_moe);
  const Values latents = product(x, at(tensors, "w_latents"));
  const Values kv =
      rms_norm(columns(latents, width, s_.q_rank, s_.q_rank + s_.kv_rank), at(tensors, "kv_norm"));
  const Values q = product(rms_norm(columns(latents, width, 0, s_.q_rank), at(tensors, "q_norm")),
                           at(tensors, "w_q"));
  const Values absorbed = at(tensors, "absorbed_q").values();
  kv_row.clear();
  q_out.clear();
  for (std::int64_t r = 0; r < r_.rows(); ++r) {
    kv_row.insert(kv_row.end(), &kv[r * s_.kv_rank], &kv[r * s_.kv_rank] + s_.kv_rank);
    const double* const rope = &latents[r * width + s_.q_rank + s_.kv_rank];
    kv_row.insert(kv_row.end(), rope, rope + s_.rope);
    for (std::int64_t h = 0; h < s_.heads; ++h) {
      const double* const first = &absorbed[(r * s_.heads + h) * s_.kv_rank];
      const double* const second = &q[(r * s_.heads + h) * (kD + s_.rope) + kD];
      q_out.insert(q_out.end(), first, first + s_.kv_rank);
      q_out.insert(q_out.end(), second, second + s_.rope);
    }
  }
  const Values gate = product(x, at(tensors, "w_mla_gate"));
  mla_out = at(tensors, "attention").values();
  for (std::size_t i = 0; i < mla_out.size(); ++i) mla_out[i] *= sigmoid(gate[i]);
  out = sum(prefix_moe, product(mla_out, at(tensors, "w_mla_out")));
}

}  // namespace k3::layer
