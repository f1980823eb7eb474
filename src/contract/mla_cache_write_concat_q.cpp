// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_cache_write_concat_q.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>

namespace k3 {
namespace {

/// 0 where it leads nowhere.
std::int64_t stride_of(const ConstTensorView& t, int axis) {
  return t.shape[axis] > 1 ? t.strides[axis] : 0;
}

/// [rows, width] or [rows, 1, width].
void check_rows(const Contract& contract, const char* argument, const ConstTensorView& t,
                const Axis& rows, const Axis& width) {
  if (t.rank == 3)
    contract.shape(argument, t, {rows, {"1", 1}, width});
  else
    contract.shape(argument, t, {rows, width});
}

void check_shapes(const Contract& contract, const MlaCacheWriteConcatQArgs& a,
                  const MlaCacheWriteConcatQProblem& p) {
  const Axis B = {"B", p.B};
  const Axis H = {"H", p.H};
  const Axis nope = {"nope", p.nope};
  const Axis rope = {"rope", p.rope};
  const ConstTensorView kv = a.kv_buffer;
  contract.require(kv.rank == 2 || kv.shape[1] == 1, "kv_buffer",
                   "must have shape [P, D] or [P, 1, D]", kv);
  contract.require(kv.shape[kv.rank - 1] >= std::int64_t{p.nope} + p.rope, "kv_buffer",
                   "must have at least nope + rope columns", kv);
  check_rows(contract, "k_nope", a.k_nope, B, nope);
  check_rows(contract, "k_rope", a.k_rope, B, rope);
  contract.shape("q_nope", a.q_nope, {B, H, nope});
  contract.shape("q_rope", a.q_rope, {B, H, rope});
  contract.shape("q_out", a.q_out, {B, H, {"nope+rope", std::int64_t{p.nope} + p.rope}});
}

void check_layouts(const Contract& contract, const MlaCacheWriteConcatQArgs& a) {
  contract.unit_last_stride("kv_buffer", a.kv_buffer);
  contract.unit_last_stride("k_nope", a.k_nope);
  contract.unit_last_stride("k_rope", a.k_rope);
  contract.unit_last_stride("q_nope", a.q_nope);
  contract.unit_last_stride("q_rope", a.q_rope);
  contract.unit_last_stride("q_out", a.q_out);
}

void check_scalars(const Contract& contract, const MlaCacheWriteConcatQArgs& a) {
  contract.require(a.dcp_world_size >= 1, "dcp_world_size", "must be at least 1",
                   [&] { return std::to_string(a.dcp_world_size); });
  contract.require(a.dcp_rank >= 0 && a.dcp_rank < a.dcp_world_size, "dcp_rank",
                   "must be at least 0 and below dcp_world_size",
                   [&] { return fmt::format("{} of {}", a.dcp_rank, a.dcp_world_size); });
  contract.require(a.null_index >= -1, "null_index", "must be at least -1",
                   [&] { return std::to_string(a.null_index); });
}

}  // namespace

std::span<const ArgRule<MlaCacheWriteConcatQArgs>> mla_cache_write_concat_q_args() {
  using Args = MlaCacheWriteConcatQArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kCache = {DType::kBF16, DType::kF8E4M3, DType::kU8};
  constexpr auto kRead = Access::kRead;
  static const ArgRule<Args> rules[] = {
      {"kv_buffer", Access::kReadWrite, false, kCache, {2, 3}, &Args::kv_buffer},
      {"slot_mapping", kRead, false, {DType::kI32, DType::kI64}, {1}, &Args::slot_mapping},
      {"k_nope", kRead, false, kBF16, {2, 3}, &Args::k_nope},
      {"k_rope", kRead, false, kBF16, {2, 3}, &Args::k_rope},
      {"q_nope", kRead, false, kBF16, {3}, &Args::q_nope},
      {"q_rope", kRead, false, kBF16, {3}, &Args::q_rope},
      {"q_out", Access::kWrite, false, kCache, {3}, &Args::q_out},
  };
  return rules;
}

void check_values(const Contract& contract, const MlaCacheWriteConcatQProblem& p,
                  ValueChecks checks) {
  std::unordered_map<std::int64_t, std::int64_t> first_user;
  for (std::int64_t i = 0; i < p.B; ++i) {
    const std::int64_t slot = p.slots[i];
    if (slot <= p.null_index) continue;
    if (slot / p.dcp_world_size >= p.num_rows)
      contract.fail("slot_mapping",
                    fmt::format("must be at most null_index = {} or a slot below {} * {}",
                                p.null_index, p.num_rows, p.dcp_world_size),
                    fmt::format("slot_mapping[{}] = {}", i, slot));
    if (checks != ValueChecks::kRangesAndDuplicates) continue;
    const auto [other, is_new] = first_user.try_emplace(slot, i);
    if (!is_new)
      contract.fail(
          "slot_mapping", "must give every live token a slot of its own",
          fmt::format("slot_mapping[{}] = slot_mapping[{}] = {}", other->second, i, slot));
  }
}

MlaCacheWriteConcatQProblem check(const MlaCacheWriteConcatQArgs& a, Purpose purpose) {
  const Contract contract("mla_cache_write_concat_q", purpose);
  const auto rules = mla_cache_write_concat_q_args();
  contract.tensors(rules, a);
  MlaCacheWriteConcatQProblem p;
  p.B = a.slot_mapping.shape[0];
  p.H = contract.small("q_nope", "H", a.q_nope.shape[1]);
  p.nope = contract.small("q_nope", "nope", a.q_nope.shape[2]);
  p.rope = contract.small("q_rope", "rope", a.q_rope.shape[2]);
  check_shapes(contract, a, p);
  contract.small("q_out", "(H+1)*(nope+rope)",
                 (std::int64_t{p.H} + 1) * (std::int64_t{p.nope} + p.rope));
  contract.require(a.q_out.dtype == a.kv_buffer.dtype, "q_out", "must have the dtype of kv_buffer",
                   a.q_out);
  check_layouts(contract, a);
  contract.overlaps(rules, a);
  check_scalars(contract, a);

  p.fp8 = a.kv_buffer.dtype != DType::kBF16;
  p.kv_buffer = a.kv_buffer.data;
  p.num_rows = a.kv_buffer.shape[0];
  p.kv_stride = stride_of(a.kv_buffer, 0);
  p.slots = IntegerList(a.slot_mapping);
  p.dcp_world_size = a.dcp_world_size;
  p.dcp_rank = a.dcp_rank;
  p.null_index = a.null_index;
  p.k_nope = static_cast<const bf16*>(a.k_nope.data);
  p.k_nope_stride = stride_of(a.k_nope, 0);
  p.k_rope = static_cast<const bf16*>(a.k_rope.data);
  p.k_rope_stride = stride_of(a.k_rope, 0);
  p.q_nope = static_cast<const bf16*>(a.q_nope.data);
  p.q_nope_token_stride = stride_of(a.q_nope, 0);
  p.q_nope_head_stride = stride_of(a.q_nope, 1);
  p.q_rope = static_cast<const bf16*>(a.q_rope.data);
  p.q_rope_token_stride = stride_of(a.q_rope, 0);
  p.q_rope_head_stride = stride_of(a.q_rope, 1);
  p.q_out = a.q_out.data;
  p.q_out_token_stride = stride_of(a.q_out, 0);
  p.q_out_head_stride = stride_of(a.q_out, 1);
  p.device = a.kv_buffer.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
