// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_prefill.h"
#include "harness/inputs.h"
#include "harness/ops/args.h"
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
        Violation{"q_absent", "q", "must be given", absent("q")},
        Violation{"out_absent", "out", "must be given", absent("out")},
        Violation{"beta_absent", "beta", "must be given", absent("beta")},
        Violation{"q_f16", "q", "must be bf16", with_dtype("q", DType::kF16)},
        Violation{"v_f32", "v", "must be bf16", with_dtype("v", DType::kF32)},
        Violation{"g_i32", "g", "must be bf16 or f32", with_dtype("g", DType::kI32)},
        Violation{"out_f32", "out", "must be bf16", with_dtype("out", DType::kF32)},
        Violation{"cu_seqlens_f32", "cu_seqlens", "must be i32 or i64",
                  with_dtype("cu_seqlens", DType::kF32)},
        Violation{"state_mixed_dtypes", "final_state", "must have the dtype of initial_state",
                  with_dtype("final_state", DType::kBF16)},
        Violation{"tracked_bf16", "tracked_states", "must be f32",
                  with_dtype("tracked_states", DType::kBF16)},
        Violation{"q_rank_3", "q", "must have rank 4", with_rank("q", 3)},
        Violation{"q_rank_99", "q", "must have rank 4", with_rank("q", 99)},
        Violation{"beta_rank_2", "beta", "must have rank 3", with_rank("beta", 2)},
        Violation{"k_shorter", "k", "must have shape [B, T, H, 128]", with_size("k", 1, 69)},
        Violation{"v_head_dim_64", "v", "must have shape [B, T, HV, 128]", with_size("v", 3, 64)},
        Violation{"q_head_dim_256", "q", "must have shape [B, T, H, 128]", with_size("q", 3, 256)},
        Violation{"q_negative_size", "q", "must have no negative size", with_size("q", 1, -1)},
        Violation{"q_no_heads", "q", "must have at least one head",
                  [](Call& c) { c.tensors.at("q").shape[2] = c.tensors.at("k").shape[2] = 0; }},
        Violation{"heads_not_a_multiple", "v", "must have a multiple of q's heads",
                  with_size("v", 2, 3)},
        Violation{"out_fewer_heads", "out", "must have shape [B, T, HV, 128]",
                  with_size("out", 2, 1)},
        Violation{"a_log_padded", "A_log", "must have shape [HV]", with_size("A_log", 0, 1)},
        Violation{"dt_bias_short", "dt_bias", "must have shape [HV, 128]",
                  with_size("dt_bias", 1, 127)},
        Violation{"batch_with_cu_seqlens", "q", "must have B = 1 where cu_seqlens is given",
                  [](Call& c) {
                    for (const char* name : {"q", "k", "v", "g", "beta", "out"}) {
                      TensorView& t = c.tensors.at(name);
                      t.shape[0] = 2;
                      t.shape[1] = 35;
                      t.strides[0] = 35 * t.strides[1];
                    }
                  }},
        Violation{"cu_seqlens_one_entry", "cu_seqlens", "must have N + 1 >= 2 entries",
                  with_size("cu_seqlens", 0, 1)},
        Violation{"state_rows", "final_state", "must have the rows of initial_state",
                  with_size("final_state", 0, 3)},
        Violation{"state_heads", "initial_state", "must have shape [rows, HV, 128, 128]",
                  with_size("initial_state", 1, 1)},
        Violation{"indices_short", "state_indices", "must have shape [N]",
                  with_size("state_indices", 0, 1)},
        Violation{"indices_without_a_pool", "state_indices",
                  "must come with a pool (initial_state or final_state)",
                  [](Call& c) {
                    c.tensors.erase("initial_state");
                    c.tensors.erase("final_state");
                  }},
        Violation{"tracked_without_index", "track_chunk_idx",
                  "must be given exactly when tracked_states is", absent("track_chunk_idx")},
        Violation{"index_without_tracked", "track_chunk_idx",
                  "must be given exactly when tracked_states is", absent("tracked_states")},
        Violation{"chunk_states_too_few", "chunk_states",
                  "must have a row for every chunk of 64 tokens", with_size("chunk_states", 0, 2)},
        Violation{"q_strided_last_axis", "q", "must have unit stride along its last axis",
                  with_stride("q", 3, 2)},
        Violation{"v_negative_stride", "v", "must have no negative stride",
                  with_stride("v", 1, -256)},
        Violation{"q_token_stride_unaligned", "q", "must have strides of multiples of 16 bytes",
                  with_stride("q", 1, 257)},
        Violation{"k_base_unaligned", "k", "must start at a multiple of 16 bytes", shifted("k", 2)},
        Violation{"q_base_not_an_element", "q", "must be aligned to its 2-byte element",
                  shifted("q", 1)},
        Violation{"state_inner_stride", "initial_state", "must be dense from axis 1 on",
                  with_stride("initial_state", 2, 132)},
        Violation{"out_overlaps_itself", "out", "no two of its elements may share",
                  with_stride("out", 1, 128)},
        Violation{"final_slots_overlap", "final_state", "no two of its elements may share",
                  with_stride("final_state", 0, 128)},
        Violation{"q_null", "q", "must have a pointer", null_data("q")},
        Violation{"out_is_v", "out", "must not overlap v", aliasing("out", "v")},
        Violation{"out_is_q", "out", "must not overlap q", aliasing("out", "q")},
        Violation{"final_partly_initial", "final_state", "must not overlap initial_state",
                  [](Call& c) {
                    // Three of the pool's four slots, so that both views stay inside its memory.
                    TensorView& first = c.tensors.at("initial_state");
                    first.shape[0] = 3;
                    c.tensors.at("final_state") = first;
                    c.tensors.at("final_state").data = static_cast<float*>(first.data) + 128;
                  }},
        Violation{"chunk_states_is_final", "final_state", "must not overlap chunk_states",
                  aliasing("chunk_states", "final_state")},
        Violation{"tracked_on_out", "out", "must not overlap tracked_states",
                  sharing_memory("out", "tracked_states")},
        Violation{"chunk_states_on_tracked", "chunk_states", "must not overlap tracked_states",
                  sharing_memory("chunk_states", "tracked_states")},
        Violation{"out_on_final", "out", "must not overlap final_state",
                  sharing_memory("out", "final_state")},
        Violation{"dt_bias_flat_and_short", "dt_bias", "must have shape [HV*128]",
                  [](Call& c) {
                    with_rank("dt_bias", 1)(c);
                    with_size("dt_bias", 0, 255)(c);
                  }},
        Violation{"g_flat_and_short", "g", "must have shape [B, T, HV*128]",
                  [](Call& c) {
                    with_rank("g", 3)(c);
                    with_size("g", 2, 255)(c);
                  }},
        Violation{"beta_strided", "beta", "must have unit stride along its last axis",
                  with_stride("beta", 2, 2)},
        Violation{"a_log_strided", "A_log", "must be dense from axis 0 on",
                  with_stride("A_log", 0, 2)},
        Violation{"cu_seqlens_strided", "cu_seqlens", "must be dense from axis 0 on",
                  with_stride("cu_seqlens", 0, 2)},
        Violation{"indices_strided", "state_indices", "must be dense from axis 0 on",
                  with_stride("state_indices", 0, 2)},
        Violation{"tracks_strided", "track_chunk_idx", "must be dense from axis 0 on",
                  with_stride("track_chunk_idx", 0, 2)},
        Violation{"tracks_short", "track_chunk_idx", "must have shape [N]",
                  with_size("track_chunk_idx", 0, 1)},
        Violation{"span_past_2_62", "q", "must span less than 2^62 bytes",
                  with_stride("q", 1, std::int64_t{1} << 60)},
        Violation{"mixed_devices", "v", "must be on cpu like the other tensors", on_cuda("v")},
        Violation{"cu_seqlens_starts_late", "cu_seqlens", "must start at 0",
                  with_values("cu_seqlens", {1, 66, 70})},
        Violation{"cu_seqlens_decreases", "cu_seqlens", "must never decrease",
                  with_values("cu_seqlens", {0, 71, 70})},
        Violation{"cu_seqlens_ends_early", "cu_seqlens", "must end at the number of tokens",
                  with_values("cu_seqlens", {0, 66, 69})},
        Violation{"cu_seqlens_ends_late", "cu_seqlens", "must end at the number of tokens",
                  with_values("cu_seqlens", {0, 66, 72})},
        Violation{"index_past_the_pool", "state_indices",
                  "must be negative (padding) or below the pool's",
                  with_values("state_indices", {3, 4})},
        Violation{"track_past_the_end", "track_chunk_idx", "must be -1 or in [0,",
                  with_values("track_chunk_idx", {2, -1})},
        Violation{"track_minus_2", "track_chunk_idx", "must be -1 or in [0,",
                  with_values("track_chunk_idx", {-2, -1})},
        Violation{"scale_nan", "scale", "must be finite", with_scalar("scale", "nan")},
        Violation{"scale_inf", "scale", "must be finite", with_scalar("scale", "inf")},
        Violation{"lower_bound_0", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "0")},
        Violation{"lower_bound_positive", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "5")},
        Violation{"lower_bound_minus_inf", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "-inf")},
        Violation{"no_gate_parameters", "A_log",
                  "must be given where gate_in_kernel is set and lower_bound is absent",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }},
        Violation{"gate_parameters_without_gate", "lower_bound", "only with gate_in_kernel",
                  with_scalar("gate_in_kernel", "0")},
        Violation{"neg_eigval_without_sigmoid", "allow_neg_eigval", "needs beta_sigmoid",
                  [](Call& c) {
                    c.scalars["allow_neg_eigval"] = "1";
                    c.scalars["beta_sigmoid"] = "0";
                  }},
        Violation{"qk_l2norm_unknown", "qk_l2norm", "must be 0, 1, true or false",
                  with_scalar("qk_l2norm", "maybe")},
        Violation{"gate_in_kernel_unknown", "gate_in_kernel", "must be 0, 1, true or false",
                  with_scalar("gate_in_kernel", "2")},
        Violation{"beta_sigmoid_unknown", "beta_sigmoid", "must be 0, 1, true or false",
                  with_scalar("beta_sigmoid", "yes")},
        Violation{"neg_eigval_unknown", "allow_neg_eigval", "must be 0, 1, true or false",
                  with_scalar("allow_neg_eigval", "-1")},
        Violation{"layout_unknown", "state_layout", "must be N,HV,V,K or N,HV,K,V",
                  with_scalar("state_layout", "K,V")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    EveryTensor, KdaPrefillContract,
    testing::ValuesIn(rules_of_every_tensor(*find_driver("kda_prefill"), valid_bundle(),
                                            {{"final_state", "initial_state"}})),
    violation_name);

