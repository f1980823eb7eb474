// SPDX-License-Identifier: Apache-2.0
#include "contract/tiny_gemm.h"

namespace k3 {

std::span<const ArgRule<TinyGemmArgs>> tiny_gemm_args() {
  using Args = TinyGemmArgs;
  static const ArgRule<Args> rules[] = {
      {"x", Access::kRead, false, {DType::kBF16}, {2}, &Args::x},
      {"w", Access::kRead, false, {DType::kBF16}, {2}, &Args::w},
      {"out", Access::kWrite, false, {DType::kBF16, DType::kF32}, {2}, &Args::out},
  };
  return rules;
}

TinyGemmProblem check(const TinyGemmArgs& a, Purpose purpose) {
  const Contract contract("tiny_gemm", purpose);
  contract.tensors(tiny_gemm_args(), a);
  contract.require(a.x.shape[0] <= kTinyGemmMaxRows, "x",
                   "must have at most 16 rows (cuBLASLt makes larger products)", a.x);
  TinyGemmProblem p;
  p.M = static_cast<int>(a.x.shape[0]);
  p.N = contract.small("w", "N", a.w.shape[0]);
  p.K = contract.small("x", "K", a.x.shape[1]);
  contract.shape("w", a.w, {{"N", p.N}, {"K", p.K}});
  contract.shape("out", a.out, {{"M", p.M}, {"N", p.N}});
  contract.unit_last_stride("x", a.x);
  contract.unit_last_stride("w", a.w);
  contract.unit_last_stride("out", a.out);
  contract.overlaps(tiny_gemm_args(), a);

  p.x = static_cast<const bf16*>(a.x.data);
  p.x_stride = a.x.strides[0];
  p.w = static_cast<const bf16*>(a.w.data);
  p.w_stride = a.w.strides[0];
  p.out = a.out.data;
  p.out_dtype = a.out.dtype;
  p.out_stride = a.out.strides[0];
  p.device = a.x.device;
  return p;
}

}  // namespace k3
