// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/vision.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_rope";

Bundle valid_bundle() { return rope_bundle({.T = 4, .H = 3, .D = 16}, 1); }

class VisionRopeContract : public testing::TestWithParam<Violation> {};

TEST_P(VisionRopeContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kShapeOfQ = "must have the shape of q, bf16 [4, 3, 16]";

INSTANTIATE_TEST_SUITE_P(
    All, VisionRopeContract,
    testing::Values(
        Violation{"q_f32", "q", "must be bf16 or f16", with_dtype("q", DType::kF32)},
        Violation{"k_of_another_dtype", "k", "must have the dtype of q",
                  with_dtype("k", DType::kF16)},
        Violation{"q_out_of_another_dtype", "q_out", "must have the dtype of q",
                  with_dtype("q_out", DType::kF16)},
        Violation{"freqs_of_angles", "freqs", "must have the rank of q",
                  [](Call& c) {
                    for (const char* name : {"q", "k", "q_out", "k_out"}) {
                      TensorView& view = c.tensors.at(name);
                      view = TensorView(view.data, view.dtype, {1, 4, 3, 16});
                    }
                  }},
        Violation{"rank_2", "q", "must have rank 3", with_rank("q", 2)},
        Violation{"odd_dim", "q", "must have an even last axis", with_size("q", 2, 15)},
        Violation{"k_other_tokens", "k", kShapeOfQ, with_size("k", 0, 3)},
        Violation{"k_other_heads", "k", kShapeOfQ, with_size("k", 1, 2)},
        Violation{"q_out_other_dim", "q_out", kShapeOfQ, with_size("q_out", 2, 14)},
        Violation{"k_out_other_tokens", "k_out", kShapeOfQ, with_size("k_out", 0, 5)},
        Violation{"freqs_other_tokens", "freqs",
                  "must have shape [tokens of q, D/2, 2] = [4, 8, 2]", with_size("freqs", 0, 3)},
        Violation{"freqs_of_all_elements", "freqs", "must have shape [tokens of q, D/2, 2]",
                  with_size("freqs", 1, 16)},
        Violation{"freqs_triples", "freqs", "must have shape [tokens of q, D/2, 2]",
                  with_size("freqs", 2, 3)},
        Violation{"freqs_strided", "freqs", "must be dense from axis 1",
                  with_stride("freqs", 1, 3)},
        Violation{"freqs_split", "freqs", "must be dense from axis 1", with_stride("freqs", 2, 8)},
        Violation{"q_strided", "q", kUnitStride, with_stride("q", 2, 2)},
        Violation{"k_strided", "k", kUnitStride, with_stride("k", 2, 2)},
        Violation{"q_out_strided", "q_out", kUnitStride, with_stride("q_out", 2, 2)},
        Violation{"k_out_strided", "k_out", kUnitStride, with_stride("k_out", 2, 2)},
        Violation{
            "tokens_do_not_fold", "k", "must have leading axes that fold into rows of one stride",
            [](Call& c) {
              for (const char* name : {"q", "k", "q_out", "k_out", "freqs"}) {
                TensorView& view = c.tensors.at(name);
                view = TensorView(view.data, view.dtype, {2, 2, view.shape[1], view.shape[2]});
              }
              c.tensors.at("k").strides[0] = 100;
            }},
        Violation{"q_out_heads_overlap", "q_out", "no two of its elements may share",
                  with_stride("q_out", 1, 8)},
        Violation{"k_out_tokens_overlap", "k_out", "no two of its elements may share",
                  with_stride("k_out", 0, 40)},
        Violation{"q_out_is_k_out", "q_out", "must not overlap k_out", aliasing("q_out", "k_out")},
        Violation{"q_out_is_q_with_other_strides", "q_out", "must not overlap q",
                  [](Call& c) {
                    aliasing("q_out", "q")(c);
                    for (const char* name : {"q", "k", "q_out", "k_out"}) {
                      with_size(name, 1, 2)(c);
                      with_stride(name, 0, 32)(c);
                    }
                    with_stride("q_out", 0, 48)(c);
                  }},
        Violation{"k_out_is_k_one_token_on", "k_out", "must not overlap k",
                  [](Call& c) {
                    aliasing("k_out", "k")(c);
                    shifted("k_out", 96)(c);
                    for (const char* name : {"q", "k", "q_out", "k_out", "freqs"})
                      with_size(name, 0, 3)(c);
                  }},
        Violation{"q_in_place_under_k", "q_out", "must not overlap k",
                  [](Call& c) {
                    aliasing("q_out", "q")(c);
                    aliasing("k", "q")(c);
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, VisionRopeContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp), valid_bundle(),
                                                                 {{"q_out", "q"}, {"k_out", "k"}})),
                         violation_name);

}  // namespace
}  // namespace k3::harness
