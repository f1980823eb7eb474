// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "core/group_quant.h"
#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

enum class Layout { kRow, kColumn, kPackedRow, kPackedColumn };

struct Options {
  std::int64_t T = 5;
  std::int64_t D = 384;
  std::int64_t group = 128;
  QuantFormat format = QuantFormat::kE4M3;
  Layout layout = Layout::kRow;
  DType input = DType::kBF16;
};

const char* text_of(QuantFormat format) {
  return format == QuantFormat::kE4M3 ? "fp32" : format == QuantFormat::kI8 ? "i8" : "ue8m0";
}

const char* text_of(Layout layout) {
  switch (layout) {
    case Layout::kRow:
      return "row";
    case Layout::kColumn:
      return "column";
    case Layout::kPackedRow:
      return "packed_row";
    case Layout::kPackedColumn:
      return "packed_column";
  }
  return "";
}

bool is_packed(Layout layout) {
  return layout == Layout::kPackedRow || layout == Layout::kPackedColumn;
}

/// Columns are three rows longer than T, as those of a padded buffer.
Tensor scales_of(const Options& o) {
  const std::int64_t G = o.D / o.group;
  const std::int64_t width = is_packed(o.layout) ? (G + 3) / 4 : G;
  const DType dtype = is_packed(o.layout) ? DType::kI32 : DType::kF32;
  if (o.layout == Layout::kRow || o.layout == Layout::kPackedRow)
    return poisoned(dtype, {o.T, width});
  Tensor scales = Tensor::strided(dtype, {o.T, width}, {1, o.T + 3});
  scales.fill_bytes(std::byte{0xFF});
  return scales;
}

Bundle bundle_of(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  b.tensors["input"] = normal(random, o.input, {o.T, o.D}, 2.0);
  b.tensors["output_q"] =
      poisoned(o.format == QuantFormat::kI8 ? DType::kI8 : DType::kF8E4M3, {o.T, o.D});
  b.tensors["output_s"] = scales_of(o);
  b.scalars = {{"group_size", std::to_string(o.group)},
               {"scale_ue8m0", o.format == QuantFormat::kE4M3UE8M0 ? "1" : "0"}};
  return b;
}

/// Every rounding is fixed, so all outputs are equal, bit for bit.
std::map<std::string, Tolerance> exact(const Options&) { return {}; }

/// The input becomes rows of D of a wider buffer, from `offset` on.
std::function<void(Bundle&)> slice_of(std::int64_t pitch, std::int64_t offset) {
  return
      [=](Bundle& b) { b.tensors["input"] = restrided(b.tensors.at("input"), {pitch, 1}, offset); };
}

std::function<void(Bundle&)> output_rows(const char* name, std::int64_t extra,
                                         std::int64_t offset) {
  return [=](Bundle& b) { pad_rows(b, name, extra, offset); };
}

/// Row r of the input is one value of `kinds` in place of the ordinary ones, or beside them.
void special_rows(Bundle& b) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const double tiny = b.tensors.at("input").dtype() == DType::kF32 ? 0x1p-149 : 0x1p-133;
  const double largest = b.tensors.at("input").dtype() == DType::kF32 ? 3.4e38 : 3.38e38;
  const double kinds[] = {0.0,  -0.0,  inf,     -inf,  nan,     tiny,     -tiny, largest, -largest,
                          1e-9, 1e-10, 1.1e-10, 1e-11, 4.48e-8, 0x1p-126, 448.0, -448.0,  1e30};
  Tensor& input = b.tensors.at("input");
  const std::int64_t D = input.shape()[1];
  const std::int64_t rows = input.shape()[0];
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto n = static_cast<std::int64_t>(std::size(kinds));
    const double value = kinds[r % n];
    // Whole rows; then one of them in each 16 values; then both signs in turn.
    for (std::int64_t i = 0; i < D; ++i) {
      if (r < n)
        input.set(r * D + i, value);
      else if (r < 2 * n && i % 16 == r % 16)
        input.set(r * D + i, value);
      else if (r >= 2 * n)
        input.set(r * D + i, i % 2 == 0 ? value : -value);
    }
  }
}

