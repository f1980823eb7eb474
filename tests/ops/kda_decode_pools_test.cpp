// SPDX-License-Identifier: Apache-2.0
// What the decode ops do to paged pools, on every backend: one call over all layers is a loop over
// them, and no byte changes or counts that does not belong to a live request.
#include "tests/ops/kda_decode_family.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Between slots, in elements. An odd one keeps variants with wide accesses away.
constexpr std::int64_t kGaps[] = {292, 333};

/// The variant under test, or the one that the library takes where that refuses the strides.
Bundle run_or_fall_back(const Machine& machine, const char* op, const Bundle& bundle) {
  try {
    return run_on(machine.on, op, bundle, machine.variant);
  } catch (const UnsupportedError&) {
    return run_on(machine.on, op, bundle);
  }
}

/// A pool of NaN with `rows` rows, `gap` elements between two of them and `gap % 8` before the
/// first; row rows_used[n] holds row n of `dense`.
Tensor spread(const Tensor& dense, std::int64_t rows, const std::vector<std::int64_t>& rows_used,
              std::int64_t gap) {
  auto shape = dense.shape();
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = d == 0 ? stride + gap : stride;
    stride *= shape[d];
  }
  shape[0] = rows;
  Tensor pool = Tensor::strided(dense.dtype(), shape, strides, gap % 8);
  pool.fill(kNaN);
  for (std::size_t n = 0; n < rows_used.size(); ++n)
    put_row(pool, rows_used[n], dense, static_cast<std::int64_t>(n));
  return pool;
}

/// `call` after a run that changed rows_used[n] of `name` to row n of `dense`, and nothing else.
void expect_row(Bundle& call, const char* name, const std::vector<std::int64_t>& rows_used,
                const Bundle& dense) {
  for (std::size_t n = 0; n < rows_used.size(); ++n)
    put_row(call.tensors.at(name), rows_used[n], dense.tensors.at(name),
            static_cast<std::int64_t>(n));
}

void expect_zeros(Bundle& call, std::int64_t row) {
  Tensor& out = call.tensors.at("out");
  const std::int64_t columns = out.shape()[1];
  for (std::int64_t c = 0; c < columns; ++c) out.set(row * columns + c, 0.0);
}

class DecodeAmongOthers : public FamilyTest {
 protected:
  /// Three requests by themselves, and the same ones among NaN: padding rows between them, slots
  /// that nobody names, gaps.
  static void expect_alone(const char* op, bool has_window, DType state, std::int64_t gap) {
    const std::vector<std::int64_t> rows = {1, 2, 4};
    const std::vector<std::int64_t> slots = {6, 1, 3};
    const DecodeLayer layer = {.B = 3, .H = 3, .indices = {0, 1, 2}};
    Bundle dense = has_window ? decode_layer(layer) : packed_layer(layer);
    draw_pools(dense, state, 41);
    Bundle input = dense.clone();
    for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
      if (dense.tensors.contains(name))
        input.tensors[name] = spread(dense.tensors.at(name), 5, rows, gap);
    for (const char* name : {"state", "conv_states"})
      if (dense.tensors.contains(name))
        input.tensors[name] = spread(dense.tensors.at(name), 8, slots, gap);
    input.tensors["state_indices"] = integers(DType::kI32, {-1, 6, 1, -7, 3});

    const Bundle result = run_or_fall_back(GetParam(), op, input);
    const Bundle alone = run_other(op, dense);
    Bundle expected = input.clone();
    expect_row(expected, "out", rows, alone);
    for (const std::int64_t padding : {0, 3}) expect_zeros(expected, padding);
    for (const char* name : {"state", "conv_states"})
      if (dense.tensors.contains(name)) expect_row(expected, name, slots, alone);
    EXPECT_NE(difference(input, result), "");
    EXPECT_EQ(difference(expected, result), "") << op << ", gap " << gap;
  }
};

class FusedDecodeAmongOthers : public DecodeAmongOthers {};
class PackedDecodeAmongOthers : public DecodeAmongOthers {};

TEST_P(FusedDecodeAmongOthers, LeavesEveryOtherByte) {
  for (const DType state : {DType::kF32, DType::kBF16})
    for (const std::int64_t gap : kGaps) expect_alone("kda_fused_decode", true, state, gap);
}

TEST_P(PackedDecodeAmongOthers, LeavesEveryOtherByte) {
  for (const DType state : {DType::kF32, DType::kBF16})
    for (const std::int64_t gap : kGaps) expect_alone("kda_packed_decode", false, state, gap);
}

INSTANTIATE_TEST_SUITE_P(All, FusedDecodeAmongOthers,
                         testing::ValuesIn(machines_of("kda_fused_decode")),
                         [](const auto& info) { return name_of(info.param); });
INSTANTIATE_TEST_SUITE_P(All, PackedDecodeAmongOthers,
                         testing::ValuesIn(machines_of("kda_packed_decode")),
                         [](const auto& info) { return name_of(info.param); });

class VerifyAmongOthers : public FamilyTest {};

