// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "contract/situ_mul_quant.h"
#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

struct Options {
  std::int64_t E = 0;  ///< 0: the dense form
  std::int64_t Tp = 5;
  std::int64_t N = 384;
  std::vector<std::int64_t> live = {};  ///< per expert; empty: drawn
  bool ue8m0 = false;
  bool transposed = false;
  bool swizzle = false;
  bool round_to_bf16 = false;
  const char* beta = "4";
  const char* linear_beta = "25";
};

/// One code step: 2^-3 of a value at most, 2^-9 among the subnormals. An activation that is off by
/// a relative d falls on the other side of a rounding boundary once in 1 / (12 d) values or so,
/// with an error of 0.08 then; the smallest tensors have a few hundred values.
Tolerance codes_within_a_step(double err_ratio) {
  return {.err_ratio = err_ratio, .atol = 0x1p-9, .rtol = 0x1p-3};
}

/// fp32 scales are as exact as the activation: 2^-17 on the CPU, 2^-10 with tanh.approx. Power-of-
/// two scales are equal, because no group's maximum is near a power of two (off_the_edges).
Case make_case(std::string name, bool quick, std::function<Bundle()> make, bool exact_scales) {
  const Tolerance cpu_scales = {.rtol = exact_scales ? 0.0 : 0x1p-17, .exact = exact_scales};
  const Tolerance cuda_scales = {.rtol = exact_scales ? 0.0 : 0x1p-10, .exact = exact_scales};
  return {.name = std::move(name),
          .quick = quick,
          .make = std::move(make),
          .tolerances = {{"output_q", codes_within_a_step(0.015)}, {"output_s", cpu_scales}},
          .cuda_tolerances = {{"output_q", codes_within_a_step(0.03)}, {"output_s", cuda_scales}}};
}

std::vector<std::int64_t> with_experts(const Options& o, std::vector<std::int64_t> axes) {
  if (o.E > 0) axes.insert(axes.begin(), o.E);
  return axes;
}

std::int64_t gate_column(const Options& o, std::int64_t c) {
  return o.swizzle ? c / 8 * 16 + c % 8 : c;
}
std::int64_t up_column(const Options& o, std::int64_t c) {
  return o.swizzle ? gate_column(o, c) + 8 : o.N + c;
}

double situ(const Options& o, double gate, double up) {
  const double beta = std::atof(o.beta);
  const double linear_beta = std::atof(o.linear_beta);
  return beta * std::tanh(gate / beta) / (1.0 + std::exp(-gate)) * linear_beta *
         std::tanh(up / linear_beta);
}

/// Moves the maximum of each group of a dense input away from where a UE8M0 scale goes up: there
/// two activations that are both right give different scales.
void off_the_edges(const Options& o, Tensor& input) {
  const std::int64_t rows = input.numel() / (2 * o.N);
  for (std::int64_t group = 0; group < rows * o.N / kSituGroup; ++group) {
    const std::int64_t row = group / (o.N / kSituGroup) * 2 * o.N;
    const std::int64_t begin = group % (o.N / kSituGroup) * kSituGroup;
    for (;;) {
      double amax = 0.0;
      std::int64_t at = 0;
      for (std::int64_t c = begin; c < begin + kSituGroup; ++c) {
        const double value = std::fabs(
            situ(o, input.get(row + gate_column(o, c)), input.get(row + up_column(o, c))));
        if (!(value > amax)) continue;
        amax = value;
        at = c;
      }
      const double exponent = std::log2(amax / 448.0);
      if (amax < 2e-10 || std::fabs(exponent - std::round(exponent)) > 0x1p-7) break;
      const std::int64_t up = row + up_column(o, at);
      input.set(up, 0.9 * input.get(up));
    }
  }
}

Bundle bundle_of(const Options& o, Tensor input, Random& random) {
  Bundle b;
  const std::int64_t G = o.N / kSituGroup;
  if (o.ue8m0) off_the_edges(o, input);
  b.tensors["input"] = std::move(input);
  if (o.E > 0) {
    std::vector<std::int64_t> live = o.live;
    for (std::int64_t e = static_cast<std::int64_t>(live.size()); e < o.E; ++e)
      live.push_back(e == 0         ? 0
                     : e == o.E - 1 ? o.Tp
                                    : static_cast<std::int64_t>(
                                          random.next() % static_cast<std::uint64_t>(o.Tp + 1)));
    b.tensors["masked_m"] = integers(DType::kI32, live);
  }
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, with_experts(o, {o.Tp, o.N}));
  b.tensors["output_s"] = o.transposed ? poisoned(DType::kI32, with_experts(o, {(G + 3) / 4, o.Tp}))
                                       : poisoned(DType::kF32, with_experts(o, {o.Tp, G}));
  b.scalars = {{"scale_ue8m0", o.ue8m0 ? "1" : "0"},
               {"transposed", o.transposed ? "1" : "0"},
               {"swizzle", o.swizzle ? "1" : "0"},
               {"round_to_bf16", o.round_to_bf16 ? "1" : "0"},
               {"beta", o.beta},
               {"linear_beta", o.linear_beta}};
  return b;
}

