// SPDX-License-Identifier: Apache-2.0
// Speculative decoding gives the bits of plain decoding, on every backend: a verified chain those
// of single decodes, and a commit of a prefix of it the state and the windows after as many of
// them.
#include "tests/ops/kda_decode_family.h"

namespace k3::harness {
namespace {

struct ChainShape {
  std::int64_t N;
  std::int64_t T;
  std::int64_t H;
};

class VerifyChain : public FamilyTest {
 protected:
  static void expect_equal_to_decodes(const ChainShape& shape, const StepOptions& options) {
    const auto [N, T, H] = shape;
    SCOPED_TRACE(testing::Message()
                 << "N " << N << ", T " << T << ", H " << H << ", " << text_of(options));
    Bundle input = verify_layer(
        {.N = N, .T = T, .H = H, .slots = N + 1, .outputs = VerifyOutputs::kSnapshots});
    apply(options, input);
    const Bundle chain = run_tested("kda_verify", input);
    for (const char* name : {"state", "conv_states"})
      EXPECT_TRUE(
          same_bytes(piece(input.tensors.at(name), 0, 1), piece(chain.tensors.at(name), 0, 1)))
          << name;
    const Steps steps = decode_steps(GetParam().on, input);
    for (std::int64_t i = 0; i < N * T; ++i) {
      const auto n = static_cast<std::size_t>(i / T);
      const auto t = static_cast<std::size_t>(i % T);
      const auto expect = [&](const char* name, const Bytes& expected) {
        EXPECT_TRUE(same_bytes(expected, piece(chain.tensors.at(name), i, N * T)))
            << name << " of request " << n << ", token " << t;
      };
      expect("out", steps.out[n][t]);
      expect("conv_scratch", steps.window[n][t + 1]);
      expect("snapshots", steps.state[n][t + 1]);
      if (HasFailure()) return;
    }
  }
};

TEST_P(VerifyChain, EqualsDecodesUnderEveryOption) {
  for (const DType state : {DType::kF32, DType::kBF16})
    for (const bool safe_gate : {true, false})
      for (const bool norm : {true, false})
        for (const char* round_o : {"f32", "bf16"})
          for (const char* round_conv : {"f32", "bf16"})
            expect_equal_to_decodes({2, 8, 3}, {state, safe_gate, norm, round_o, round_conv});
}

/// Few heads, about as many as the chip has SMs, and more: a policy takes another shape for each.
TEST_P(VerifyChain, EqualsDecodesForAnyNumberOfHeads) {
  for (const ChainShape& shape : {ChainShape{2, 16, 12}, ChainShape{30, 3, 3}, ChainShape{8, 5, 12},
                                  ChainShape{50, 3, 3}, ChainShape{13, 2, 12}})
    for (const DType state : {DType::kF32, DType::kBF16}) {
      expect_equal_to_decodes(shape, {.state = state});
      expect_equal_to_decodes(shape, {state, false, false, "bf16"});
    }
}

INSTANTIATE_TEST_SUITE_P(All, VerifyChain, testing::ValuesIn(machines_of("kda_verify")),
                         [](const auto& info) { return name_of(info.param); });

class CommitAfterVerify : public FamilyTest {};

/// Four requests of 8, 5, 1 and 8 tokens, the last of them padding; nothing stands where its number
/// would say.
Bundle ragged_verify(std::int64_t H, DType ring_g, const StepOptions& options) {
  constexpr std::int64_t kSlots = 9;
  Bundle b = verify_layer({.N = 4, .T = 8, .H = H, .slots = kSlots, .indices = {7, 0, 4, -1}});
  apply(options, b);
  b.tensors["query_start_loc"] = integers(DType::kI32, {1, 9, 14, 15, 23});
  b.tensors["ring_indices"] = integers(DType::kI32, {2, 8, 0, 1});
  b.tensors["scratch_indices"] = integers(DType::kI32, {3, 0, 1, 2});
  b.tensors["ring_g"] = poisoned(ring_g, b.tensors.at("ring_g").shape());
  b.scalars["max_query_len"] = "8";
  return b;
}

/// The commit of what `verified` left. accept_lens and track_steps are for the caller to set.
Bundle commit_of(const Bundle& verified) {
  Bundle b;
  for (const char* name : {"state", "ring_k", "ring_v", "ring_g", "ring_beta", "state_indices",
                           "ring_indices", "conv_states", "conv_scratch", "scratch_indices"})
    b.tensors[name] = verified.tensors.at(name).clone();
  b.tensors["accept_lens"] = integers(DType::kI32, {0, 0, 0, 100});
  b.tensors["track_indices"] = integers(DType::kI32, {1, 8, 3, 5});
  b.tensors["track_steps"] = integers(DType::kI32, {-1, -1, -1, 0});
  if (b.tensors.at("ring_g").dtype() == DType::kBF16) {
    for (const char* name : {"A_log", "dt_bias"}) b.tensors[name] = verified.tensors.at(name);
    b.scalars["lower_bound"] = verified.scalars.at("lower_bound");
  }
  return b;
}

TEST_P(CommitAfterVerify, EqualsDecodesOfTheAcceptedTokens) {
  constexpr std::int64_t kSlots = 9;
  constexpr std::int64_t kLengths[] = {8, 5, 1};
  for (const std::int64_t H : {3, 12})
    for (const DType ring_g : {DType::kF32, DType::kBF16})
      for (const StepOptions& options :
           {StepOptions{}, StepOptions{.state = DType::kBF16}, StepOptions{.safe_gate = false},
            StepOptions{.state = DType::kBF16, .safe_gate = false, .norm = false}}) {
        const Bundle verify = ragged_verify(H, ring_g, options);
        const Steps steps = decode_steps(GetParam().on, verify);
        Bundle commit = commit_of(run_other("kda_verify", verify));
        for (std::int64_t A = 0; A <= 8; ++A) {
          SCOPED_TRACE(testing::Message() << "H " << H << ", ring_g " << k3::name_of(ring_g) << ", "
                                          << text_of(options) << ", A " << A);
          std::map<std::int64_t, std::pair<Bytes, Bytes>> expected;  // by slot: state, window
          const auto expect = [&](const char* slots, std::int64_t n, std::int64_t tokens) {
            const auto slot = static_cast<std::int64_t>(commit.tensors.at(slots).get(n));
            expected[slot] = {steps.state[n][tokens], steps.window[n][tokens]};
          };
          for (std::int64_t n = 0; n < 3; ++n) {
            const std::int64_t accepted = std::min(A, kLengths[n]);
            const std::int64_t track_step = (A + n) % 5 - 1;
            commit.tensors.at("accept_lens").set(n, static_cast<double>(accepted));
            commit.tensors.at("track_steps").set(n, static_cast<double>(track_step));
            expect("state_indices", n, accepted);
            if (track_step >= 0 && track_step < accepted)
              expect("track_indices", n, track_step + 1);
          }
          const Bundle committed = run_tested("kda_replay_commit", commit);
          for (std::int64_t slot = 0; slot < kSlots; ++slot) {
            const auto seen = [&](const Bundle& b, const char* name) {
              return piece(b.tensors.at(name), slot, kSlots);
            };
            const auto found = expected.find(slot);
            const bool named = found != expected.end();
            EXPECT_TRUE(same_bytes(seen(committed, "state"),
                                   named ? found->second.first : seen(commit, "state")))
                << "state of slot " << slot;
            EXPECT_TRUE(same_bytes(seen(committed, "conv_states"),
                                   named ? found->second.second : seen(commit, "conv_states")))
                << "window of slot " << slot;
          }
          if (HasFailure()) return;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(All, CommitAfterVerify,
                         testing::ValuesIn(machines_of("kda_replay_commit")),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace k3::harness
