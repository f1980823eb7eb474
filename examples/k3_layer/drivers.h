// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/driver.h"

/// What a layer needs beside the ops of libk3, in the form of theirs. No cases and no oracle.
namespace k3::layer {

/// `product`: out [M, N] = x [M, K] w [N, K]^T, bf16 operands, fp32 sums, out bf16 or f32. CUDA: by
/// cuBLASLt. CPU: as examples/mini_k3 makes it, more than 16 rows by OpenBLAS. By `tiny_gemm` where
/// the library is missing.
const harness::Driver& matrix_product_driver();

/// `short_conv`: the causal convolution in front of a prefill, and SiLU. Of rows n T to n T + T -
/// 1, T = rows / N, for each request n:
///   out[t, c] = bf16(SiLU(sum_{w<4} weight[w, c] in[t - 3 + w, c]))
/// where in[-3 .. -1] are the taps of the window conv_states[state_indices[n]], which then holds
/// the last three tokens. As `kda_fused_decode` does it, bit for bit.
const harness::Driver& short_conv_driver();

/// Views of a `short_conv` call.
struct ShortConv {
  ConstTensorView in;             ///< [N * T, C] bf16, C a multiple of 128
  TensorView conv_states;         ///< [slots, 3, C] bf16, dense; in place
  ConstTensorView weight;         ///< [4, C] f32, dense
  ConstTensorView state_indices;  ///< [N] i32, all of them live
  TensorView out;                 ///< [N * T, C] bf16, dense

  [[nodiscard]] std::int64_t requests() const { return state_indices.shape[0]; }
  [[nodiscard]] std::int64_t tokens() const { return in.shape[0] / requests(); }
  [[nodiscard]] std::int64_t channels() const { return in.shape[1]; }
};
void short_conv_cpu(const ShortConv& conv, int threads);
#if K3_WITH_CUDA
void short_conv_cuda(const ShortConv& conv, const ExecContext& ctx);
#endif

}  // namespace k3::layer
