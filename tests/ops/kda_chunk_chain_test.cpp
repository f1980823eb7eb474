// SPDX-License-Identifier: Apache-2.0
// kda_chunk_inverse, then kda_recompute_wu, then the recurrence over chunks in double precision:
// together they are kda_prefill.
#include <cmath>
#include <vector>

#include "harness/compare.h"
#include "k3/ops/kda_chunk_inverse.h"
#include "k3/ops/kda_recompute_wu.h"
#include "oracle/oracle.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kC = 64;
constexpr std::int64_t kD = 128;
using Vector = std::vector<double>;

/// A call of kda_prefill with gates and learning rates given, keys of about unit length.
Bundle prefill(std::int64_t T, std::int64_t H, std::int64_t HV) {
  Random random(5);
  Bundle b;
  const double unit = 1.0 / std::sqrt(double{kD});
  for (const char* name : {"q", "k"})
    b.tensors[name] = normal(random, DType::kBF16, {1, T, H, kD}, unit);
  b.tensors["v"] = normal(random, DType::kBF16, {1, T, HV, kD});
  b.tensors["g"] = uniform(random, DType::kF32, {1, T, HV, kD}, -0.2, 0.0);
  b.tensors["beta"] = uniform(random, DType::kF32, {1, T, HV}, 0.1, 1.0);
  b.tensors["initial_state"] = normal(random, DType::kF32, {1, HV, kD, kD}, 0.5);
  b.tensors["out"] = poisoned(DType::kBF16, {1, T, HV, kD});
  b.tensors["final_state"] = poisoned(DType::kF32, {1, HV, kD, kD});
  b.scalars["state_layout"] = "N,HV,K,V";
  b.scalars["scale"] = "0.25";
  return b;
}
constexpr double kScale = 0.25;

/// The chunked form of one prefill: every tensor of the two ops, over whole chunks.
class Chain {
 public:
  explicit Chain(const Bundle& prefill)
      : b_(prefill),
        T_(prefill.tensors.at("v").shape()[1]),
        H_(prefill.tensors.at("k").shape()[2]),
        HV_(prefill.tensors.at("v").shape()[2]),
        chunks_((T_ + kC - 1) / kC) {
    cumulate();
    make_inverse();
    make_factors();
  }

  [[nodiscard]] std::int64_t heads() const { return HV_; }
  [[nodiscard]] std::int64_t tokens() const { return T_; }

  /// Writes out [T, HV, D] and the final S [HV, K, V]: O = Q S + Aqk N with N = U - W S, then S.
  void recur(Vector& out, Vector& S) const {
    for (std::int64_t hv = 0; hv < HV_; ++hv)
      for (std::int64_t first = 0; first < T_; first += kC)
        advance(hv, first, std::min(kC, T_ - first), out, S);
  }

 private:
  [[nodiscard]] std::int64_t row(std::int64_t t, std::int64_t hv) const { return t * HV_ + hv; }
  [[nodiscard]] double k(std::int64_t t, std::int64_t hv, std::int64_t d) const {
    return b_.tensors.at("k").get((t * H_ + hv / (HV_ / H_)) * kD + d);
  }
  [[nodiscard]] double q(std::int64_t t, std::int64_t hv, std::int64_t d) const {
    return kScale * b_.tensors.at("q").get((t * H_ + hv / (HV_ / H_)) * kD + d);
  }
  [[nodiscard]] double G(std::int64_t t, std::int64_t hv, std::int64_t d) const {
    return G_.get(row(t, hv) * kD + d);
  }

  void cumulate() {
    G_ = Tensor::dense(DType::kF32, {1, T_, HV_, kD});
    for (std::int64_t at = 0; at < G_.numel(); ++at) {
      const double before = at / (HV_ * kD) % kC == 0 ? 0.0 : G_.get(at - HV_ * kD);
      G_.set(at, before + b_.tensors.at("g").get(at));
    }
  }

  /// A over [1, chunks, HV] matrices, whose memory is [1, chunks * 64, HV, 64].
  void make_inverse() {
    const std::vector<std::int64_t> shape = {1, chunks_, HV_, kC, kC};
    Tensor L = Tensor::dense(DType::kF32, shape);
    for (std::int64_t t = 0; t < T_; ++t)
      for (std::int64_t hv = 0; hv < HV_; ++hv)
        for (std::int64_t j = 0; j < t % kC; ++j) {
          const std::int64_t s = t - t % kC + j;
          double dot = 0.0;
          for (std::int64_t d = 0; d < kD; ++d)
            dot += k(t, hv, d) * k(s, hv, d) * std::exp(G(t, hv, d) - G(s, hv, d));
          L.set(((t / kC * HV_ + hv) * kC + t % kC) * kC + j,
                b_.tensors.at("beta").get(row(t, hv)) * dot);
        }
    A_ = Tensor::strided(DType::kF32, shape,
                         {chunks_ * kC * HV_ * kC, kC * HV_ * kC, kC, HV_ * kC, 1});
    kda_chunk_inverse({.L = L.view(), .out = A_.view()});
  }

