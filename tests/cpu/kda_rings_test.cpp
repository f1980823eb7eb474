// SPDX-License-Identifier: Apache-2.0
// The rings of kda_verify hold what its chain was made of: a replay with the parts of a decode step
// gives the state after every token bit for bit, on every target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu/kda_rings_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cstring>
#include <vector>

#include "cpu/kda_step-inl.h"
#include "harness/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// Tokens after which the replayed state of one head differs from its snapshot.
int replay_differences(const harness::Bundle& rings, const harness::Bundle& snapshots, int tokens) {
  using step::kD;
  const auto data = [](const harness::Bundle& b, const char* name) {
    return b.tensors.at(name).view().data;
  };
  const auto* const ring_k = static_cast<const bf16*>(data(rings, "ring_k"));
  const auto* const ring_v = static_cast<const bf16*>(data(rings, "ring_v"));
  const auto* const ring_g = static_cast<const float*>(data(rings, "ring_g"));
  const auto* const ring_beta = static_cast<const float*>(data(rings, "ring_beta"));
  const auto* const before = static_cast<const float*>(data(rings, "state"));
  const auto* const after = static_cast<const float*>(data(snapshots, "snapshots"));
  std::vector<float> state(before, before + kD * kD);
  int differences = 0;
  step::Head head = {};  // q = 0: only the state counts
  for (int t = 0; t < tokens; ++t) {
    step::for_channels([&](auto d, int i) HWY_ATTR {
      hn::Store(load_bf16(d, ring_k + t * kD + i), d, head.k + i);
      hn::Store(load_bf16(d, ring_v + t * kD + i), d, head.v + i);
      hn::Store(exp_nonpositive(d, hn::LoadU(d, ring_g + t * kD + i)), d, head.decay + i);
    });
    head.beta = ring_beta[t];
    step::normalise(head.k, 1.0F);
    step::finish(head);
    for (int row = 0; row < kD; row += step::kRows) {
      step::Pending<float> pending;
      float* const rows = state.data() + row * kD;
      const step::RowDots dots = step::row_dots(head, rows, pending, [] {});
      pending.rows = rows;
      hn::Store(step::correction(head, dots, row), T128Quad(), pending.u);
      step::update_rows(head, pending);
    }
    differences += std::memcmp(state.data(), after + t * kD * kD, kD * kD * sizeof(float)) != 0;
  }
  return differences;
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/targets.h"
#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::cpu {
namespace {

HWY_EXPORT(replay_differences);

TEST(KdaRings, AReplayGivesTheStateAfterEveryToken) {
  constexpr int kTokens = 8;
  using harness::VerifyOutputs;
  for (const std::string& target : compiled_targets()) {
    if (!use_target(target)) continue;
    for (const char* lower_bound : {"-5", ""}) {
      harness::Bundle rings = harness::verify_layer({.N = 1, .T = kTokens, .H = 1});
      harness::Bundle snapshots = harness::verify_layer(
          {.N = 1, .T = kTokens, .H = 1, .outputs = VerifyOutputs::kSnapshots});
      rings.scalars["lower_bound"] = snapshots.scalars["lower_bound"] = lower_bound;
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(replay_differences)(harness::run_cpu("kda_verify", rings),
                                                         harness::run_cpu("kda_verify", snapshots),
                                                         kTokens),
                0)
          << target << " lower_bound " << lower_bound;
    }
  }
  use_target("");
}

}  // namespace
}  // namespace k3::cpu
#endif  // HWY_ONCE
