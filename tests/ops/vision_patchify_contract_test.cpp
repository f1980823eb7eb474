// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/vision.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_patchify";

/// Two images of 3 x 10 x 13, patches of 4, a grid of 3 x 4.
Bundle valid_bundle() { return patchify_bundle({.B = 2, .H = 10, .W = 13, .P = 4}, 1); }

class VisionPatchifyContract : public testing::TestWithParam<Violation> {};

TEST_P(VisionPatchifyContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kShapeOfOut =
    "must have shape [B, padded_height/P * padded_width/P, C, P, P] = [2, 12, 3, 4, 4]";

INSTANTIATE_TEST_SUITE_P(
    All, VisionPatchifyContract,
    testing::Values(
        Violation{"image_f16", "image", "must be bf16 or f32 or u8",
                  with_dtype("image", DType::kF16)},
        Violation{"scale_bf16", "scale", "must be f32 unless image is bf16",
                  with_dtype("scale", DType::kBF16)},
        Violation{"bias_of_another_dtype", "bias", "must have the dtype of scale",
                  with_dtype("bias", DType::kBF16)},
        Violation{"bf16_to_f32", "out", "must be bf16 where image is",
                  with_dtype("image", DType::kBF16)},
        Violation{"image_rank_3", "image", "must have rank 4", with_rank("image", 3)},
        Violation{"out_rank_4", "out", "must have rank 5", with_rank("out", 4)},
        Violation{"no_patch", "patch_size", "must be at least 1", with_scalar("patch_size", "0")},
        Violation{"huge_patch", "patch_size", "must leave the elements of a patch within 31 bits",
                  [](Call& c) {
                    for (const char* name : {"patch_size", "padded_height", "padded_width"})
                      c.scalars[name] = "30000";
                  }},
        Violation{"lower_than_the_image", "padded_height", "must be at least the image's size",
                  with_scalar("padded_height", "8")},
        Violation{"narrower_than_the_image", "padded_width", "must be at least the image's size",
                  with_scalar("padded_width", "12")},
        Violation{"negative_height", "padded_height", "must be at least the image's size",
                  with_scalar("padded_height", "-12")},
        Violation{"height_between_patches", "padded_height", "must be a multiple of patch_size",
                  with_scalar("padded_height", "14")},
        Violation{"width_between_patches", "padded_width", "must be a multiple of patch_size",
                  with_scalar("padded_width", "17")},
        Violation{"height_is_text", "padded_height", "must be an integer",
                  with_scalar("padded_height", "tall")},
        Violation{"scale_of_other_channels", "scale", "must have shape [1, C, 1, 1] = [1, 3, 1, 1]",
                  with_size("scale", 1, 2)},
        Violation{"bias_per_row", "bias", "must have shape [1, C, 1, 1] = [1, 3, 1, 1]",
                  with_size("bias", 2, 2)},
        Violation{"scale_strided", "scale", "must be dense from axis 0",
                  with_stride("scale", 1, 2)},
        Violation{"bias_broadcast", "bias", "must be dense from axis 0", with_stride("bias", 1, 0)},
        Violation{"out_other_images", "out", kShapeOfOut, with_size("out", 0, 1)},
        Violation{"out_other_patches", "out", kShapeOfOut, with_size("out", 1, 11)},
        Violation{"out_other_patch_size", "out", kShapeOfOut, with_size("out", 4, 3)},
        Violation{"out_patch_strided", "out", "must be dense from axis 2",
                  with_stride("out", 3, 5)},
        Violation{"out_patches_overlap", "out", "no two of its elements may share",
                  with_stride("out", 1, 40)},
        Violation{"image_negative_stride", "image", "must have no negative stride",
                  with_stride("image", 2, -13)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, VisionPatchifyContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
