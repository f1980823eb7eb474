// SPDX-License-Identifier: Apache-2.0
// What must hold of image_resize beyond agreement with the oracle.
#include "k3/ops/image_resize.h"

#include <cstdlib>
#include <cstring>

#include "harness/files.h"
#include "harness/ops/vision.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "image_resize";

std::string data_file(const std::string& name) {
  const char* moved = std::getenv("K3_TEST_DATA");
  return std::string(moved != nullptr ? moved : K3_TEST_DATA) + "/" + name + ".safetensors";
}

/// What Pillow has computed, bit for bit. The last file is of its other order of passes.
TEST(ImageResize, EqualsPillow) {
  for (const char* name : {"image_resize_smaller", "image_resize_larger", "image_resize_mixed",
                           "image_resize_columns_first"}) {
    const RunFile file = load_run_file(*find_driver(kOp), data_file(name));
    for (const RunOn on : {RunOn::kOracle, RunOn::kCpu})
      EXPECT_TRUE(
          same_bits(file.expected.at("out"), run_on(on, kOp, file.bundle).tensors.at("out")))
          << name;
  }
}

TEST(ImageResize, BitsDoNotDependOnThreads) {
  const Bundle input =
      resize_bundle({.H = 300, .W = 2300, .out_H = 201, .out_W = 1500, .interleaved = true}, 1);
  expect_bits_do_not_depend_on_threads(kOp, input);
}

TEST(ImageResize, EveryVariantGivesTheSameBits) {
  expect_variants_give_the_same_bits(
      kOp, resize_bundle({.B = 2, .H = 90, .W = 310, .out_H = 61, .out_W = 205}, 9));
}

TEST(ImageResize, TheSameSizeIsACopy) {
  for (const bool interleaved : {false, true}) {
    const Bundle b =
        resize_bundle({.H = 45, .W = 67, .out_H = 45, .out_W = 67, .interleaved = interleaved}, 3);
    EXPECT_TRUE(same_bits(run_cpu(kOp, b).tensors.at("out"), b.tensors.at("image")));
  }
}

/// A flat image stays flat, whatever its weights.
TEST(ImageResize, KeepsAFlatImage) {
  for (const auto& [H, W] : {std::pair<std::int64_t, std::int64_t>{7, 5}, {200, 333}, {40, 1}})
    for (const double value : {0.0, 1.0, 127.0, 255.0}) {
      Bundle b = resize_bundle({.H = H, .W = W, .out_H = 31, .out_W = 29}, 3);
      b.tensors.at("image").fill(value);
      const Tensor out = run_cpu(kOp, b).tensors.at("out");
      for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), value) << H << "x" << W;
    }
}

TEST(ImageResize, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // bytes between channels
  const Bundle dense = resize_bundle({.C = 4, .H = 20, .W = 30, .out_H = 33, .out_W = 17}, 4);
  const Tensor& image = dense.tensors.at("image");
  const Tensor expected = run_cpu(kOp, dense).tensors.at("out");
  const SparseBuffer far_image(static_cast<std::size_t>(kPitch * 4));
  const SparseBuffer far_out(static_cast<std::size_t>(kPitch * 4));
  if (!far_image.valid() || !far_out.valid()) GTEST_SKIP() << "no address space of 8 GiB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"image", &far_image}, {"out", &far_out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[1] = kPitch;
  }
  for (std::int64_t c = 0; c < 4; ++c)
    std::memcpy(far_image.at(c * kPitch), image.element(c * 600).data(), 600);
  run_call(*find_driver(kOp), call);
  for (std::int64_t c = 0; c < 4; ++c)
    EXPECT_EQ(std::memcmp(far_out.at(c * kPitch), expected.element(c * 561).data(), 561), 0) << c;
}

}  // namespace
}  // namespace k3::harness
