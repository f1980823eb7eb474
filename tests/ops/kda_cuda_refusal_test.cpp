// SPDX-License-Identifier: Apache-2.0
// What the vectorised CUDA variants refuse on the host; no device is needed.
#include <gtest/gtest.h>

#if K3_WITH_CUDA
#include "cuda/kda_decode/kda_decode.h"
#include "cuda/kda_prefill/kda_prefill.h"
#include "cuda/kda_replay_commit/kda_replay_commit.h"
#include "cuda/kda_verify/kda_verify.h"

namespace k3::cuda {
namespace {

alignas(16) std::byte memory[16];

/// Rows of a state are asked for in pieces of 16 bytes: four elements are not enough for bf16.
template <class Problem>
Problem with_slot_stride(DType dtype, std::int64_t stride) {
  Problem p;
  p.state = memory;
  p.state_dtype = dtype;
  p.state_slot_stride = stride;
  return p;
}

template <class Problem>
void expect_sixteen_bytes(const char* (*refusal)(const Problem&, const Target&)) {
  EXPECT_EQ(refusal(with_slot_stride<Problem>(DType::kF32, 16384 + 4), {}), nullptr);
  EXPECT_EQ(refusal(with_slot_stride<Problem>(DType::kBF16, 16384 + 8), {}), nullptr);
  EXPECT_NE(refusal(with_slot_stride<Problem>(DType::kF32, 16384 + 2), {}), nullptr);
  EXPECT_NE(refusal(with_slot_stride<Problem>(DType::kBF16, 16384 + 4), {}), nullptr);
}

TEST(KdaVec4, AStateIsAlignedToSixteenBytes) {
  expect_sixteen_bytes(kda_fused_decode_vec4_refusal);
  expect_sixteen_bytes(kda_packed_decode_vec4_refusal);
  expect_sixteen_bytes(kda_verify_vec4_refusal);
  expect_sixteen_bytes(kda_replay_commit_vec4_refusal);
}

TEST(KdaPrefillOnCuda, AGridHasFewerThanTwoToThe31) {
  const auto refusal = [](std::int64_t T, int N, int HV) {
    KdaPrefillProblem p;
    p.packed = true;
    p.T = T;
    p.N = N;
    p.HV = HV;
    return kda_prefill_refusal(p, {});
  };
  constexpr std::int64_t kFits =
      (std::int64_t{1} << 31) - 3;  // chunks; one sequence, one slot more
  EXPECT_EQ(refusal(64 * kFits, 1, 1), nullptr);
  EXPECT_NE(refusal(64 * (kFits + 1), 1, 1), nullptr);
  EXPECT_NE(refusal(64 * (kFits / 3 + 1), 1, 3), nullptr);
  EXPECT_EQ(refusal(0, 1 << 20, 1 << 9), nullptr);
  EXPECT_NE(refusal(0, 1 << 20, 1 << 10), nullptr);
}

}  // namespace
}  // namespace k3::cuda
#endif