/// Chains of 2, 4 and 1 tokens, by themselves and among NaN: tokens that belong to padding or to
/// nobody, rows of rings and scratch that nobody names, tokens past a request's last.
TEST_P(VerifyAmongOthers, LeavesEveryOtherByte) {
  const std::vector<std::int64_t> slots = {6, 1, 3};
  const std::vector<std::int64_t> ring_rows = {0, 5, 2};
  const std::vector<std::int64_t> scratch_rows = {4, 2, 1};
  const std::vector<std::int64_t> tokens = {1, 2, 6, 7, 8, 9, 10};
  for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots})
    for (const DType state : {DType::kF32, DType::kBF16})
      for (const std::int64_t gap : kGaps) {
        Bundle dense = verify_layer(
            {.N = 3, .T = 4, .H = 3, .indices = {0, 1, 2}, .outputs = outputs, .seed = 43});
        draw_pools(dense, state, 47);
        dense.tensors["query_start_loc"] = integers(DType::kI32, {0, 2, 6, 7});
        dense.scalars["max_query_len"] = "4";
        Bundle input = dense.clone();
        for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
          input.tensors[name] = spread(slice(dense.tensors.at(name), 0, 0, 7), 16, tokens, gap);
        for (const char* name : {"state", "conv_states"})
          input.tensors[name] = spread(dense.tensors.at(name), 8, slots, gap);
        for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"})
          if (dense.tensors.contains(name))
            input.tensors[name] = spread(dense.tensors.at(name), 6, ring_rows, gap);
        for (const char* name : {"conv_scratch", "snapshots"})
          if (dense.tensors.contains(name))
            input.tensors[name] = spread(dense.tensors.at(name), 7, scratch_rows, gap);
        input.tensors["state_indices"] = integers(DType::kI32, {6, -1, 1, 3, -1});
        input.tensors["query_start_loc"] = integers(DType::kI32, {1, 3, 6, 10, 11, 13});
        if (outputs == VerifyOutputs::kRings)
          input.tensors["ring_indices"] = integers(DType::kI32, {0, 1, 5, 2, 3});
        input.tensors["scratch_indices"] = integers(DType::kI32, {4, 0, 2, 1, 3});

        const Bundle result = run_or_fall_back(GetParam(), "kda_verify", input);
        Bundle alone = run_other("kda_verify", dense);
        alone.tensors["out"] = slice(alone.tensors.at("out"), 0, 0, 7);
        Bundle expected = input.clone();
        expect_row(expected, "out", tokens, alone);
        for (const std::int64_t padding : {3, 4, 5, 11, 12}) expect_zeros(expected, padding);
        for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"})
          if (dense.tensors.contains(name)) expect_row(expected, name, ring_rows, alone);
        for (const char* name : {"conv_scratch", "snapshots"})
          if (dense.tensors.contains(name)) expect_row(expected, name, scratch_rows, alone);
        EXPECT_NE(difference(input, result), "");
        EXPECT_EQ(difference(expected, result), "") << "gap " << gap;
      }
}

INSTANTIATE_TEST_SUITE_P(All, VerifyAmongOthers, testing::ValuesIn(machines_of("kda_verify")),
                         [](const auto& info) { return name_of(info.param); });

class CommitAmongOthers : public FamilyTest {};

/// One layer of a commit call, without the layer axis.
Bundle layer_of(const Bundle& all, std::int64_t layer) {
  Bundle one = all.clone();
  for (auto& [name, tensor] : one.tensors) {
    if (name.ends_with("_indices") || name.ends_with("_lens") || name.ends_with("_steps")) continue;
    const auto& shape = tensor.shape();
    Tensor cut = Tensor::dense(tensor.dtype(), {shape.begin() + 1, shape.end()});
    for (std::int64_t i = 0; i < cut.numel(); ++i) cut.set(i, tensor.get(layer * cut.numel() + i));
    tensor = cut;
  }
  return one;
}

/// Every value is one of its layer, row and token.
Bundle distinct_layers(std::int64_t layers, std::int64_t B, DType state, DType ring_g) {
  Bundle b = commit_layers({.layers = layers, .B = B, .H = 3, .A = 4, .L = 8});
  Random random(53);
  b.tensors["state"] = uniform(random, state, b.tensors.at("state").shape(), -2.0, 2.0);
  b.tensors["ring_g"] = uniform(random, ring_g, b.tensors.at("ring_g").shape(), -3.0, -0.1);
  for (const char* name : {"ring_k", "ring_v", "conv_states", "conv_scratch"})
    b.tensors[name] = normal(random, DType::kBF16, b.tensors.at(name).shape());
  b.tensors["ring_beta"] = uniform(random, DType::kF32, b.tensors.at("ring_beta").shape(), 0.1, 1);
  if (ring_g == DType::kF32) return b;
  b.tensors["A_log"] = uniform(random, DType::kF32, {layers, 3}, 0.0, 1.0);
  b.tensors["dt_bias"] = normal(random, DType::kF32, {layers, 3 * kHeadDim});
  b.scalars["lower_bound"] = "-5";
  return b;
}

