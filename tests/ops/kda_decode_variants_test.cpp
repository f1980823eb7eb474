// SPDX-License-Identifier: Apache-2.0
// The variants of a decode op give the same bits as each other, and ops that share a step the same
// bits as each other, on every backend.
#include "tests/ops/kda_decode_family.h"

namespace k3::harness {
namespace {

/// An op on a backend.
struct OpOn {
  const char* op;
  RunOn on;
};

std::string name_of(const OpOn& o) {
  return std::string(o.on == RunOn::kCuda ? "on_cuda_" : "on_cpu_") + o.op;
}

void PrintTo(const OpOn& o, std::ostream* os) { *os << name_of(o); }

std::vector<OpOn> all_ops() {
  std::vector<OpOn> all;
  for (const char* op : kFamily)
    for (const RunOn on : {RunOn::kCpu, RunOn::kCuda}) all.push_back({op, on});
  return all;
}

/// Calls that take every branch of the policies: heads up to 48, 192, 1536 and more of fused
/// decode, 192, 1024 and more of packed decode, 33, 132 and more of verify.
std::vector<Bundle> inputs_of(const std::string& op) {
  std::vector<Bundle> inputs;
  const auto add = [&](Bundle bundle, DType state) {
    draw_pools(bundle, state, 31);
    inputs.push_back(std::move(bundle));
  };
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {
      {1, 12}, {8, 12}, {32, 12}, {130, 12}};  // B, H
  for (const auto& [B, H] : kSizes)
    for (const DType state : {DType::kF32, DType::kBF16}) {
      if (op == "kda_fused_decode") add(decode_layer({.B = B, .H = H}), state);
      if (op == "kda_packed_decode") add(packed_layer({.B = B, .H = H}), state);
      if (op == "kda_verify" && B <= 32)
        for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots})
          add(verify_layer({.N = B, .T = 5, .H = H, .outputs = outputs}), state);
      if (op == "kda_replay_commit" && B <= 8)
        add(commit_layers({.layers = 3, .B = B, .H = H, .A = 5}), state);
    }
  if (op == "kda_output_norm") {
    Random random(37);
    for (const std::int64_t rows : {1, 8, 700}) {
      Bundle b;
      b.tensors["raw"] = normal(random, DType::kBF16, {rows, 12 * kHeadDim});
      b.tensors["gate"] = normal(random, DType::kBF16, {rows, 12 * kHeadDim});
      b.tensors["weight"] = normal(random, DType::kF32, {kHeadDim});
      b.tensors["out"] = poisoned(DType::kBF16, {rows, 12 * kHeadDim});
      inputs.push_back(std::move(b));
    }
  }
  return inputs;
}

