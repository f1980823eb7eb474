// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"

namespace k3::harness {
namespace {

/// The contract fixes every rounding, so results must be equal.
std::map<std::string, Tolerance> exact(const PatchifyOptions& /*o*/) {
  return {{"out", {.exact = true}}};
}

/// The payload of a NaN is free, which an exact comparison does not allow; a unit in the last place
/// is what is left to say of the others.
std::map<std::string, Tolerance> with_nan(const PatchifyOptions& o) {
  return {{"out", {.rtol = o.out == DType::kF32 ? 0x1p-23 : 0x1p-7}}};
}

/// The image under other strides; the gaps between its elements read as NaN.
void restride(Bundle& b, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
  Tensor& image = b.tensors.at("image");
  image = restrided(image, std::move(strides), offset, kNaNGaps);
}

/// Patches as the front of wider rows, `offset` elements into the buffer.
void spread_patches(Bundle& b, std::int64_t pitch, std::int64_t offset) {
  Tensor& out = b.tensors.at("out");
  const auto& shape = out.shape();
  const std::int64_t P = shape[4];
  out = Tensor::strided(out.dtype(), shape, {shape[1] * pitch, pitch, P * P, P, 1}, offset);
}

/// Zeros of both signs, infinities, NaN, subnormals and the ends of the range as pixels, and as
/// scale and bias of the channels.
void make_special(Bundle& b) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {0.0,      -0.0,     inf,      -inf,     std::nan(""), 1e-40, -1e-40,
                           0x1p-126, 0x1p-149, 3.4e38,   -3.4e38,  1.0,          127.5, 255.0,
                           -255.0,   0x1p-24,  16777216, -0x1p-60, 1e30};
  const double scales[] = {1.0 / 127.5, -1.0, 0.0, 1e-38, 3e38, inf, std::nan(""), 0x1p-24};
  const double biases[] = {-1.0, -0.0, 0.0, 1e-40, -3e38, 1.0, 1.0, -inf};
  const auto cycle = [&](const char* name, const auto& from) {
    const auto n = static_cast<std::int64_t>(std::size(from));
    set_all(b, name, [&](std::int64_t i) { return from[i % n]; });
  };
  cycle("image", values);
  cycle("scale", scales);
  cycle("bias", biases);
}

/// Differences of neighbouring fp32 values that only a fused multiply-add keeps.
void make_cancelling(Bundle& b) {
  Random random(3);
  set_all(b, "image", [&](std::int64_t) { return 127.5 + random.uniform(-1e-4, 1e-4); });
}

void add_dtypes(CaseList<PatchifyOptions>& list) {
  const auto add = [&](const char* name, DType image, DType out, DType affine, bool interleaved) {
    PatchifyOptions o;
    o.image = image;
    o.out = out;
    o.affine = affine;
    o.interleaved = interleaved;
    list.add(name, o);
    o.W = 143;  // a line of many vectors, with a tail
    list.add(std::string(name) + "_wide", o);
  };
  const DType f32 = DType::kF32;
  const DType bf16 = DType::kBF16;
  const DType u8 = DType::kU8;
  add("f32", f32, f32, f32, false);
  add("f32_to_bf16", f32, bf16, f32, false);
  add("bf16", bf16, bf16, bf16, false);
  add("bf16_f32_scale", bf16, bf16, f32, false);
  add("u8_to_f32", u8, f32, f32, false);
  add("u8_to_bf16", u8, bf16, f32, false);
  add("u8_interleaved_to_f32", u8, f32, f32, true);
  add("u8_interleaved_to_bf16", u8, bf16, f32, true);
}

void add_sizes(CaseList<PatchifyOptions>& list) {
  const auto add = [&](std::int64_t H, std::int64_t W, std::int64_t P, std::int64_t C = 3,
                       std::int64_t B = 1) {
    PatchifyOptions o;
    o.B = B;
    o.C = C;
    o.H = H;
    o.W = W;
    o.P = P;
    std::string name = std::to_string(B);
    for (const std::int64_t size : {C, H, W}) name += "x" + std::to_string(size);
    list.add(name + "_patch_" + std::to_string(P), o);
  };
  add(17, 19, 4, 3, 2);
  for (const auto& [H, W] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                             {14, 14},
                             {13, 15},
                             {28, 29},
                             {27, 27},
                             {42, 40},
                             {1, 300},
                             {300, 1}})
    add(H, W, 14);
  for (std::int64_t P : {1, 2, 3, 5, 7, 8, 16, 17, 32}) add(35, 37, P);
  for (std::int64_t C : {1, 2, 4, 5}) add(29, 31, 14, C, 3);
  add(20, 1300, 600);
  add(5, 2000, 1, 1);
  add(0, 5, 14);
  add(5, 0, 14);
  add(0, 0, 14);
  add(5, 5, 14, 0);
  add(5, 5, 14, 3, 0);
}

}  // namespace

