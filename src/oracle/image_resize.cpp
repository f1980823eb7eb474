// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "contract/image_resize.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

double bicubic(double x) {
  x = std::fabs(x);
  if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
  return 0.0;
}

/// Pixel `i` of a line of `n` that becomes one of `m`; `pixel(j)` reads the line.
template <class Pixel>
std::uint8_t resample(int i, int n, int m, const Pixel& pixel) {
  const double scale = static_cast<double>(n) / m;
  const double width = std::max(scale, 1.0);
  const double center = (i + 0.5) * scale;
  const int first = std::max(0, static_cast<int>(center - 2.0 * width + 0.5));
  const int last = std::min(n, static_cast<int>(center + 2.0 * width + 0.5));
  std::vector<double> weights;
  double total = 0.0;
  for (int j = first; j < last; ++j) {
    weights.push_back(bicubic((j - center + 0.5) * (1.0 / width)));
    total += weights.back();
  }
  std::int64_t sum = 1 << 21;
  for (int j = first; j < last; ++j) {
    const double weight = weights[j - first] / total * (1 << 22);
    sum += std::int64_t{pixel(j)} * static_cast<int>(weight + (weight < 0 ? -0.5 : 0.5));
  }
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> 22, 0, 255));
}

}  // namespace

void image_resize(const ImageResizeArgs& args) {
  const ImageResizeProblem p = check(args);
  if (p.empty()) return;
  const auto& in = p.image;
  const auto& out = p.out;
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(in.height) * out.width);
  for (std::int64_t b = 0; b < p.B; ++b)
    for (std::int64_t c = 0; c < p.C; ++c) {
      const std::uint8_t* const from = in.data + b * in.stride_b + c * in.stride_c;
      std::uint8_t* const to = out.data + b * out.stride_b + c * out.stride_c;
      for (std::int64_t y = 0; y < in.height; ++y)
        for (int x = 0; x < out.width; ++x)
          rows[y * out.width + x] = resample(x, in.width, out.width, [&](int j) {
            return from[y * in.stride_y + j * in.stride_x];
          });
      for (int y = 0; y < out.height; ++y)
        for (std::int64_t x = 0; x < out.width; ++x)
          to[y * out.stride_y + x * out.stride_x] = resample(
              y, in.height, out.height, [&](std::int64_t j) { return rows[j * out.width + x]; });
    }
}

}  // namespace k3::oracle
