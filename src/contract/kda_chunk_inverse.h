// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "k3/ops/kda_chunk_inverse.h"
#include "k3/ops/kda_types.h"

namespace k3 {

/// Strides in elements of a batch of matrices with up to three leading axes, outermost first.
struct MatrixStrides {
  std::int64_t batch[3] = {};
  std::int64_t row = 0;  ///< beta: from one entry to the next
};

/// A checked call: what every backend receives.
struct KdaChunkInverseProblem {
  int M = 0;                 ///< matrices: the product of `sizes`
  int sizes[3] = {1, 1, 1};  ///< of the leading axes, outermost first

  const void* L = nullptr;
  DType L_dtype = DType::kF32;
  MatrixStrides L_strides;
  const void* beta = nullptr;  ///< or null: ones
  DType beta_dtype = DType::kF32;
  MatrixStrides beta_strides;
  void* out = nullptr;  ///< may be L, with the same strides and dtype
  DType out_dtype = DType::kF32;
  MatrixStrides out_strides;

  Device device;

  /// Where matrix m of the batch begins.
  [[nodiscard]] std::int64_t offset(const MatrixStrides& strides, int m) const {
    const int inner = m / sizes[2];
    return inner / sizes[1] * strides.batch[0] + inner % sizes[1] * strides.batch[1] +
           m % sizes[2] * strides.batch[2];
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaChunkInverseArgs>> kda_chunk_inverse_args();

/// @throws ContractError
KdaChunkInverseProblem check(const KdaChunkInverseArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