class VariantsOfAnOp : public testing::TestWithParam<OpOn> {
 protected:
  void SetUp() override {
    if (GetParam().on != RunOn::kCuda) return;
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

TEST_P(VariantsOfAnOp, GiveTheSameBitsTwice) {
  const auto [op, on] = GetParam();
  for (const Bundle& input : inputs_of(op)) {
    const Bundle chosen = run_on(on, op, input);
    EXPECT_NE(difference(input, chosen), "");
    for (const std::string& variant : variants_of(op, on))
      for (int run = 0; run < 2; ++run)
        ASSERT_EQ(difference(chosen, run_on(on, op, input, variant)), "")
            << variant << ", run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(All, VariantsOfAnOp, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return name_of(info.param); });

/// A decode call as a verify of one token a request: k and v after their convolution stay in rings
/// [B, H, 1, 128].
Bundle verify_one_token(RunOn on, const Bundle& fused) {
  const std::int64_t B = fused.tensors.at("beta").shape()[0];
  const std::int64_t H = fused.tensors.at("beta").shape()[1];
  Bundle verify = fused.clone();
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = 0; n <= B; ++n) numbers.push_back(n);
  verify.tensors["query_start_loc"] = integers(DType::kI32, numbers);
  numbers.pop_back();
  verify.tensors["ring_indices"] = integers(DType::kI32, numbers);
  for (const char* name : {"ring_k", "ring_v", "ring_g"})
    verify.tensors[name] = poisoned(DType::kBF16, {B, H, 1, kHeadDim});
  verify.tensors["ring_beta"] = poisoned(DType::kF32, {B, H, 1});
  return run_on(on, "kda_verify", verify);
}

/// The channels of q and k change places.
Bundle with_q_for_k(const Bundle& fused) {
  const std::int64_t segment = fused.tensors.at("g").shape()[1];
  Bundle swapped = fused.clone();
  for (const char* name : {"mixed_qkv", "conv_states", "conv_weight", "conv_bias"}) {
    const Tensor& from = fused.tensors.at(name);
    for (std::int64_t i = 0; i < from.numel(); ++i)
      if (const std::int64_t part = i / segment % 3; part < 2)
        swapped.tensors.at(name).set(i, from.get(part == 0 ? i + segment : i - segment));
  }
  return swapped;
}

class PackedDecode : public FamilyTest {};

TEST_P(PackedDecode, EqualsFusedDecodeOnConvolvedInputs) {
  constexpr std::int64_t kH = 3;
  constexpr std::int64_t kSegment = kH * kHeadDim;
  for (const std::int64_t B : {2, 40})
    for (const StepOptions& options :
         {StepOptions{.norm = false},
          StepOptions{.state = DType::kBF16, .safe_gate = false, .norm = false}}) {
      SCOPED_TRACE(testing::Message() << "B " << B << ", " << text_of(options));
      Bundle fused = decode_layer({.B = B, .H = kH, .slots = B + 2});
      apply(options, fused);
      const Bundle verified = verify_one_token(GetParam().on, fused);
      const Bundle swapped = verify_one_token(GetParam().on, with_q_for_k(fused));
      Bundle packed = fused.clone();
      for (const char* name : {"conv_states", "conv_weight", "conv_bias"})
        packed.tensors.erase(name);
      for (const char* name : {"round_o", "round_conv"}) packed.scalars.erase(name);
      const Tensor* const parts[] = {&swapped.tensors.at("ring_k"), &verified.tensors.at("ring_k"),
                                     &verified.tensors.at("ring_v")};
      for (std::int64_t i = 0; i < B * 3 * kSegment; ++i)
        packed.tensors.at("mixed_qkv")
            .set(i, parts[i / kSegment % 3]->get(i / (3 * kSegment) * kSegment + i % kSegment));
      const Bundle a = run_other("kda_fused_decode", fused);
      const Bundle b = run_tested("kda_packed_decode", packed);
      EXPECT_FALSE(
          same_bytes(piece(fused.tensors.at("state"), 0, 1), piece(a.tensors.at("state"), 0, 1)));
      for (const char* name : {"state", "out"})
        EXPECT_TRUE(same_bytes(piece(a.tensors.at(name), 0, 1), piece(b.tensors.at(name), 0, 1)))
            << name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, PackedDecode, testing::ValuesIn(machines_of("kda_packed_decode")),
                         [](const auto& info) { return name_of(info.param); });

class OutputNorm : public FamilyTest {};

TEST_P(OutputNorm, AfterADecodeWithoutNormEqualsOneWithIt) {
  for (const auto& [B, H] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {8, 12}, {50, 12}}) {
    Bundle whole = decode_layer({.B = B, .H = H});
    apply({.round_o = "bf16"}, whole);
    Bundle bare = whole.clone();
    bare.tensors.erase("onorm_gate");
    bare.tensors.erase("onorm_weight");
    Bundle norm;
    norm.tensors["raw"] = run_other("kda_fused_decode", bare).tensors.at("out");
    norm.tensors["gate"] = whole.tensors.at("onorm_gate");
    norm.tensors["weight"] = whole.tensors.at("onorm_weight");
    norm.tensors["out"] = poisoned(DType::kBF16, {B, H * kHeadDim});
    EXPECT_TRUE(same_bytes(piece(run_other("kda_fused_decode", whole).tensors.at("out"), 0, 1),
                           piece(run_tested("kda_output_norm", norm).tensors.at("out"), 0, 1)))
        << "B " << B << ", H " << H;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OutputNorm, testing::ValuesIn(machines_of("kda_output_norm")),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace k3::harness