TEST(KdaPrefillScalars, AValueOutsideItsEnumIsRefused) {
  Bundle bundle = valid_bundle();
  KdaPrefillArgs args;
  set_tensors(kda_prefill_args(), host_call(*find_driver("kda_prefill"), bundle), args);
  args.gate_in_kernel = true;
  args.state_layout = static_cast<StateLayout>(7);
  expect_refused([&] { kda_prefill(args); }, "state_layout", "must be one of its enumerators");
}

TEST(KdaPrefillWorkspace, MayNotOverlapATensor) {
  const Driver& driver = *find_driver("kda_prefill");
  Bundle bundle = valid_bundle();
  const Bundle before = bundle.clone();
  const Call call = host_call(driver, bundle);
  ExecContext ctx;
  ctx.threads = 1;  // its scratch fits into the pool
  ctx.workspace = {bundle.tensors.at("initial_state").storage(),
                   bundle.tensors.at("initial_state").storage_bytes()};
  expect_refused([&] { driver.run(call, ctx); }, "workspace", "must not overlap initial_state");
  EXPECT_EQ(std::memcmp(bundle.tensors.at("initial_state").storage(),
                        before.tensors.at("initial_state").storage(),
                        before.tensors.at("initial_state").storage_bytes()),
            0);
}

TEST(KdaPrefillWorkspace, IsChecked) {
  expect_workspace_checked(*find_driver("kda_prefill"), valid_bundle());
}

}  // namespace
}  // namespace k3::harness
