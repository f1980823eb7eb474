// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/vision.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "image_resize";

Bundle valid_bundle() {
  return resize_bundle({.B = 2, .H = 9, .W = 12, .out_H = 5, .out_W = 7}, 1);
}

class ImageResizeContract : public testing::TestWithParam<Violation> {};

TEST_P(ImageResizeContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, ImageResizeContract,
    testing::Values(Violation{"image_f32", "image", "must be u8", with_dtype("image", DType::kF32)},
                    Violation{"out_i8", "out", "must be u8", with_dtype("out", DType::kI8)},
                    Violation{"image_rank_3", "image", "must have rank 4", with_rank("image", 3)},
                    Violation{"out_other_images", "out", "must hold as many images as image",
                              with_size("out", 0, 1)},
                    Violation{"out_other_channels", "out", "must have the channels of image",
                              with_size("out", 1, 2)},
                    Violation{"no_rows", "image", "must have pixels where out has",
                              with_size("image", 2, 0)},
                    Violation{"no_columns", "image", "must have pixels where out has",
                              with_size("image", 3, 0)},
                    Violation{"image_too_wide", "image", "must have at most 2^24 rows and columns",
                              [](Call& c) {
                                with_size("image", 3, (1 << 24) + 1)(c);
                                for (int axis : {0, 1, 2}) with_stride("image", axis, 0)(c);
                              }},
                    Violation{"out_too_tall", "out", "must have at most 2^24 rows and columns",
                              with_size("out", 2, (1 << 24) + 1)},
                    Violation{"out_rows_overlap", "out", "no two of its elements may share",
                              with_stride("out", 2, 6)},
                    Violation{"negative_stride", "image", "must have no negative stride",
                              with_stride("image", 3, -1)}),
    violation_name);

/// Bytes are aligned wherever they are.
std::vector<Violation> rules_of_bytes() {
  std::vector<Violation> rules = rules_of_every_tensor(*find_driver(kOp), valid_bundle());
  std::erase_if(rules, [](const Violation& v) { return v.name.ends_with("_off_its_element"); });
  return rules;
}

INSTANTIATE_TEST_SUITE_P(EveryTensor, ImageResizeContract, testing::ValuesIn(rules_of_bytes()),
                         violation_name);

TEST(ImageResizeWorkspace, IsChecked) {
  expect_workspace_checked(*find_driver(kOp), valid_bundle());
}

}  // namespace
}  // namespace k3::harness
