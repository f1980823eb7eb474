// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// What precedes decode attention in K3's MLA layers (Kimi K3 technical report, arXiv 2607.24653):
/// the new keys go into the paged cache, and each query head's two parts become one row. For every
/// token i of B and head h of H:
///
///   kv_buffer[slot_mapping[i]] = k_nope[i] | k_rope[i]       in the first nope + rope columns
///   q_out[i, h]                = q_nope[i, h] | q_rope[i, h]
///
/// Into a bf16 cache the elements are copied bit for bit. Into an fp8 cache they are rounded to
/// e4m3, to nearest even and saturating: past 448, infinities included, +-448; every NaN 0x7F. No
/// scale is applied.
///
/// A slot up to null_index is padding: the cache stays as it is, q_out is made all the same. Under
/// decode context parallelism slots are those of all ranks together: slot s is row
/// s / dcp_world_size of rank s % dcp_world_size, and each rank writes the rows that are its own
/// and all of q_out. Live slots should differ: of two tokens with one slot either may win. A slot
/// past the pool is a ContractError in host memory and counts as padding in device memory.
///
/// Nothing needs more alignment than its element; on CUDA widths of multiples of 8 (fp8: of 16) in
/// 16-byte aligned rows run on the vector path, others on a slower one.
struct MlaCacheWriteConcatQArgs {
  /// [P, D] or [P, 1, D], D >= nope + rope: bf16, or e4m3 as f8_e4m3 or u8 codes. In place, rows of
  /// any stride, last stride 1. Other rows and columns stay.
  TensorView kv_buffer;
  ConstTensorView slot_mapping;  ///< [B] i32 or i64
  ConstTensorView k_nope;        ///< [B, nope] or [B, 1, nope] bf16, last stride 1. K3: nope = 512
  ConstTensorView k_rope;        ///< [B, rope] or [B, 1, rope] bf16, last stride 1. K3: rope = 64
  ConstTensorView q_nope;        ///< [B, H, nope] bf16, last stride 1
  ConstTensorView q_rope;        ///< [B, H, rope] bf16, last stride 1
  TensorView q_out;              ///< [B, H, nope + rope], dtype of kv_buffer, last stride 1
  int dcp_world_size = 1;        ///< ranks that share the cache, >= 1
  int dcp_rank = 0;              ///< this one
  int null_index = -1;           ///< slots up to it are padding; >= -1
};

/// Deterministic for distinct live slots, the same bits on every backend. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void mla_cache_write_concat_q(const MlaCacheWriteConcatQArgs& args,
                                     const ExecContext& ctx = {});
K3_API std::size_t mla_cache_write_concat_q_workspace_size(const MlaCacheWriteConcatQArgs& args,
                                                           const ExecContext& ctx = {});

}  // namespace k3