  void make_factors() {
    for (Tensor* t : {&w_, &u_}) *t = poisoned(DType::kBF16, {1, T_, HV_, kD});
    const auto input = [&](const char* name) { return b_.tensors.at(name).view(); };
    kda_recompute_wu({.k = input("k"),
                      .v = input("v"),
                      .g = G_.view(),
                      .beta = input("beta"),
                      .A = ConstTensorView(A_.storage(), DType::kF32, {1, T_, HV_, kC}),
                      .w = w_.view(),
                      .u = u_.view()});
  }

  void advance(std::int64_t hv, std::int64_t first, std::int64_t rows, Vector& out,
               Vector& states) const {
    double* const S = states.data() + hv * kD * kD;
    Vector N(static_cast<std::size_t>(rows * kD));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t v = 0; v < kD; ++v) {
        double n = u_.get(row(first + i, hv) * kD + v);
        for (std::int64_t d = 0; d < kD; ++d)
          n -= w_.get(row(first + i, hv) * kD + d) * S[d * kD + v];
        N[i * kD + v] = n;
      }
    for (std::int64_t i = 0; i < rows; ++i) {
      double* const o = out.data() + row(first + i, hv) * kD;
      for (std::int64_t d = 0; d < kD; ++d) {
        const double factor = q(first + i, hv, d) * std::exp(G(first + i, hv, d));
        for (std::int64_t v = 0; v < kD; ++v) o[v] += factor * S[d * kD + v];
      }
      for (std::int64_t j = 0; j <= i; ++j) {
        double dot = 0.0;
        for (std::int64_t d = 0; d < kD; ++d)
          dot += q(first + i, hv, d) * k(first + j, hv, d) *
                 std::exp(G(first + i, hv, d) - G(first + j, hv, d));
        for (std::int64_t v = 0; v < kD; ++v) o[v] += dot * N[j * kD + v];
      }
    }
    const std::int64_t last = first + rows - 1;
    for (std::int64_t d = 0; d < kD; ++d) {
      for (std::int64_t v = 0; v < kD; ++v) S[d * kD + v] *= std::exp(G(last, hv, d));
      for (std::int64_t j = 0; j < rows; ++j) {
        const double remaining =
            k(first + j, hv, d) * std::exp(G(last, hv, d) - G(first + j, hv, d));
        for (std::int64_t v = 0; v < kD; ++v) S[d * kD + v] += remaining * N[j * kD + v];
      }
    }
  }

  const Bundle& b_;
  std::int64_t T_, H_, HV_, chunks_;
  Tensor G_, A_, w_, u_;
};

void expect_prefill(std::int64_t T, std::int64_t H, std::int64_t HV) {
  Bundle b = prefill(T, H, HV);
  find_driver("kda_prefill")->run_oracle(host_call(*find_driver("kda_prefill"), b));
  const Chain chain(b);
  Vector out(static_cast<std::size_t>(T * HV * kD), 0.0);
  Vector S = b.tensors.at("initial_state").values();
  chain.recur(out, S);
  // Three roundings to bf16 stand between the two sides: w, u, and the oracle's own out; each costs
  // an rms of 1.6e-3, and N = U - W S may cancel by a factor of two.
  const auto expect_close = [&](const char* name, const Vector& values) {
    Tensor result = Tensor::dense(DType::kF32, b.tensors.at(name).shape());
    for (std::int64_t i = 0; i < result.numel(); ++i) result.set(i, values[i]);
    const Comparison c = compare(name, b.tensors.at(name), result, {.err_ratio = 5e-3});
    EXPECT_TRUE(c.passed) << T << " tokens: " << c.why;
  };
  expect_close("out", out);
  expect_close("final_state", S);
}

TEST(KdaChunkChain, InverseThenFactorsThenRecurrenceIsThePrefill) {
  for (const std::int64_t T : {1, 63, 64, 65, 128, 150}) expect_prefill(T, 1, 2);
}

TEST(KdaChunkChain, OfGroupedValueHeads) { expect_prefill(100, 2, 4); }

}  // namespace
}  // namespace k3::harness
