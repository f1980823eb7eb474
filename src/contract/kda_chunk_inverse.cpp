// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_chunk_inverse.h"

#include <algorithm>
#include <vector>

namespace k3 {
namespace {

constexpr std::int64_t kC = kKdaChunkTokens;

/// The leading axes of L, then `inner` axes of 64.
std::vector<Axis> axes_of(const ConstTensorView& L, int inner) {
  constexpr const char* kNames[] = {"B", "NT", "M"};
  const int leading = L.rank - 2;
  std::vector<Axis> axes;
  for (int d = 0; d < leading; ++d) axes.push_back({kNames[3 - leading + d], L.shape[d]});
  axes.insert(axes.end(), static_cast<std::size_t>(inner), {"64", kC});
  return axes;
}

/// The same elements at the same places. A stride counts where its axis has two entries.
bool same_memory(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

MatrixStrides matrix_strides(const ConstTensorView& t, int leading) {
  MatrixStrides s;
  for (int d = 0; d < leading; ++d) s.batch[3 - leading + d] = t.strides[d];
  s.row = t.strides[leading];
  return s;
}

}  // namespace

std::span<const ArgRule<KdaChunkInverseArgs>> kda_chunk_inverse_args() {
  using Args = KdaChunkInverseArgs;
  constexpr DTypeSet kFloat = {DType::kF32, DType::kBF16};
  static const ArgRule<Args> rules[] = {
      {"L", Access::kRead, false, kFloat, {3, 4, 5}, &Args::L},
      {"beta", Access::kRead, true, kFloat, {2, 3, 4}, &Args::beta},
      {"out", Access::kWrite, false, kFloat, {3, 4, 5}, &Args::out},
  };
  return rules;
}

KdaChunkInverseProblem check(const KdaChunkInverseArgs& a, Purpose purpose) {
  const Contract contract("kda_chunk_inverse", purpose);
  const auto rules = kda_chunk_inverse_args();
  contract.tensors(rules, a);
  const int leading = a.L.rank - 2;
  contract.require(a.L.shape[leading] == kC && a.L.shape[leading + 1] == kC, "L",
                   "must hold matrices of 64 x 64", a.L);
  KdaChunkInverseProblem p;
  std::int64_t matrices = 1;
  for (int d = 0; d < leading; ++d) {
    p.sizes[3 - leading + d] = contract.small("L", "a leading axis", a.L.shape[d]);
    matrices *= a.L.shape[d];
  }
  p.M = contract.small("L", "matrices", matrices);
  contract.shape("beta", a.beta, axes_of(a.L, 1));
  contract.shape("out", a.out, axes_of(a.L, 2));
  contract.unit_last_stride("L", a.L);
  contract.unit_last_stride("out", a.out);
  if (same_memory(a.L, a.out))
    contract.overlaps(rules, a, {rules[2].name, rules[0].name});
  else
    contract.overlaps(rules, a);

  p.L = a.L.data;
  p.L_dtype = a.L.dtype;
  p.L_strides = matrix_strides(a.L, leading);
  p.beta = a.beta.data;
  if (a.beta.defined()) {
    p.beta_dtype = a.beta.dtype;
    p.beta_strides = matrix_strides(a.beta, leading);
  }
  p.out = a.out.data;
  p.out_dtype = a.out.dtype;
  p.out_strides = matrix_strides(a.out, leading);
  p.device = a.L.device;
  return p;
}

}  // namespace k3
