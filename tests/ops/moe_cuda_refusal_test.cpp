// SPDX-License-Identifier: Apache-2.0
// What the MoE ops' faster CUDA variants refuse on the host; no device is needed.
#include <gtest/gtest.h>

#if K3_WITH_CUDA
#include <tuple>

#include "cuda/moe_align/moe_align.h"
#include "cuda/moe_front/moe_front.h"
#include "cuda/moe_pack_topk/moe_pack_topk.h"
#include "cuda/moe_route_quant/moe_route_quant.h"
#include "cuda/moe_route_topk/moe_route_topk.h"

namespace k3::cuda {
namespace {

alignas(16) std::byte memory[64];

template <class T>
T* at(int bytes) {
  return reinterpret_cast<T*>(memory + bytes);
}

MoeRouteTopkProblem router(int experts, int topk) {
  MoeRouteTopkProblem p;
  p.num_experts = experts;
  p.options.topk = topk;
  return p;
}

TEST(MoeRouteTopkOnCuda, OneKernelIsForTheNumbersOfK3) {
  EXPECT_EQ(moe_route_topk_16_of_896_refusal(router(896, 16), {}), nullptr);
  EXPECT_NE(moe_route_topk_16_of_896_refusal(router(895, 16), {}), nullptr);
  EXPECT_NE(moe_route_topk_16_of_896_refusal(router(896, 17), {}), nullptr);
}

TEST(MoeRouteQuantOnCuda, OneLaunchTakesAlignedRowsOfK3) {
  const auto refusal = [](int experts, int group, int x, std::int64_t x_stride, int q) {
    MoeRouteQuantProblem p;
    p.routing = router(experts, 16);
    p.quant.group_size = group;
    p.quant.input = at<void>(x);
    p.quant.input_stride = x_stride;
    p.quant.output_q = at<std::uint8_t>(q);
    return moe_route_quant_one_launch_refusal(p, {});
  };
  EXPECT_EQ(refusal(896, 32, 0, 4608, 0), nullptr);
  EXPECT_NE(refusal(256, 32, 0, 4608, 0), nullptr);
  EXPECT_NE(refusal(896, 48, 0, 4608, 0), nullptr);
  EXPECT_NE(refusal(896, 32, 2, 4608, 0), nullptr);
  EXPECT_NE(refusal(896, 32, 0, 4604, 0), nullptr);
  EXPECT_NE(refusal(896, 32, 0, 4608, 4), nullptr);
}

TEST(MoeFrontEpilogueOnCuda, OneLaunchTakesAlignedRowsOfK3) {
  const auto refusal = [](std::int64_t L, int latent, std::int64_t stride, int routed) {
    MoeFrontEpilogueProblem p;
    p.routing = router(896, 16);
    p.L = L;
    p.latent = at<float>(latent);
    p.latent_stride = stride;
    p.routed = at<bf16>(routed);
    p.routed_stride = L;
    return moe_front_epilogue_one_launch_refusal(p, {});
  };
  EXPECT_EQ(refusal(3584, 0, 4480, 0), nullptr);
  EXPECT_NE(refusal(3580, 0, 4480, 0), nullptr);
  EXPECT_NE(refusal(3584, 4, 4480, 0), nullptr);
  EXPECT_NE(refusal(3584, 0, 4482, 0), nullptr);
  EXPECT_NE(refusal(3584, 0, 4480, 8), nullptr);
}

TEST(MoeFrontOnCuda, TheLibraryTakesNoRowsThatOverlap) {
  MoeFrontProblem p;
  p.T = 2;
  p.N = 4;
  p.H = 64;
  p.hidden_stride = 63;
  p.weight_stride = 64;
  EXPECT_STREQ(moe_front_cublaslt_refusal(p, {}), "rows of hidden overlap");
  p.hidden_stride = 64;
  p.weight_stride = 0;
  EXPECT_STREQ(moe_front_cublaslt_refusal(p, {}), "rows of weight overlap");
}

TEST(MoePackTopkOnCuda, QuadsAreAligned) {
  const auto refusal = [](std::int64_t columns, bool wide, std::int64_t ids_stride, int packed) {
    MoePackTopkProblem p;
    p.num_rows = 2;
    p.columns = columns;
    p.ids = at<void>(0);
    p.wide_ids = wide;
    p.ids_stride = ids_stride;
    p.weights = at<float>(0);
    p.weights_stride = columns;
    p.packed = at<std::int32_t>(packed);
    p.packed_stride = columns;
    return moe_pack_topk_vec4_refusal(p, {});
  };
  EXPECT_EQ(refusal(16, false, 20, 0), nullptr);
  EXPECT_EQ(refusal(16, true, 18, 0), nullptr);
  EXPECT_NE(refusal(16, false, 18, 0), nullptr);
  EXPECT_NE(refusal(18, false, 20, 0), nullptr);
  EXPECT_NE(refusal(16, false, 20, 4), nullptr);
}

TEST(MoeAlignOnCuda, EachCallHasAVariant) {
  const auto counts = [](int tokens, int slots, int experts) {
    MoeAlignProblem p;
    p.num_tokens = tokens;
    p.num_slots = slots;
    p.num_experts = experts;
    return std::tuple(moe_align_one_token_refusal(p, {}) == nullptr,
                      moe_align_one_launch_refusal(p, {}) == nullptr,
                      moe_align_three_launches_refusal(p, {}) == nullptr);
  };
  EXPECT_EQ(counts(1, 16, 896), std::tuple(true, false, false));
  EXPECT_EQ(counts(0, 0, 896), std::tuple(false, true, true));
  EXPECT_EQ(counts(256, 4096, 1024), std::tuple(false, true, true));
  EXPECT_EQ(counts(257, 4112, 896), std::tuple(false, false, true));
  EXPECT_EQ(counts(2, 32, 1025), std::tuple(false, false, true));
}

}  // namespace
}  // namespace k3::cuda
#endif
