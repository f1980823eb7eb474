// SPDX-License-Identifier: Apache-2.0
// What must hold of vision_patchify beyond agreement with the oracle.
#include "k3/ops/vision_patchify.h"

#include <cstring>

#include "harness/ops/vision.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_patchify";

TEST(VisionPatchify, BitsDoNotDependOnThreads) {
  for (const std::int64_t side : {100, 800}) {  // below and above what is stored past the cache
    const Bundle input = patchify_bundle({.H = side, .W = side + 1}, 1);
    expect_bits_do_not_depend_on_threads(kOp, input);
  }
}

TEST(VisionPatchify, PaddingIsTheBiasAndPixelsAreInPlace) {
  Bundle b = patchify_bundle({.H = 3, .W = 5, .P = 4, .more_rows = 1}, 1);
  for (std::int64_t i = 0; i < 45; ++i) b.tensors.at("image").set(i, static_cast<double>(i + 1));
  for (std::int64_t c = 0; c < 3; ++c) {
    b.tensors.at("scale").set(c, 2.0);
    b.tensors.at("bias").set(c, -1000.0 * static_cast<double>(c + 1));
  }
  const Tensor out = run_cpu(kOp, b).tensors.at("out");  // [1, 4, 3, 4, 4]
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t c = i / 16 % 3;
    const std::int64_t y = i / 96 * 4 + i / 4 % 4;
    const std::int64_t x = i / 48 % 2 * 4 + i % 4;
    const double pixel = y < 3 && x < 5 ? static_cast<double>((c * 3 + y) * 5 + x + 1) : 0.0;
    EXPECT_EQ(out.get(i), 2.0 * pixel - 1000.0 * static_cast<double>(c + 1)) << i;
  }
}

/// Images of several sizes that share a padded size, in one batch or one by one.
TEST(VisionPatchify, AnImageDoesNotDependOnItsBatch) {
  const Bundle batch = patchify_bundle({.B = 3, .H = 28, .W = 56}, 5);
  const Tensor together = run_cpu(kOp, batch).tensors.at("out");
  for (std::int64_t b = 0; b < 3; ++b) {
    Bundle one = batch.clone();
    one.tensors["image"] = slice(batch.tensors.at("image"), 0, b, b + 1);
    one.tensors["out"] = slice(batch.tensors.at("out"), 0, b, b + 1);
    EXPECT_TRUE(same_bits(run_cpu(kOp, one).tensors.at("out"), slice(together, 0, b, b + 1))) << b;
  }
}

TEST(VisionPatchify, EveryVariantGivesTheSameBits) {
  expect_variants_give_the_same_bits(kOp, patchify_bundle({.B = 2, .H = 50, .W = 64}, 9));
}

/// Bytes as a decoder leaves them, against the same pixels in float planes.
TEST(VisionPatchify, BytesAndFloatsGiveTheSameBits) {
  const Bundle bytes =
      patchify_bundle({.H = 45, .W = 133, .image = DType::kU8, .interleaved = true}, 2);
  Bundle floats = bytes.clone();
  floats.tensors["image"] = Tensor::dense(DType::kF32, {1, 3, 45, 133});
  for (std::int64_t i = 0; i < floats.tensors.at("image").numel(); ++i)
    floats.tensors.at("image").set(i, bytes.tensors.at("image").get(i));
  EXPECT_TRUE(
      same_bits(run_cpu(kOp, bytes).tensors.at("out"), run_cpu(kOp, floats).tensors.at("out")));
}

TEST(VisionPatchify, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between images
  constexpr std::int64_t kImages = 4;                           // the last is past 3 * 2^30
  const Bundle dense = patchify_bundle({.B = kImages, .H = 20, .W = 30}, 4);
  const Tensor& image = dense.tensors.at("image");
  const Tensor expected = run_cpu(kOp, dense).tensors.at("out");
  const std::int64_t image_elements = image.numel() / kImages;
  const std::int64_t out_elements = expected.numel() / kImages;
  const SparseBuffer far_image(static_cast<std::size_t>(kPitch * kImages) * 4);
  const SparseBuffer far_out(static_cast<std::size_t>(kPitch * kImages) * 4);
  if (!far_image.valid() || !far_out.valid()) GTEST_SKIP() << "no address space of 32 GiB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"image", &far_image}, {"out", &far_out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
  }
  for (std::int64_t b = 0; b < kImages; ++b)
    std::memcpy(far_image.at(4 * b * kPitch), image.element(b * image_elements).data(),
                static_cast<std::size_t>(4 * image_elements));
  run_call(*find_driver(kOp), call);
  for (std::int64_t b = 0; b < kImages; ++b)
    EXPECT_EQ(std::memcmp(far_out.at(4 * b * kPitch), expected.element(b * out_elements).data(),
                          static_cast<std::size_t>(4 * out_elements)),
              0)
        << b;
}

}  // namespace
}  // namespace k3::harness
