// SPDX-License-Identifier: Apache-2.0
#include "contract/image_resize.h"

#include "core/bicubic.h"
#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "image_resize";
/// Of the output that a file without one asks for.
constexpr const char* kScalars[] = {"height", "width"};

ImageResizeArgs to_args(const Call& call) {
  ImageResizeArgs args;
  set_tensors(image_resize_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  const auto image = bundle.tensors.find("image");
  if (bundle.tensors.contains("out") || image == bundle.tensors.end() ||
      image->second.shape().size() != 4)
    return;
  const Call call = {.tensors = {}, .scalars = bundle.scalars};
  if (!call.scalars.contains("height") || !call.scalars.contains("width")) return;
  const int height = scalar_int(kOp, call, "height", 0);
  const int width = scalar_int(kOp, call, "width", 0);
  for (const auto& [name, side] : {std::pair{"height", height}, {"width", width}})
    if (side < 0 || side > 1 << 24)
      throw ContractError(kOp, name, "must be from 0 to 2^24", std::to_string(side));
  const auto& shape = image->second.shape();
  bundle.tensors["out"] = poisoned(DType::kU8, {shape[0], shape[1], height, width});
}

void run(const Call& call, const ExecContext& ctx) { image_resize(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::image_resize(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return image_resize_workspace_size(to_args(call), ctx);
}

/// The image, the output; a multiply-add a tap of either pass.
Cost cost(const Bundle& bundle) {
  const Tensor& image = bundle.tensors.at("image");
  const Tensor& out = bundle.tensors.at("out");
  const auto side = [](const Tensor& t, int axis) { return static_cast<int>(t.shape()[axis]); };
  const ResizeAxis x(side(image, 3), side(out, 3));
  const ResizeAxis y(side(image, 2), side(out, 2));
  const auto planes = static_cast<double>(out.shape()[0] * out.shape()[1]);
  const double taps = 1.0 * side(image, 2) * side(out, 3) * x.taps(side(out, 3) / 2).count +
                      1.0 * side(out, 2) * side(out, 3) * y.taps(side(out, 2) / 2).count;
  return {.bytes = bytes_of(image) + bytes_of(out), .flops = 2.0 * planes * taps};
}

/// Pixels side by side, as a decoder leaves them.
BenchShape bench_shape(std::int64_t height, std::int64_t width, std::int64_t out_height,
                       std::int64_t out_width) {
  return {
      {{"height", height}, {"width", width}, {"out_height", out_height}, {"out_width", out_width}},
      [=] {
        return resize_bundle(
            {.H = height, .W = width, .out_H = out_height, .out_W = out_width, .interleaved = true},
            7);
      }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1080, 1920, 540, 960)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(6000, 8000, 3103, 4137));  // to K3's 65,536 patches
  shapes.push_back(bench_shape(480, 640, 336, 448));
  if (level == Level::kK3) return shapes;
  shapes.push_back(bench_shape(540, 960, 1080, 1920));
  shapes.push_back(bench_shape(3000, 4000, 150, 200));
  return shapes;
}

}  // namespace

const Driver& image_resize_driver() {
  static const std::vector<ArgSpec> args = specs_of(image_resize_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = image_resize_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
