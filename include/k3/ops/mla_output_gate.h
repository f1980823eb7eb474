// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The output gate of K3's MLA layers (Kimi K3 technical report, arXiv 2607.24653), between
/// attention and its output projection, element by element:
///
///   out = bf16( x * bf16( sigmoid(gate) ) )
///
/// Two roundings, both to nearest even: the bits that a sigmoid stored as bf16 and then a product
/// of bf16 tensors give. The sigmoid is the exact one, rounded once, for each of the 65,536 gates,
/// bf16 subnormals included; the product is taken in fp32. Every NaN is written as 0x7FFF: of x, of
/// the gate, and an infinite x times a gate of 0. So all backends give the same bits.
///
/// The tensors have one shape, of any rank, each with strides of its own; what has to be the case
/// is that they fold into rows: trailing axes that are dense in all three make the columns, the
/// axes before them lie at one stride a tensor. No pointer needs more alignment than its element;
/// on CUDA 16-byte aligned rows run on the vector path, others on a slower one.
struct MlaOutputGateArgs {
  ConstTensorView x;     ///< bf16, rank 1..8, last stride 1. K3: [T, heads * 128]
  ConstTensorView gate;  ///< bf16, the shape of x
  TensorView out;        ///< bf16, the shape of x; may be x itself, must not overlap gate
};

/// Deterministic, the same bits on every backend. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void mla_output_gate(const MlaOutputGateArgs& args, const ExecContext& ctx = {});
K3_API std::size_t mla_output_gate_workspace_size(const MlaOutputGateArgs& args,
                                                  const ExecContext& ctx = {});

}  // namespace k3
