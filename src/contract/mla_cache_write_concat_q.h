// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/integers.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/mla_cache_write_concat_q.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct MlaCacheWriteConcatQProblem {
  std::int64_t B = 0;
  int H = 0;
  int nope = 0;
  int rope = 0;
  bool fp8 = false;  ///< kv_buffer and q_out hold e4m3 codes, else bf16

  void* kv_buffer = nullptr;  ///< [num_rows, nope + rope and perhaps more]
  std::int64_t num_rows = 0;
  std::int64_t kv_stride = 0;
  IntegerList slots;  ///< [B]
  int dcp_world_size = 1;
  int dcp_rank = 0;
  int null_index = -1;

  const bf16* k_nope = nullptr;  ///< [B, nope]
  std::int64_t k_nope_stride = 0;
  const bf16* k_rope = nullptr;  ///< [B, rope]
  std::int64_t k_rope_stride = 0;
  const bf16* q_nope = nullptr;  ///< [B, H, nope]
  std::int64_t q_nope_token_stride = 0;
  std::int64_t q_nope_head_stride = 0;
  const bf16* q_rope = nullptr;  ///< [B, H, rope]
  std::int64_t q_rope_token_stride = 0;
  std::int64_t q_rope_head_stride = 0;
  void* q_out = nullptr;  ///< [B, H, nope + rope]
  std::int64_t q_out_token_stride = 0;
  std::int64_t q_out_head_stride = 0;
  Device device;

  [[nodiscard]] std::size_t out_bytes() const { return fp8 ? 1 : 2; }  ///< of an element
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MlaCacheWriteConcatQArgs>> mla_cache_write_concat_q_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(MlaCacheWriteConcatQProblem& p) { return std::array{&p.slots}; }
/// Of slots in host memory. @throws ContractError
void check_values(const Contract& contract, const MlaCacheWriteConcatQProblem& p,
                  ValueChecks checks);

/// @throws ContractError
MlaCacheWriteConcatQProblem check(const MlaCacheWriteConcatQArgs& args,
                                  Purpose purpose = Purpose::kRun);

}  // namespace k3
