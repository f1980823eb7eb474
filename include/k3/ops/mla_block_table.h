// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The page table that paged MLA attention reads (Kimi K3 technical report, arXiv 2607.24653), from
/// a table of token slots. For every request b and page j < ceil(seq_lens[b] / page_size):
///
///   token             = req_to_token[req_pool[b], start[b] + j * page_size]
///   page              = token / page_size, or v2p[token / page_size] where v2p is given
///   block_table[b, j] = page * page_mult
///
/// Entries past a request's last page stay as they are; a request of length 0 has no pages, and its
/// other numbers are not looked at.
///
/// In host memory a length, row, start, token or page out of range is a ContractError. In device
/// memory nothing out of range is read: a length counts as at least 0 and at most the table's
/// width, and an entry whose row, position, token or page is out of range, or whose value leaves 31
/// bits, becomes -1.
struct MlaBlockTableArgs {
  ConstTensorView req_to_token;  ///< [R, W] i32, rows of any stride, last stride 1
  ConstTensorView req_pool;      ///< [B] i32 or i64: the request's row of req_to_token
  ConstTensorView seq_lens;      ///< [B] i32 or i64: tokens from start on
  ConstTensorView start;         ///< [B] i32 or i64, or absent: 0
  ConstTensorView v2p;           ///< [pages] i32 or i64, or absent: physical page of a virtual one
  TensorView block_table;        ///< [B, M] i32, rows of any stride, last stride 1
  int page_size = 64;            ///< tokens of a page, >= 1
  int page_mult = 1;             ///< factor of every entry, >= 1: layers that share a page
};

/// Deterministic. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void mla_block_table(const MlaBlockTableArgs& args, const ExecContext& ctx = {});
K3_API std::size_t mla_block_table_workspace_size(const MlaBlockTableArgs& args,
                                                  const ExecContext& ctx = {});

}  // namespace k3
