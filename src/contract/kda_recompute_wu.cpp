// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_recompute_wu.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;
constexpr std::int64_t kC = kKdaChunkTokens;
constexpr std::size_t kVectorBytes = 16;

void check_shapes(const Contract& contract, const KdaRecomputeWuArgs& a) {
  const std::int64_t B = a.k.shape[0];
  const std::int64_t T = a.k.shape[1];
  const std::int64_t H = a.k.shape[2];
  const std::int64_t HV = a.v.shape[2];
  contract.small("k", "B", B);
  contract.small("k", "H*128", contract.small("k", "H", H) * kD);
  contract.small("v", "HV*128", contract.small("v", "HV", HV) * kD);
  contract.shape("k", a.k, {{"B", B}, {"T", T}, {"H", H}, {"128", kD}});
  contract.shape("v", a.v, {{"B", B}, {"T", T}, {"HV", HV}, {"128", kD}});
  contract.require(H >= 1, "k", "must have at least one head", a.k);
  contract.require(HV >= 1 && HV % H == 0, "v", "must have a multiple of k's heads (HV % H == 0)",
                   a.v);
  contract.shape("g", a.g, {{"B", B}, {"T", T}, {"HV", HV}, {"128", kD}});
  contract.shape("beta", a.beta, {{"B", B}, {"T", T}, {"HV", HV}});
  contract.shape("A", a.A, {{"B", B}, {"T", T}, {"HV", HV}, {"64", kC}});
  contract.shape("w", a.w, {{"B", B}, {"T", T}, {"HV", HV}, {"128", kD}});
  contract.shape("u", a.u, {{"B", B}, {"T", T}, {"HV", HV}, {"128", kD}});
  if (!a.cu_seqlens.defined()) return;
  contract.require(B == 1, "k", "must have B = 1 where cu_seqlens is given", a.k);
  contract.require(a.cu_seqlens.shape[0] >= 2, "cu_seqlens", "must have N + 1 >= 2 entries",
                   a.cu_seqlens);
}

void check_layouts(const Contract& contract, const KdaRecomputeWuArgs& a) {
  const auto vector_rows = [&](const char* name, const ConstTensorView& t) {
    contract.unit_last_stride(name, t);
    contract.aligned(name, t, kVectorBytes);
  };
  vector_rows("k", a.k);
  vector_rows("v", a.v);
  vector_rows("g", a.g);
  vector_rows("A", a.A);
  vector_rows("w", a.w);
  vector_rows("u", a.u);
  contract.unit_last_stride("beta", a.beta);
  contract.dense_from("cu_seqlens", a.cu_seqlens, 0);
  contract.overlaps(kda_recompute_wu_args(), a);
}

TokenStrides token_strides(const ConstTensorView& t) {
  return {t.strides[0], t.strides[1], t.strides[2]};
}

}  // namespace

std::span<const ArgRule<KdaRecomputeWuArgs>> kda_recompute_wu_args() {
  using Args = KdaRecomputeWuArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr DTypeSet kFloat = {DType::kF32, DType::kBF16};
  static const ArgRule<Args> rules[] = {
      {"k", Access::kRead, false, kBF16, {4}, &Args::k},
      {"v", Access::kRead, false, kBF16, {4}, &Args::v},
      {"g", Access::kRead, false, kF32, {4}, &Args::g},
      {"beta", Access::kRead, true, kFloat, {3}, &Args::beta},
      {"A", Access::kRead, false, kFloat, {4}, &Args::A},
      {"cu_seqlens", Access::kRead, true, {DType::kI32, DType::kI64}, {1}, &Args::cu_seqlens},
      {"w", Access::kWrite, false, kBF16, {4}, &Args::w},
      {"u", Access::kWrite, false, kBF16, {4}, &Args::u},
  };
  return rules;
}

KdaRecomputeWuProblem check(const KdaRecomputeWuArgs& a, Purpose purpose) {
  const Contract contract("kda_recompute_wu", purpose);
  contract.tensors(kda_recompute_wu_args(), a);
  check_shapes(contract, a);
  check_layouts(contract, a);

  KdaRecomputeWuProblem p;
  Sequences& s = p.sequences;
  s.packed = a.cu_seqlens.defined();
  s.N = s.packed ? contract.small("cu_seqlens", "N", a.cu_seqlens.shape[0] - 1)
                 : static_cast<int>(a.k.shape[0]);
  s.T = a.k.shape[1];
  s.cu_seqlens = a.cu_seqlens.data;
  s.cu_dtype = a.cu_seqlens.dtype;
  p.H = static_cast<int>(a.k.shape[2]);
  p.HV = static_cast<int>(a.v.shape[2]);
  p.k = static_cast<const bf16*>(a.k.data);
  p.k_strides = token_strides(a.k);
  p.v = static_cast<const bf16*>(a.v.data);
  p.v_strides = token_strides(a.v);
  p.g = static_cast<const float*>(a.g.data);
  p.g_strides = token_strides(a.g);
  p.beta = a.beta.data;
  if (a.beta.defined()) {
    p.beta_dtype = a.beta.dtype;
    p.beta_strides = {a.beta.strides[0], a.beta.strides[1], 1};
  }
  p.A = a.A.data;
  p.A_dtype = a.A.dtype;
  p.A_strides = token_strides(a.A);
  p.w = static_cast<bf16*>(a.w.data);
  p.w_strides = token_strides(a.w);
  p.u = static_cast<bf16*>(a.u.data);
  p.u_strides = token_strides(a.u);
  p.device = a.k.device;
  if (contract.reads_values(p.device)) check_values(contract, s);
  return p;
}

}  // namespace k3