/// All 65,536 bf16 values. The exponents of neighbours in a group are alike.
void every_bf16(Bundle& b) {
  auto* bits = reinterpret_cast<std::uint16_t*>(b.tensors.at("input").storage());
  for (std::int64_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
}

/// Groups whose largest value is 448 * 2^k or its neighbour, where a UE8M0 scale goes up, beside
/// every value that is halfway between two codes.
void scale_edges(Bundle& b) {
  Tensor& input = b.tensors.at("input");
  for (std::int64_t i = 0; i < input.numel(); ++i) {
    const std::int64_t row = i / input.shape()[1];
    const std::int64_t column = i % input.shape()[1];
    const double scale = std::ldexp(1.0, static_cast<int>(row / 3) * 5 - 20);
    const double edges[] = {448.0, 448.0 * (1 - 0x1p-8), 448.0 * (1 + 0x1p-7)};
    const double tie =
        std::ldexp(8.5 + static_cast<double>(column % 8), static_cast<int>(column / 8 % 14) - 9);
    const double sign = column % 3 == 0 ? -1.0 : 1.0;
    input.set(i, sign * scale * (column % 32 == 0 ? edges[row % 3] : std::min(tie, 440.0)));
  }
}

void add_layouts(CaseList<Options>& cases) {
  for (Layout layout : {Layout::kRow, Layout::kColumn, Layout::kPackedRow, Layout::kPackedColumn})
    for (QuantFormat format : {QuantFormat::kE4M3, QuantFormat::kE4M3UE8M0, QuantFormat::kI8}) {
      if (is_packed(layout) && format != QuantFormat::kE4M3UE8M0) continue;
      for (std::int64_t groups : {1, 4, 7})
        cases.add(std::string(text_of(layout)) + "_" + text_of(format) + "_groups_" +
                      std::to_string(groups),
                  {.T = 9, .D = 32 * groups, .group = 32, .format = format, .layout = layout});
    }
}

}  // namespace

std::vector<Case> per_token_group_quant_cases() {
  CaseList<Options> cases(bundle_of, exact);
  const auto none = [](Bundle&) {};
  const Options front = {
      .D = 3584, .group = 32, .format = QuantFormat::kE4M3UE8M0, .layout = Layout::kPackedRow};
  for (std::int64_t T : {0, 1, 2, 17, 64}) {
    Options o = front;
    o.T = T;
    cases.add("front_" + std::to_string(T) + "x3584", o);
    cases.add("fp32_" + std::to_string(T) + "x7168", {.T = T, .D = 7168});
  }
  cases.add("no_columns", {.T = 5, .D = 0});
  cases.add("large", {.T = 1024, .D = 7168, .format = QuantFormat::kE4M3UE8M0}, none, false);
  add_layouts(cases);
  for (std::int64_t group = 16; group <= 256; group += 16)
    for (QuantFormat format : {QuantFormat::kE4M3, QuantFormat::kE4M3UE8M0})
      cases.add("group_" + std::to_string(group) + "_" + text_of(format),
                {.T = 3,
                 .D = 5 * group,
                 .group = group,
                 .format = format,
                 .layout = format == QuantFormat::kE4M3 ? Layout::kRow : Layout::kPackedColumn});
  for (QuantFormat format : {QuantFormat::kE4M3, QuantFormat::kE4M3UE8M0, QuantFormat::kI8})
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      const std::string name = std::string(text_of(format)) + "_" + name_of(dtype);
      const Options o = {.T = 54, .D = 256, .group = 64, .format = format, .input = dtype};
      cases.add("specials_" + name, o, special_rows);
      cases.add("edges_" + name, o, scale_edges);
      cases.add("ordinary_" + name, {.T = 33, .D = 1024, .format = format, .input = dtype});
    }
  for (std::int64_t group : {16, 256})
    for (QuantFormat format : {QuantFormat::kE4M3, QuantFormat::kE4M3UE8M0, QuantFormat::kI8})
      cases.add("every_bf16_" + std::string(text_of(format)) + "_" + std::to_string(group),
                {.T = 64, .D = 1024, .group = group, .format = format}, every_bf16);

  Options strided = front;
  cases.add("columns_of_a_wider_row", strided, slice_of(4608, 512));
  cases.add("odd_pitch", strided, slice_of(3587, 0));
  cases.add("base_off_by_one", strided, slice_of(4608, 1));
  cases.add("codes_off_by_one", strided, output_rows("output_q", 32, 1));
  cases.add("codes_with_gaps", strided, output_rows("output_q", 16, 16));
  cases.add("words_with_gaps", strided, output_rows("output_s", 3, 1));
  strided.input = DType::kF32;
  cases.add("f32_columns_of_a_wider_row", strided, slice_of(4608, 512));
  cases.add("f32_base_off_by_one", strided, slice_of(4608, 1));
  return cases.take();
}

}  // namespace k3::harness
