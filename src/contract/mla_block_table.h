// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/integers.h"
#include "contract/kda.h"
#include "k3/ops/mla_block_table.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct MlaBlockTableProblem {
  int B = 0;
  int M = 0;                                   ///< entries of a row of block_table
  const std::int32_t* req_to_token = nullptr;  ///< [num_rows, row_length]
  std::int64_t num_rows = 0;
  std::int64_t row_length = 0;
  std::int64_t row_stride = 0;
  IntegerList req_pool;  ///< [B]
  IntegerList seq_lens;  ///< [B]
  IntegerList start;     ///< [B], or absent: 0
  bool has_v2p = false;
  IntegerList v2p;                      ///< virtual to physical pages, where has_v2p
  std::int32_t* block_table = nullptr;  ///< [B, M]
  std::int64_t block_table_stride = 0;
  int page_size = 64;
  int page_mult = 1;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MlaBlockTableArgs>> mla_block_table_args();

/// The index lists of a problem that its requests bring, for whoever reads them.
inline auto index_lists(MlaBlockTableProblem& p) {
  return std::array{&p.req_pool, &p.seq_lens, &p.start};
}
/// Of these lists in host memory, and of what the tables hold where they lie there, too.
/// @throws ContractError
void check_values(const Contract& contract, const MlaBlockTableProblem& p, ValueChecks checks);

/// @throws ContractError
MlaBlockTableProblem check(const MlaBlockTableArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
