// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Rotates the queries and keys of the vision tower (Kimi K3 technical report, arXiv 2607.24653).
/// Pairs are neighbours: with (c, s) = freqs[..., i, :] of a token, for each of its heads and each
/// i
///
///   q_out[2i]     = q[2i] c - q[2i + 1] s
///   q_out[2i + 1] = q[2i] s + q[2i + 1] c          and k likewise
///
/// fp32 inside, one rounding at the end. The leading axes are tokens, and fold into one axis of one
/// stride. q and k may be views of one interleaved tensor [tokens, 3, H, D], with rows and heads of
/// any stride. freqs is complex64 [..., D / 2] seen as pairs of f32.
///
/// In place: q_out may be q, and k_out may be k, with the same strides; else an output overlaps no
/// other tensor.
///
/// On CUDA rows aligned to 16 bytes and D a multiple of 8 take the vector path.
struct VisionRopeArgs {
  ConstTensorView q;      ///< [..., H, D] bf16 or f16; rank 3..8, last stride 1, D even
  ConstTensorView k;      ///< as q
  ConstTensorView freqs;  ///< [..., D / 2, 2] f32; leading axes of q; dense from D / 2 on
  TensorView q_out;       ///< as q
  TensorView k_out;       ///< as q
};

/// Deterministic; bits depend on the backend alone. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void vision_rope(const VisionRopeArgs& args, const ExecContext& ctx = {});
K3_API std::size_t vision_rope_workspace_size(const VisionRopeArgs& args,
                                              const ExecContext& ctx = {});

}  // namespace k3
