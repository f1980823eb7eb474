// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/mla_cache.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_cache_write_concat_q";

Bundle valid_bundle(DType cache) {
  Bundle b = mla_cache({.B = 4, .H = 3, .nope = 24, .rope = 8, .cache = cache, .pool = 6});
  b.tensors["slot_mapping"] = integers(DType::kI64, {5, -1, 0, 2});
  return b;
}

std::function<void(Call&)> with_slot(std::int64_t token, std::int64_t slot) {
  return
      [=](Call& c) { static_cast<std::int64_t*>(c.tensors.at("slot_mapping").data)[token] = slot; };
}

class MlaCacheWriteContract : public testing::TestWithParam<Violation> {};

TEST_P(MlaCacheWriteContract, Refuses) {
  for (DType cache : {DType::kBF16, DType::kF8E4M3, DType::kU8})
    expect_refused(*find_driver(kOp), valid_bundle(cache), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MlaCacheWriteContract,
    testing::Values(
        Violation{"cache_f32", "kv_buffer", "must be bf16 or u8 or f8_e4m3",
                  with_dtype("kv_buffer", DType::kF32)},
        Violation{"slots_f32", "slot_mapping", "must be i32 or i64",
                  with_dtype("slot_mapping", DType::kF32)},
        Violation{"queries_f16", "q_nope", "must be bf16", with_dtype("q_nope", DType::kF16)},
        Violation{"out_of_another_dtype", "q_out", "must have the dtype of kv_buffer",
                  [](Call& c) {
                    DType& dtype = c.tensors.at("q_out").dtype;
                    dtype = dtype == DType::kU8 ? DType::kF8E4M3 : DType::kU8;
                  }},
        Violation{"cache_of_two_heads", "kv_buffer", "must have shape [P, D] or [P, 1, D]",
                  [](Call& c) {
                    TensorView& t = c.tensors.at("kv_buffer");
                    t = TensorView(t.data, t.dtype, {2, 2, 32});
                  }},
        Violation{"cache_too_narrow", "kv_buffer", "must have at least nope + rope columns",
                  with_size("kv_buffer", 1, 31)},
        Violation{"keys_of_other_tokens", "k_nope", "must have shape [B, nope]",
                  with_size("k_nope", 0, 3)},
        Violation{"keys_of_another_width", "k_rope", "must have shape [B, rope]",
                  with_size("k_rope", 1, 7)},
        Violation{"keys_of_two_heads", "k_nope", "must have shape [B, 1, nope]",
                  [](Call& c) {
                    TensorView& t = c.tensors.at("k_nope");
                    t = TensorView(t.data, t.dtype, {4, 2, 12});
                  }},
        Violation{"queries_of_other_tokens", "q_nope", "must have shape [B, H, nope]",
                  with_size("q_nope", 0, 3)},
        Violation{"queries_of_other_heads", "q_rope", "must have shape [B, H, rope]",
                  with_size("q_rope", 1, 2)},
        Violation{"out_too_narrow", "q_out", "must have shape [B, H, nope+rope]",
                  with_size("q_out", 2, 31)},
        Violation{"cache_strided", "kv_buffer", "must have unit stride along its last axis",
                  with_stride("kv_buffer", 1, 2)},
        Violation{"k_nope_strided", "k_nope", "must have unit stride along its last axis",
                  with_stride("k_nope", 1, 2)},
        Violation{"k_rope_strided", "k_rope", "must have unit stride along its last axis",
                  with_stride("k_rope", 1, 2)},
        Violation{"q_nope_strided", "q_nope", "must have unit stride along its last axis",
                  with_stride("q_nope", 2, 2)},
        Violation{"q_rope_strided", "q_rope", "must have unit stride along its last axis",
                  with_stride("q_rope", 2, 2)},
        Violation{"out_strided", "q_out", "must have unit stride along its last axis",
                  with_stride("q_out", 2, 2)},
        Violation{"cache_rows_overlap", "kv_buffer", "no two of its elements may share",
                  with_stride("kv_buffer", 0, 16)},
        Violation{"out_heads_overlap", "q_out", "no two of its elements may share",
                  with_stride("q_out", 1, 31)},
        Violation{"too_many_elements", "q_out", "must fit 31 bits",
                  [](Call& c) {
                    constexpr std::int64_t kHeads = std::int64_t{1} << 27;
                    for (const char* name : {"q_nope", "q_rope", "q_out"}) {
                      c.tensors.at(name).shape[1] = kHeads;
                      c.tensors.at(name).strides[0] = 0;
                    }
                  }},
        Violation{"too_many_heads", "q_nope", "must fit 31 bits",
                  with_size("q_nope", 1, std::int64_t{1} << 31)},
        Violation{"negative_stride", "k_nope", "must have no negative stride",
                  with_stride("k_nope", 0, -24)},
        Violation{"out_on_cache", "kv_buffer", "must not overlap q_out",
                  sharing_memory("kv_buffer", "q_out")},
        Violation{"world_0", "dcp_world_size", "must be at least 1",
                  with_scalar("dcp_world_size", "0")},
        Violation{"rank_negative", "dcp_rank", "must be at least 0", with_scalar("dcp_rank", "-1")},
        Violation{"rank_past_world", "dcp_rank", "below dcp_world_size",
                  with_scalar("dcp_rank", "1")},
        Violation{"null_index_minus_2", "null_index", "must be at least -1",
                  with_scalar("null_index", "-2")},
        Violation{"slot_past_the_pool", "slot_mapping", "a slot below 6 * 1", with_slot(2, 6)},
        Violation{"slot_past_2_32", "slot_mapping", "a slot below 6 * 1",
                  with_slot(0, std::int64_t{1} << 32)},
        Violation{"slot_of_another_rank_past_the_pool", "slot_mapping", "a slot below 6 * 2",
                  [](Call& c) {
                    c.scalars["dcp_world_size"] = "2";
                    with_slot(3, 13)(c);
                  }}),
    violation_name);

/// In bf16: a code has no address that is not its own.
class MlaCacheWriteTensors : public testing::TestWithParam<Violation> {};

TEST_P(MlaCacheWriteTensors, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(DType::kBF16), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, MlaCacheWriteTensors,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle(DType::kBF16))),
                         violation_name);

TEST(MlaCacheWriteDebugChecks, OneTokenForEverySlot) {
  const Environment checks("K3_DEBUG_CHECKS", "1");
  const Driver& driver = *find_driver(kOp);
  const auto run = [&](const std::function<void(Call&)>& edit) {
    Bundle bundle = valid_bundle(DType::kBF16);
    Call call = host_call(driver, bundle);
    edit(call);
    driver.run(call, {});
  };
  EXPECT_NO_THROW(run([](Call&) {}));
  EXPECT_NO_THROW(run(with_slot(2, -1)));
  expect_refused([&] { run(with_slot(3, 5)); }, "slot_mapping",
                 "must give every live token a slot of its own");
}

}  // namespace
}  // namespace k3::harness
