// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"

namespace k3::harness {
namespace {

/// Integers: results must be equal.
std::map<std::string, Tolerance> exact(const ResizeOptions& /*o*/) {
  return {{"out", {.exact = true}}};
}

void restride(Bundle& b, const char* name, std::vector<std::int64_t> strides,
              std::int64_t offset = 0) {
  b.tensors[name] = restrided(b.tensors.at(name), std::move(strides), offset);
}

void add_sizes(CaseList<ResizeOptions>& list) {
  const std::int64_t sizes[][4] = {
      {30, 40, 15, 20},  {30, 40, 30, 40},  {30, 40, 30, 17}, {30, 40, 11, 40}, {30, 40, 63, 97},
      {30, 40, 29, 41},  {30, 40, 41, 29},  {1, 1, 1, 1},     {1, 1, 5, 7},     {3, 2, 1, 9},
      {5, 7, 3, 100},    {80, 100, 2, 3},   {80, 100, 1, 1},  {7, 1000, 7, 1},  {200, 3, 3, 70},
      {33, 65, 32, 64},  {64, 64, 33, 65},  {12, 12, 13, 13}, {2, 2, 200, 200}, {47, 61, 46, 60},
      {150, 9, 31, 200}, {100, 2500, 9, 40}};
  for (const auto& [H, W, out_H, out_W] : sizes)
    list.add(std::to_string(H) + "x" + std::to_string(W) + "_to_" + std::to_string(out_H) + "x" +
                 std::to_string(out_W),
             {.H = H, .W = W, .out_H = out_H, .out_W = out_W});
}

void add_layouts(CaseList<ResizeOptions>& list) {
  list.add("interleaved", {.H = 65, .W = 131, .out_H = 33, .out_W = 70, .interleaved = true});
  list.add("interleaved_larger",
           {.B = 2, .H = 20, .W = 31, .out_H = 33, .out_W = 70, .interleaved = true});
  list.add("four_channels_interleaved",
           {.C = 4, .H = 65, .W = 131, .out_H = 33, .out_W = 70, .interleaved = true});
  list.add("interleaved_to_planes", {.H = 65, .W = 131, .out_H = 33, .out_W = 70},
           [](Bundle& b) { restride(b, "image", {3 * 65 * 131, 1, 131 * 3, 3}); });
  list.add("planes_to_interleaved", {.H = 65, .W = 131, .out_H = 33, .out_W = 70},
           [](Bundle& b) { restride(b, "out", {3 * 33 * 70, 1, 70 * 3, 3}); });
  list.add("columns_first", {.H = 50, .W = 41, .out_H = 13, .out_W = 39}, [](Bundle& b) {
    restride(b, "image", {3 * 50 * 41, 50 * 41, 1, 50});
    restride(b, "out", {3 * 13 * 39, 13 * 39, 1, 13});
  });
  list.add("colours_of_rgba", {.H = 40, .W = 51, .out_H = 17, .out_W = 23},
           [](Bundle& b) { restride(b, "image", {40 * 51 * 4, 1, 51 * 4, 4}); });
  list.add("padded_rows", {.B = 2, .C = 2, .H = 40, .W = 51, .out_H = 17, .out_W = 23},
           [](Bundle& b) {
             restride(b, "image", {2 * 40 * 60, 40 * 60, 60, 1}, 7);
             restride(b, "out", {2 * 17 * 29, 17 * 29, 29, 1}, 3);
           });
  list.add("one_row_for_all", {.H = 40, .W = 51, .out_H = 17, .out_W = 23}, [](Bundle& b) {
    const Tensor image = b.tensors.at("image");
    Tensor row = Tensor::strided(DType::kU8, {1, 3, 40, 51}, {0, 51, 0, 1});
    for (std::int64_t i = 0; i < row.numel(); ++i) row.set(i, image.get(i));
    b.tensors["image"] = row;
  });
}

/// Checkerboards and bars of black and white overshoot on both sides.
void make_black_and_white(Bundle& b) {
  Random random(6);
  set_all(b, "image", [&](std::int64_t i) {
    return i % 5 == 0 ? 128.0 : (random.next() % 3 == 0 ? 0.0 : 255.0);
  });
}

}  // namespace

std::vector<Case> image_resize_cases() {
  CaseList<ResizeOptions> list(resize_bundle, exact);
  add_sizes(list);
  add_layouts(list);
  list.add("black_and_white", {.H = 64, .W = 65, .out_H = 91, .out_W = 41}, make_black_and_white);
  list.add("white", {.H = 64, .W = 65, .out_H = 91, .out_W = 41},
           [](Bundle& b) { b.tensors.at("image").fill(255.0); });
  for (std::int64_t C : {0, 1, 2, 5})
    list.add("channels_" + std::to_string(C),
             {.B = 2, .C = C, .H = 19, .W = 23, .out_H = 10, .out_W = 30});
  list.add("no_image", {.B = 0});
  list.add("no_rows_out", {.out_H = 0});
  list.add("nothing_from_nothing", {.H = 0, .W = 0, .out_H = 0, .out_W = 0});
  list.add("wide_blocks", {.C = 1, .H = 70, .W = 2100, .out_H = 80, .out_W = 1050});
  list.add(
      "photo", {.H = 600, .W = 800, .out_H = 310, .out_W = 413, .interleaved = true},
      [](Bundle&) {}, false);
  return list.take();
}

}  // namespace k3::harness