/// Three requests that take over 2, 0 and 8 of 8 tokens, by themselves and among NaN: padding, rows
/// and slots that nobody names, tokens and windows past the accepted ones.
TEST_P(CommitAmongOthers, LeavesEveryOtherByte) {
  constexpr std::int64_t kAccepted[] = {2, 0, 8};
  const std::vector<std::int64_t> slots = {6, 1, 3};
  const std::vector<std::int64_t> ring_rows = {0, 5, 2};
  const std::vector<std::int64_t> scratch_rows = {4, 2, 1};
  for (const DType state : {DType::kF32, DType::kBF16})
    for (const DType ring_g : {DType::kF32, DType::kBF16})
      for (const std::int64_t gap : kGaps) {
        Bundle dense = layer_of(distinct_layers(1, 3, state, ring_g), 0);
        dense.tensors["state_indices"] = integers(DType::kI32, {0, 1, 2});
        dense.tensors["accept_lens"] = integers(DType::kI32, {2, 0, 8});
        const Bundle alone = run_other("kda_replay_commit", dense);
        const auto forget_rejected = [&](const char* name, std::int64_t row_size) {
          Tensor& tensor = dense.tensors.at(name);
          for (std::int64_t i = 0; i < tensor.numel(); ++i)
            if (i / row_size % 8 >= kAccepted[i / (tensor.numel() / 3)]) tensor.set(i, kNaN);
        };
        for (const char* name : {"ring_k", "ring_v", "ring_g"}) forget_rejected(name, kHeadDim);
        forget_rejected("ring_beta", 1);
        forget_rejected("conv_scratch", 3 * 9 * kHeadDim);
        Bundle input = dense.clone();
        for (const char* name : {"state", "conv_states"})
          input.tensors[name] = spread(dense.tensors.at(name), 8, slots, gap);
        for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"})
          input.tensors[name] = spread(dense.tensors.at(name), 6, ring_rows, gap);
        input.tensors["conv_scratch"] =
            spread(dense.tensors.at("conv_scratch"), 7, scratch_rows, gap);
        input.tensors["state_indices"] = integers(DType::kI32, {6, -1, 1, 3, -1});
        input.tensors["accept_lens"] = integers(DType::kI32, {2, 8, 0, 8, 9});
        input.tensors["ring_indices"] = integers(DType::kI32, {0, 1, 5, 2, 99});
        input.tensors["scratch_indices"] = integers(DType::kI32, {4, 0, 2, 1, -3});

        const Bundle result = run_or_fall_back(GetParam(), "kda_replay_commit", input);
        Bundle expected = input.clone();
        for (const char* name : {"state", "conv_states"}) expect_row(expected, name, slots, alone);
        EXPECT_NE(difference(input, result), "");
        EXPECT_EQ(difference(expected, result), "") << "gap " << gap;
      }
}

/// Layers with dense slots, and a layer inside a slot with a gap behind the last.
TEST_P(CommitAmongOthers, AllLayersAreALoopOverLayers) {
  constexpr std::int64_t kLayers = 5;
  constexpr std::int64_t kB = 4;
  for (const DType state : {DType::kF32, DType::kBF16})
    for (const DType ring_g : {DType::kF32, DType::kBF16}) {
      Bundle major = distinct_layers(kLayers, kB, state, ring_g);
      major.tensors["state_indices"] = integers(DType::kI32, {2, -1, 0, 3});
      major.tensors["ring_indices"] = integers(DType::kI32, {0, 2, 1, 3});
      major.tensors["scratch_indices"] = integers(DType::kI32, {3, 1, 2, 0});
      major.tensors["accept_lens"] = integers(DType::kI32, {8, 3, 1, 0});
      major.tensors["track_indices"] = integers(DType::kI32, {1, 3, -1, 0});
      major.tensors["track_steps"] = integers(DType::kI32, {4, 0, 0, -1});
      for (const std::int64_t gap : {std::int64_t{-1}, kGaps[0], kGaps[1]}) {  // -1: layer-major
        Bundle input = major.clone();
        for (const char* name : {"state", "conv_states"}) {
          if (gap < 0) break;
          const Tensor& dense = major.tensors.at(name);
          auto strides = dense.strides();
          strides[0] = dense.numel() / (kLayers * kB);
          strides[1] = kLayers * strides[0] + gap;
          input.tensors[name] = restrided(dense, strides, gap % 8);
        }
        const Bundle result = run_or_fall_back(GetParam(), "kda_replay_commit", input);
        Bundle expected = input.clone();
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
          const Bundle one = run_other("kda_replay_commit", layer_of(major, layer));
          for (const char* name : {"state", "conv_states"}) {
            const Tensor& from = one.tensors.at(name);
            for (std::int64_t i = 0; i < from.numel(); ++i)
              expected.tensors.at(name).set(layer * from.numel() + i, from.get(i));
          }
        }
        EXPECT_NE(difference(input, result), "");
        EXPECT_EQ(difference(expected, result), "") << "gap " << gap;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, CommitAmongOthers,
                         testing::ValuesIn(machines_of("kda_replay_commit")),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace k3::harness
