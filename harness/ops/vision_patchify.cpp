// SPDX-License-Identifier: Apache-2.0
#include "contract/vision_patchify.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_patchify";
constexpr const char* kScalars[] = {"patch_size", "padded_height", "padded_width", "output_dtype"};

VisionPatchifyArgs to_args(const Call& call) {
  VisionPatchifyArgs args;
  set_tensors(vision_patchify_args(), call, args);
  args.patch_size = scalar_int(kOp, call, "patch_size", args.patch_size);
  args.padded_height = scalar_int(kOp, call, "padded_height", args.padded_height);
  args.padded_width = scalar_int(kOp, call, "padded_width", args.padded_width);
  return args;
}

/// Of `output_dtype`, else of the dtype of a float image, f32 for bytes. Sizes that make no sense
/// are the contract's to refuse, and get an empty output.
void add_outputs(Bundle& bundle, std::span<const std::string>) {
  const auto image = bundle.tensors.find("image");
  if (bundle.tensors.contains("out") || image == bundle.tensors.end() ||
      image->second.shape().size() != 4)
    return;
  const VisionPatchifyArgs args = to_args({.tensors = {}, .scalars = bundle.scalars});
  const auto& shape = image->second.shape();
  const std::int64_t P = std::clamp(args.patch_size, 1, 1 << 12);
  const std::int64_t patches = std::max<std::int64_t>(args.padded_height, 0) / P *
                               (std::max<std::int64_t>(args.padded_width, 0) / P);
  const bool sensible =
      patches * P * P <= 64 * std::max<std::int64_t>(shape[2] * shape[3], 1 << 20);
  const DType dtype =
      scalar_dtype(kOp, bundle, "output_dtype",
                   image->second.dtype() == DType::kBF16 ? DType::kBF16 : DType::kF32);
  bundle.tensors["out"] = poisoned(dtype, {shape[0], sensible ? patches : 0, shape[1], P, P});
}

void run(const Call& call, const ExecContext& ctx) { vision_patchify(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::vision_patchify(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return vision_patchify_workspace_size(to_args(call), ctx);
}

/// The image, the patches; a multiply-add an element.
Cost cost(const Bundle& bundle) {
  const Tensor& out = bundle.tensors.at("out");
  const auto elements = static_cast<double>(out.numel());
  return {.bytes = bytes_of(bundle.tensors.at("image")) + bytes_of(out), .flops = 2.0 * elements};
}

BenchShape bench_shape(std::int64_t side, DType image, DType out) {
  const auto bits = [](DType dtype) { return static_cast<std::int64_t>(8 * size_of(dtype)); };
  return {{{"side", side}, {"image_bits", bits(image)}, {"out_bits", bits(out)}}, [=] {
            PatchifyOptions o;
            o.H = o.W = side;
            o.image = image;
            o.out = out;
            o.interleaved = image == DType::kU8;
            return patchify_bundle(o, 7);
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1024, DType::kF32, DType::kF32)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(224, DType::kF32, DType::kF32));
  shapes.push_back(bench_shape(1024, DType::kBF16, DType::kBF16));
  shapes.push_back(bench_shape(1024, DType::kU8, DType::kF32));
  shapes.push_back(bench_shape(1024, DType::kU8, DType::kBF16));
  shapes.push_back(bench_shape(3584, DType::kF32, DType::kF32));
  if (level == Level::kK3) return shapes;
  shapes.push_back(bench_shape(1023, DType::kF32, DType::kF32));
  shapes.push_back(bench_shape(3584, DType::kU8, DType::kBF16));
  return shapes;
}

}  // namespace

const Driver& vision_patchify_driver() {
  static const std::vector<ArgSpec> args = specs_of(vision_patchify_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = vision_patchify_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
