// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_packed_decode";

/// 3 requests, 2 q/k heads, 4 value heads.
Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {3, 1024});
  b.tensors["g"] = normal(random, DType::kBF16, {3, 512});
  b.tensors["beta"] = normal(random, DType::kBF16, {3, 4});
  b.tensors["A_log"] = normal(random, DType::kF32, {4});
  b.tensors["dt_bias"] = normal(random, DType::kF32, {512});
  b.tensors["state"] = normal(random, DType::kF32, {5, 4, 128, 128});
  b.tensors["state_indices"] = integers(DType::kI32, {4, -1, 0});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 512});
  b.scalars = {{"lower_bound", "-5"}};
  return b;
}

std::function<void(Call&)> with_index(int row, std::int32_t slot) {
  return [=](Call& call) {
    static_cast<std::int32_t*>(call.tensors.at("state_indices").data)[row] = slot;
  };
}

class KdaPackedDecodeContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaPackedDecodeContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kColumns = "must have (2*H + HV)*128 columns for an H that divides HV";
constexpr const char* kShared = "no two of its elements may share";

INSTANTIATE_TEST_SUITE_P(
    All, KdaPackedDecodeContract,
    testing::Values(
        Violation{"state_f16", "state", "must be bf16 or f32", with_dtype("state", DType::kF16)},
        Violation{"columns_between_heads", "mixed_qkv", kColumns, with_size("mixed_qkv", 1, 1023)},
        Violation{"half_a_key_head", "mixed_qkv", kColumns, with_size("mixed_qkv", 1, 896)},
        Violation{"no_key_head", "mixed_qkv", kColumns, with_size("mixed_qkv", 1, 512)},
        Violation{"three_key_heads_of_four", "mixed_qkv", kColumns,
                  with_size("mixed_qkv", 1, 1280)},
        Violation{"mixed_other_batch", "mixed_qkv", "must have shape [B, (2*H + HV)*128]",
                  with_size("mixed_qkv", 0, 2)},
        Violation{"g_other_batch", "g", "must have shape [B, HV*128]", with_size("g", 0, 2)},
        Violation{"a_log_of_key_heads", "A_log", "must have shape [HV]", with_size("A_log", 0, 2)},
        Violation{"dt_bias_of_key_heads", "dt_bias", "must have shape [HV*128]",
                  with_size("dt_bias", 0, 256)},
        Violation{"dt_bias_2d_and_short", "dt_bias", "must have shape [HV, 128]",
                  [](Call& c) {
                    with_rank("dt_bias", 2)(c);
                    with_size("dt_bias", 1, 127)(c);
                  }},
        Violation{"state_head_dim", "state", "must have shape [slots, HV, 128, 128]",
                  with_size("state", 3, 64)},
        Violation{"state_of_key_heads", "state", "must have shape [slots, HV, 128, 128]",
                  with_size("state", 1, 2)},
        Violation{"indices_short", "state_indices", "must have shape [B]",
                  with_size("state_indices", 0, 2)},
        Violation{"out_narrow", "out", "must have shape [B, HV*128]", with_size("out", 1, 128)},
        Violation{"no_heads", "beta", "must have at least one head", with_size("beta", 1, 0)},
        Violation{"mixed_strided", "mixed_qkv", "must have unit stride along its last axis",
                  with_stride("mixed_qkv", 1, 2)},
        Violation{"g_strided", "g", "must have unit stride along its last axis",
                  with_stride("g", 1, 2)},
        Violation{"beta_strided", "beta", "must have unit stride along its last axis",
                  with_stride("beta", 1, 2)},
        Violation{"a_log_strided", "A_log", "must have unit stride along its last axis",
                  with_stride("A_log", 0, 2)},
        Violation{"dt_bias_strided", "dt_bias", "must be dense from axis 0 on",
                  with_stride("dt_bias", 0, 2)},
        Violation{"out_strided", "out", "must have unit stride along its last axis",
                  with_stride("out", 1, 2)},
        Violation{"state_not_dense", "state", "must be dense from axis 1 on",
                  with_stride("state", 2, 129)},
        Violation{"out_rows_overlap", "out", kShared, with_stride("out", 0, 100)},
        Violation{"slots_overlap", "state", kShared, with_stride("state", 0, 16384)},
        Violation{"negative_stride", "g", "must have no negative stride",
                  with_stride("g", 0, -512)},
        Violation{"out_on_state", "state", "must not overlap out", sharing_memory("out", "state")},
        Violation{"index_past_the_pool", "state_indices",
                  "must be at most -1 (none) or a slot below 5", with_index(0, 5)},
        Violation{"null_index_below_minus_1", "null_index", "must be at least -1",
                  with_scalar("null_index", "-3")},
        Violation{"scale_nan", "scale", "must be finite", with_scalar("scale", "nan")},
        Violation{"lower_bound_0", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "0")},
        Violation{"no_gate_parameters", "A_log", "must be given where lower_bound is absent",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaPackedDecodeContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

TEST(KdaPackedDecodeDebugChecks, TwoRequestsWithOneSlotAreRefused) {
  Bundle bundle = valid_bundle();
  bundle.tensors["state_indices"] = integers(DType::kI32, {4, -1, 4});
  const Driver& driver = *find_driver(kOp);
  EXPECT_NO_THROW(driver.run(host_call(driver, bundle), {}));
  const Environment checks("K3_DEBUG_CHECKS", "1");
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, "state_indices",
                 "must give every live request a slot of its own");
}

}  // namespace
}  // namespace k3::harness
