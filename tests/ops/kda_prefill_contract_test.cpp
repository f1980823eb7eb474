// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

/// A call with every optional argument, on a pool.
Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  for (const char* name : {"q", "k", "v", "g"})
    b.tensors[name] = normal(random, DType::kBF16, {1, 70, 2, 128});
  b.tensors["beta"] = normal(random, DType::kBF16, {1, 70, 2});
  b.tensors["A_log"] = normal(random, DType::kF32, {2});
  b.tensors["dt_bias"] = normal(random, DType::kF32, {2, 128});
  b.tensors["cu_seqlens"] = integers(DType::kI32, {0, 66, 70});
  b.tensors["initial_state"] = normal(random, DType::kF32, {4, 2, 128, 128});
  b.tensors["state_indices"] = integers(DType::kI32, {3, 1});
  b.tensors["track_chunk_idx"] = integers(DType::kI32, {1, -1});
  b.tensors["out"] = poisoned(DType::kBF16, {1, 70, 2, 128});
  b.tensors["final_state"] = poisoned(DType::kF32, {4, 2, 128, 128});
  b.tensors["chunk_states"] = poisoned(DType::kF32, {3, 2, 128, 128});
  b.tensors["tracked_states"] = poisoned(DType::kF32, {2, 2, 128, 128});
  b.scalars = {{"lower_bound", "-5"}, {"qk_l2norm", "1"},        {"gate_in_kernel", "1"},
               {"beta_sigmoid", "1"}, {"allow_neg_eigval", "0"}, {"scale", ""}};
  return b;
}

std::function<void(Call&)> with_values(const char* name, std::vector<std::int32_t> values) {
  return [=](Call& call) {
    std::memcpy(call.tensors.at(name).data, values.data(), values.size() * sizeof(values[0]));
  };
}

class KdaPrefillContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaPrefillContract, Refuses) {
  expect_refused(*find_driver("kda_prefill"), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, KdaPrefillContract,
    testing::Values(
        Violation{"q_absent", "q", absent("q")}, Violation{"out_absent", "out", absent("out")},
        Violation{"beta_absent", "beta", absent("beta")},
        Violation{"q_f16", "q", with_dtype("q", DType::kF16)},
        Violation{"v_f32", "v", with_dtype("v", DType::kF32)},
        Violation{"g_i32", "g", with_dtype("g", DType::kI32)},
        Violation{"out_f32", "out", with_dtype("out", DType::kF32)},
        Violation{"cu_seqlens_f32", "cu_seqlens", with_dtype("cu_seqlens", DType::kF32)},
        Violation{"state_mixed_dtypes", "final_state", with_dtype("final_state", DType::kBF16)},
        Violation{"tracked_bf16", "tracked_states", with_dtype("tracked_states", DType::kBF16)},
        Violation{"q_rank_3", "q", with_rank("q", 3)},
        Violation{"q_rank_99", "q", with_rank("q", 99)},
        Violation{"beta_rank_2", "beta", with_rank("beta", 2)},
        Violation{"k_shorter", "k", with_size("k", 1, 69)},
        Violation{"v_head_dim_64", "v", with_size("v", 3, 64)},
        Violation{"q_head_dim_256", "q", with_size("q", 3, 256)},
        Violation{"q_negative_size", "q", with_size("q", 1, -1)},
        Violation{"q_no_heads", "q",
                  [](Call& c) { c.tensors.at("q").shape[2] = c.tensors.at("k").shape[2] = 0; }},
        Violation{"heads_not_a_multiple", "v", with_size("v", 2, 3)},
        Violation{"out_fewer_heads", "out", with_size("out", 2, 1)},
        Violation{"a_log_padded", "A_log", with_size("A_log", 0, 1)},
        Violation{"dt_bias_short", "dt_bias", with_size("dt_bias", 1, 127)},
        Violation{"batch_with_cu_seqlens", "q",
                  [](Call& c) {
                    for (const char* name : {"q", "k", "v", "g", "beta", "out"}) {
                      TensorView& t = c.tensors.at(name);
                      t.shape[0] = 2;
                      t.shape[1] = 35;
                      t.strides[0] = 35 * t.strides[1];
                    }
                  }},
        Violation{"cu_seqlens_one_entry", "cu_seqlens", with_size("cu_seqlens", 0, 1)},
        Violation{"state_rows", "final_state", with_size("final_state", 0, 3)},
        Violation{"state_heads", "initial_state", with_size("initial_state", 1, 1)},
        Violation{"indices_short", "state_indices", with_size("state_indices", 0, 1)},
        Violation{"indices_without_a_pool", "state_indices",
                  [](Call& c) {
                    c.tensors.erase("initial_state");
                    c.tensors.erase("final_state");
                  }},
        Violation{"tracked_without_index", "track_chunk_idx", absent("track_chunk_idx")},
        Violation{"index_without_tracked", "track_chunk_idx", absent("tracked_states")},
        Violation{"chunk_states_too_few", "chunk_states", with_size("chunk_states", 0, 2)},
        Violation{"q_strided_last_axis", "q", with_stride("q", 3, 2)},
        Violation{"v_negative_stride", "v", with_stride("v", 1, -256)},
        Violation{"q_token_stride_unaligned", "q", with_stride("q", 1, 257)},
        Violation{"k_base_unaligned", "k", shifted("k", 2)},
        Violation{"q_base_not_an_element", "q", shifted("q", 1)},
        Violation{"state_inner_stride", "initial_state", with_stride("initial_state", 2, 132)},
        Violation{"out_overlaps_itself", "out", with_stride("out", 1, 128)},
        Violation{"final_slots_overlap", "final_state", with_stride("final_state", 0, 128)},
        Violation{"q_null", "q", null_data("q")},
        Violation{"out_is_v", "out", aliasing("out", "v")},
        Violation{"out_is_q", "out", aliasing("out", "q")},
        Violation{"final_partly_initial", "final_state",
                  [](Call& c) {
                    TensorView& t = c.tensors.at("final_state");
                    t.data = static_cast<float*>(c.tensors.at("initial_state").data) + 128;
                  }},
        Violation{"chunk_states_is_final", "final_state", aliasing("chunk_states", "final_state")},
        Violation{"span_past_2_62", "q", with_stride("q", 1, std::int64_t{1} << 60)},
        Violation{"mixed_devices", "v", on_cuda("v")},
        Violation{"cu_seqlens_starts_late", "cu_seqlens", with_values("cu_seqlens", {1, 66, 70})},
        Violation{"cu_seqlens_decreases", "cu_seqlens", with_values("cu_seqlens", {0, 71, 70})},
        Violation{"cu_seqlens_ends_early", "cu_seqlens", with_values("cu_seqlens", {0, 66, 69})},
        Violation{"cu_seqlens_ends_late", "cu_seqlens", with_values("cu_seqlens", {0, 66, 72})},
        Violation{"index_past_the_pool", "state_indices", with_values("state_indices", {3, 4})},
        Violation{"track_past_the_end", "track_chunk_idx", with_values("track_chunk_idx", {2, -1})},
        Violation{"track_minus_2", "track_chunk_idx", with_values("track_chunk_idx", {-2, -1})},
        Violation{"scale_nan", "scale", with_scalar("scale", "nan")},
        Violation{"scale_inf", "scale", with_scalar("scale", "inf")},
        Violation{"lower_bound_0", "lower_bound", with_scalar("lower_bound", "0")},
        Violation{"lower_bound_positive", "lower_bound", with_scalar("lower_bound", "5")},
        Violation{"lower_bound_minus_inf", "lower_bound", with_scalar("lower_bound", "-inf")},
        Violation{"no_gate_parameters", "A_log",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }},
        Violation{"neg_eigval_without_sigmoid", "allow_neg_eigval",
                  [](Call& c) {
                    c.scalars["allow_neg_eigval"] = "1";
                    c.scalars["beta_sigmoid"] = "0";
                  }},
        Violation{"layout_unknown", "state_layout", with_scalar("state_layout", "K,V")}),
    [](const auto& info) { return info.param.name; });

TEST(KdaPrefillContractAccepts, TheValidCallItself) {
  const Driver& driver = *find_driver("kda_prefill");
  Bundle bundle = valid_bundle();
  const Call call = host_call(driver, bundle);
  std::vector<std::byte> scratch(driver.workspace_size(call, {}) + 64);
  ExecContext ctx;
  ctx.workspace = {
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64),
      scratch.size() - 64};
  EXPECT_NO_THROW(driver.run(call, ctx));
}

TEST(KdaPrefillContractAccepts, NoWorkspaceIsNamed) {
  const Driver& driver = *find_driver("kda_prefill");
  Bundle bundle = valid_bundle();
  const Bundle before = bundle.clone();
  const Call call = host_call(driver, bundle);
  try {
    driver.run(call, {});
    ADD_FAILURE() << "ran without a workspace";
  } catch (const ContractError& e) {
    EXPECT_EQ(e.argument(), "workspace");
  }
  EXPECT_EQ(std::memcmp(bundle.tensors.at("final_state").storage(),
                        before.tensors.at("final_state").storage(),
                        before.tensors.at("final_state").storage_bytes()),
            0);
}

}  // namespace
}  // namespace k3::harness