Bundle random_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Tensor input = normal(random, DType::kBF16, with_experts(o, {o.Tp, 2 * o.N}), 2.0);
  return bundle_of(o, std::move(input), random);
}

class Cases {
 public:
  void add(const std::string& name, const Options& o, std::function<void(Bundle&)> edit = {},
           bool quick = true) {
    const std::uint64_t seed = cases_.size() + 11;
    cases_.push_back(make_case(
        name, quick,
        [=] {
          Bundle b = random_bundle(o, seed);
          if (edit) edit(b);
          return b;
        },
        o.ue8m0));
  }
  void add_made(const std::string& name, const Options& o, std::function<Tensor()> input) {
    cases_.push_back(make_case(
        name, true,
        [=] {
          Random random(1);
          return bundle_of(o, input(), random);
        },
        o.ue8m0));
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

/// Dead rows hold NaN: whoever reads them shows it.
void nan_in_dead_rows(Bundle& b) {
  Tensor& input = b.tensors.at("input");
  const auto& shape = input.shape();
  const auto live = b.tensors.at("masked_m").values();
  for (std::int64_t e = 0; e < shape[0]; ++e)
    for (std::int64_t i = static_cast<std::int64_t>(live[e]) * shape[2]; i < shape[1] * shape[2];
         ++i)
      input.set(e * shape[1] * shape[2] + i, std::nan(""));
}

/// Other strides for one of the tensors, with gaps at the ends of rows and experts.
std::function<void(Bundle&)> padded(const char* name, std::int64_t row, std::int64_t expert,
                                    std::int64_t offset) {
  return [=](Bundle& b) {
    const Tensor& t = b.tensors.at(name);
    const auto& shape = t.shape();
    const std::int64_t pitch = shape.back() + row;
    std::vector<std::int64_t> strides = {pitch, 1};
    if (shape.size() == 3) strides.insert(strides.begin(), shape[1] * pitch + expert);
    Tensor other = Tensor::strided(t.dtype(), shape, strides, offset);
    if (t.dtype() == DType::kBF16)
      for (std::int64_t i = 0; i < t.numel(); ++i) other.set(i, t.get(i));
    else
      other.fill_bytes(std::byte{0xFF});
    b.tensors[name] = other;
  };
}

/// Each group is one gate and one up of the list, in one place or in all; gates that reach every
/// branch of the activation.
Tensor special_groups(const Options& o) {
  const double inf = std::numeric_limits<double>::infinity();
  const double gates[] = {0.0,   -0.0,  inf,   -inf,  std::nan(""), 1e-3,   1e-40, -1e-40,
                          0.01,  -0.03, 0.032, -1.0,  4.0,          -6.0,   20.0,  -15.0,
                          -21.0, -30.0, -60.0, -88.0, -100.0,       -500.0, 3e38,  -3e38};
  const double ups[] = {0.0, -0.0, inf, -inf, std::nan(""), 1e-30, 1e-4, -1.0, 24.0, 1e4, -3e38};
  Tensor input = Tensor::dense(DType::kBF16, {o.Tp, 2 * o.N});
  std::int64_t kind = 0;
  for (std::int64_t row = 0; row < o.Tp; ++row)
    for (std::int64_t begin = 0; begin < o.N; begin += kSituGroup, ++kind) {
      const double gate = gates[kind % std::size(gates)];
      const double up = ups[kind / std::size(gates) % std::size(ups)];
      const bool everywhere = kind / (std::size(gates) * std::size(ups)) == 0;
      for (std::int64_t c = begin; c < begin + kSituGroup; ++c) {
        const bool special = everywhere || c % 128 == kind % 128;
        input.set(row * 2 * o.N + gate_column(o, c), special ? gate : 0.5 + 0.01 * (c % 128));
        input.set(row * 2 * o.N + up_column(o, c), special ? up : 1.5 - 0.01 * (c % 128));
      }
    }
  return input;
}

/// All 65,536 bf16 gates, each group of 128 with one of the ups.
Tensor every_gate(const Options& o) {
  Tensor input = Tensor::dense(DType::kBF16, {o.Tp, 2 * o.N});
  auto* bits = reinterpret_cast<std::uint16_t*>(input.storage());
  for (std::int64_t i = 0; i < o.Tp * o.N; ++i) {
    const std::int64_t row = i / o.N * 2 * o.N;
    const std::int64_t c = i % o.N;
    bits[row + gate_column(o, c)] = static_cast<std::uint16_t>(i);
    input.set(row + up_column(o, c), i % 2 == 0 ? 3.5 : -30.0);
  }
  return input;
}

}  // namespace

std::vector<Case> situ_mul_quant_cases() {
  Cases cases;
  const Options served = {.E = 8, .Tp = 32, .N = 1024, .ue8m0 = true, .transposed = true};
  cases.add("served", served, nan_in_dead_rows);
  for (std::int64_t M : {0, 1, 2, 17}) {
    cases.add("dense_" + std::to_string(M) + "x3072", {.Tp = M, .N = 3072});
    cases.add("dense_" + std::to_string(M) + "x768_rounded",
              {.Tp = M, .N = 768, .ue8m0 = true, .round_to_bf16 = true});
  }
  cases.add("dense_3x33792", {.Tp = 3, .N = 33792});
  cases.add("no_columns", {.Tp = 3, .N = 0});
  cases.add("no_experts", {.E = 1, .Tp = 0, .N = 128, .live = {0}});
  for (std::int64_t N : {128, 256, 640, 1152, 3200})
    cases.add("masked_5x7x" + std::to_string(N), {.E = 5, .Tp = 7, .N = N}, nan_in_dead_rows);
  for (bool swizzle : {false, true})
    for (bool ue8m0 : {false, true})
      for (bool transposed : {false, true}) {
        if (transposed && !ue8m0) continue;
        const std::string name = std::string(ue8m0 ? "ue8m0" : "fp32") +
                                 (transposed ? "_transposed" : "") + (swizzle ? "_swizzle" : "");
        Options o = {.E = 6,
                     .Tp = 11,
                     .N = 896,
                     .ue8m0 = ue8m0,
                     .transposed = transposed,
                     .swizzle = swizzle};
        cases.add("masked_" + name, o, nan_in_dead_rows);
        o.E = 0;
        cases.add("dense_" + name, o);
        o.round_to_bf16 = true;
        cases.add("dense_rounded_" + name, o);
      }
  cases.add("all_dead", {.E = 4, .Tp = 9, .N = 256, .live = {0, 0, 0, 0}}, nan_in_dead_rows);
  cases.add("all_live", {.E = 4, .Tp = 9, .N = 256, .live = {9, 9, 9, 9}});
  cases.add("one_live_row", {.E = 4, .Tp = 9, .N = 256, .live = {0, 0, 1, 0}}, nan_in_dead_rows);
  cases.add("one_expert", {.E = 1, .Tp = 64, .N = 256, .live = {63}}, nan_in_dead_rows);
  cases.add("experts_896", {.E = 896, .Tp = 3, .N = 128, .ue8m0 = true, .transposed = true},
            nan_in_dead_rows);
  cases.add("experts_9000", {.E = 9000, .Tp = 1, .N = 128}, nan_in_dead_rows);
  cases.add("large", {.E = 8, .Tp = 256, .N = 3072, .ue8m0 = true, .transposed = true},
            nan_in_dead_rows, false);

  const Options strided = {.E = 3, .Tp = 6, .N = 384};
  cases.add("input_with_gaps", strided, padded("input", 16, 8, 8));
  cases.add("input_odd_pitch", strided, padded("input", 3, 0, 0));
  cases.add("input_off_by_one", strided, padded("input", 8, 0, 1));
  cases.add("codes_with_gaps", strided, padded("output_q", 8, 16, 8));
  cases.add("codes_off_by_one", strided, padded("output_q", 8, 0, 1));
  cases.add("scales_with_gaps", strided, padded("output_s", 2, 5, 1));
  const Options packed = {.E = 3, .Tp = 6, .N = 640, .ue8m0 = true, .transposed = true};
  cases.add("words_with_gaps", packed, padded("output_s", 2, 5, 1));

  for (bool swizzle : {false, true}) {
    const Options o = {.Tp = 64, .N = 1024, .swizzle = swizzle};
    const std::string suffix = swizzle ? "_swizzle" : "";
    cases.add_made("specials" + suffix, o, [=] { return special_groups(o); });
    cases.add_made("every_gate" + suffix, o, [=] { return every_gate(o); });
  }
  const Options ue8m0 = {.Tp = 64, .N = 1024, .ue8m0 = true};
  cases.add_made("every_gate_ue8m0", ue8m0, [=] { return every_gate(ue8m0); });
  cases.add("betas_1_and_3", {.Tp = 9, .N = 256, .beta = "1", .linear_beta = "3"});
  cases.add("negative_betas", {.Tp = 9, .N = 256, .beta = "-3", .linear_beta = "-0.5"});
  cases.add("large_betas", {.Tp = 9, .N = 256, .beta = "1000", .linear_beta = "1e7"});
  cases.add("beta_4_large_linear", {.Tp = 9, .N = 256, .beta = "4", .linear_beta = "1e30"});
  return cases.take();
}

}  // namespace k3::harness
