// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"

namespace k3::harness {
namespace {

/// A unit in the last place of the dtype for its rounding, and three roundings of fp32 products of
/// values up to 8, which is all that is left where the two products cancel.
std::map<std::string, Tolerance> tolerances(const RopeOptions& o) {
  const double ulp = o.dtype == DType::kBF16 ? 0x1p-7 : 0x1p-10;
  const Tolerance tolerance = {.atol = 3.0 * 8.0 * 0x1p-24, .rtol = ulp};
  return {{"q_out", tolerance}, {"k_out", tolerance}};
}

/// The tensor under other strides; the gaps between its elements read as NaN.
void restride(Bundle& b, const char* name, std::vector<std::int64_t> strides,
              std::int64_t offset = 0) {
  Tensor& tensor = b.tensors.at(name);
  tensor = restrided(tensor, std::move(strides), offset, kNaNGaps);
}

/// T = 12 tokens as axes 2, 1, 3, 2.
void add_axes(Bundle& b) {
  for (auto& [name, tensor] : b.tensors) {
    Tensor shaped =
        Tensor::dense(tensor.dtype(), {2, 1, 3, 2, tensor.shape()[1], tensor.shape()[2]});
    for (std::int64_t i = 0; i < tensor.numel(); ++i) shaped.set(i, tensor.get(i));
    tensor = shaped;
  }
}

/// Every pair of special values under rotations that keep, swap, negate and mix them.
void make_special(Bundle& b) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {0.0, -0.0,  inf,    -inf,    std::nan(""), 0x1p-24,  -0x1p-24, 1e-40,
                           1.0, 65504, -65504, 0x1p-14, 3e38,         0x1p-126, -2.5};
  const double rotations[][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {0.6, 0.8}, {-0.8, 0.6}, {0, 0}};
  constexpr auto kValues = static_cast<std::int64_t>(std::size(values));
  for (const char* name : {"q", "k"})
    set_all(b, name, [&](std::int64_t i) {
      return values[i % 2 == 0 ? i / 2 / kValues % kValues : i / 2 % kValues];
    });
  set_all(b, "freqs", [&](std::int64_t i) { return rotations[i / 2 % 7][i % 2]; });
}

void add_layouts(CaseList<RopeOptions>& list, const char* suffix, DType dtype) {
  const auto add = [&](const char* name, const RopeOptions& o, std::function<void(Bundle&)> edit) {
    RopeOptions with_dtype = o;
    with_dtype.dtype = dtype;
    list.add(std::string(name) + suffix, with_dtype, std::move(edit));
  };
  add("unbind_of_qkv", {.T = 17, .interleaved = true}, [](Bundle&) {});
  add("odd_strides", {.T = 7, .H = 3, .D = 64}, [](Bundle& b) {
    restride(b, "q", {201, 67, 1});
    restride(b, "k_out", {300, 65, 1}, 3);
  });
  add("bases_off_by_one", {.T = 7, .H = 3, .D = 64}, [](Bundle& b) {
    restride(b, "k", {200, 64, 1}, 1);
    restride(b, "q_out", {200, 64, 1}, 1);
  });
  add("heads_before_tokens", {.T = 6, .H = 5, .D = 80}, [](Bundle& b) {
    for (const char* name : {"q", "k", "q_out", "k_out"}) restride(b, name, {80, 480, 1});
  });
  add("aligned_gaps", {.T = 6, .H = 5, .D = 80}, [](Bundle& b) {
    for (const char* name : {"q", "k", "q_out", "k_out"}) restride(b, name, {488, 96, 1}, 8);
    restride(b, "freqs", {84, 2, 1}, 4);
  });
  add("factors_off_by_one", {.T = 6}, [](Bundle& b) { restride(b, "freqs", {129, 2, 1}, 1); });
  add("one_rotation_for_all", {.T = 6}, [](Bundle& b) {
    Tensor& freqs = b.tensors.at("freqs");
    Tensor one = Tensor::strided(DType::kF32, {6, 64, 2}, {0, 2, 1});
    for (std::int64_t i = 0; i < 128; ++i) one.set(i, freqs.get(i));
    freqs = one;
  });
  add("leading_axes", {.T = 12, .H = 2, .D = 24}, add_axes);
  add("specials", {.T = 3, .H = 11, .D = 70}, make_special);
}

}  // namespace

std::vector<Case> vision_rope_cases() {
  CaseList<RopeOptions> list(rope_bundle, tolerances);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const char* const suffix = dtype == DType::kBF16 ? "_bf16" : "_f16";
    for (std::int64_t T : {0, 1, 2, 17, 480})
      list.add("tokens_" + std::to_string(T) + suffix, {.T = T, .dtype = dtype});
    for (std::int64_t D : {0, 2, 4, 6, 8, 10, 16, 30, 64, 72, 126, 130, 256, 300, 520})
      list.add("dim_" + std::to_string(D) + suffix, {.T = 3, .H = 3, .D = D, .dtype = dtype});
    for (std::int64_t H : {0, 1, 2, 13})
      list.add("heads_" + std::to_string(H) + suffix, {.T = 3, .H = H, .dtype = dtype});
    add_layouts(list, suffix, dtype);
  }
  list.add("tokens_2000", {.T = 2000, .interleaved = true}, [](Bundle&) {}, false);
  return list.take();
}

}  // namespace k3::harness
