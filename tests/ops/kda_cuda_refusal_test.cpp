// SPDX-License-Identifier: Apache-2.0
// What the vectorised CUDA variants refuse on the host; no device is needed.
#include <gtest/gtest.h>

#if K3_WITH_CUDA
#include "cuda/kda_decode/kda_decode.h"
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

}  // namespace
}  // namespace k3::cuda
#endif