std::vector<Case> vision_patchify_cases() {
  CaseList<PatchifyOptions> list(patchify_bundle, exact);
  add_dtypes(list);
  add_sizes(list);
  list.add("padding_patches", {.B = 2, .more_rows = 1, .more_columns = 2});
  list.add("only_padding", {.H = 0, .W = 0, .more_rows = 2, .more_columns = 3});
  list.add("rows_of_a_wider_image", {.H = 30, .W = 40},
           [](Bundle& b) { restride(b, {3 * 30 * 52, 30 * 52, 52, 1}, 6); });
  list.add("odd_row_stride", {.B = 2, .H = 30, .W = 40},
           [](Bundle& b) { restride(b, {3 * 30 * 41, 30 * 41, 41, 1}); });
  list.add("image_off_by_one", {}, [](Bundle& b) { restride(b, {3600, 1200, 40, 1}, 1); });
  list.add("every_second_pixel", {}, [](Bundle& b) { restride(b, {7200, 2400, 80, 2}); });
  list.add("channels_last", {.B = 2}, [](Bundle& b) { restride(b, {3600, 1, 120, 3}); });
  list.add("one_image_for_all", {.B = 3}, [](Bundle& b) {
    const Tensor one = b.tensors.at("image");
    b.tensors["image"] = Tensor::strided(DType::kF32, {3, 3, 30, 40}, {0, 1200, 40, 1});
    for (std::int64_t i = 0; i < 3600; ++i) b.tensors["image"].set(i, one.get(i));
  });
  list.add("bytes_of_four_channels", {.image = DType::kU8, .out = DType::kBF16},
           [](Bundle& b) { restride(b, {4800, 1, 160, 4}, 1); });
  for (const std::int64_t pitch : {592, 589})
    list.add("wider_patch_rows_" + std::to_string(pitch), {.B = 2, .out = DType::kBF16},
             [=](Bundle& b) { spread_patches(b, pitch, 0); });
  list.add("out_off_by_one", {}, [](Bundle& b) { spread_patches(b, 588, 1); });
  list.add("cancelling", {.H = 60, .W = 64}, make_cancelling);
  // Past the size from which the CPU stores past its cache.
  list.add("large", {.H = 700, .W = 701});
  list.add(
      "large_bytes",
      {.H = 1000, .W = 1003, .image = DType::kU8, .out = DType::kBF16, .interleaved = true},
      [](Bundle&) {}, false);
  list.add("large_out_off_by_one", {.H = 700, .W = 701},
           [](Bundle& b) { spread_patches(b, 588, 1); });

  CaseList<PatchifyOptions> special(patchify_bundle, with_nan);
  for (const DType out : {DType::kF32, DType::kBF16})
    special.add(out == DType::kF32 ? "specials_f32" : "specials_bf16",
                {.C = 8, .H = 20, .W = 38, .out = out}, make_special);
  std::vector<Case> cases = list.take();
  for (Case& special_case : special.take()) cases.push_back(std::move(special_case));
  return cases;
}

}  // namespace k3::harness
