// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_pack_topk.h"

#include <limits>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_pack_topk";

MoePackTopkArgs to_args(const Call& call) {
  MoePackTopkArgs args;
  set_tensors(moe_pack_topk_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("packed") || !bundle.tensors.contains("topk_ids")) return;
  bundle.tensors["packed"] = poisoned(DType::kI32, bundle.tensors.at("topk_ids").shape());
}

void run(const Call& call, const ExecContext& ctx) { moe_pack_topk(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_pack_topk(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_pack_topk_workspace_size(to_args(call), ctx);
}

/// A rounding, a shift and a union each.
Cost cost(const Bundle& bundle) {
  const Tensor& ids = bundle.tensors.at("topk_ids");
  const auto words = static_cast<double>(ids.numel());
  return {.bytes = words * (8.0 + static_cast<double>(size_of(ids.dtype()))), .flops = 3.0 * words};
}

struct Options {
  std::vector<std::int64_t> shape = {5, 16};
  DType ids = DType::kI32;
};

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  b.tensors["topk_ids"] =
      filled(o.ids, o.shape, [&] { return static_cast<double>(random.next() % 896); });
  b.tensors["topk_weights"] = uniform(random, DType::kF32, o.shape, 0.0, 1.0);
  b.tensors["packed"] = poisoned(DType::kI32, o.shape);
  return b;
}

std::map<std::string, Tolerance> exact(const Options&) { return {}; }

/// Weights halfway between two bf16 and beside, zeros, subnormals, infinities, NaN; ids at the ends
/// of 16 bits and past them.
void specials(Bundle& b) {
  const double inf = std::numeric_limits<double>::infinity();
  const double weights[] = {0.0,
                            -0.0,
                            1.0,
                            1.0 + 0x1p-8,
                            1.0 + 0x1p-8 + 0x1p-23,
                            1.0 + 3 * 0x1p-8,
                            -1.0 - 0x1p-8,
                            0x1p-149,
                            -0x1.8p-134,
                            3.3e38,
                            3.4e38,
                            inf,
                            -inf,
                            std::numeric_limits<double>::quiet_NaN(),
                            -std::numeric_limits<double>::quiet_NaN(),
                            2.5};
  const double ids[] = {0, 895, 32767, 32768, 65535, 65536, -1, -32768, 2147483647, -2147483648.0};
  set_all(b, "topk_weights", [&](std::int64_t i) { return weights[i % std::size(weights)]; });
  set_all(b, "topk_ids", [&](std::int64_t i) { return ids[i / 3 % std::size(ids)]; });
}

std::vector<Case> cases() {
  CaseList<Options> list(make_bundle, exact);
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    const std::string name = name_of(dtype);
    for (std::int64_t T : {0, 1, 3, 64, 1000})
      list.add(name + "_tokens_" + std::to_string(T), {{T, 16}, dtype});
    for (std::int64_t N : {0, 1, 7, 32, 100003})
      list.add(name + "_words_" + std::to_string(N), {{N}, dtype});
    for (std::int64_t k : {0, 1, 5}) list.add(name + "_topk_" + std::to_string(k), {{9, k}, dtype});
    list.add(name + "_specials", {{30, 16}, dtype}, specials);
    list.add(name + "_columns", {{6, 8}, dtype}, [](Bundle& b) {
      for (const char* tensor : {"topk_ids", "topk_weights", "packed"}) pad_rows(b, tensor, 8, 0);
    });
    list.add(name + "_odd_rows", {{6, 16}, dtype}, [](Bundle& b) {
      pad_rows(b, "topk_ids", 1, 3);
      pad_rows(b, "topk_weights", 5, 1);
      pad_rows(b, "packed", 3, 1);
    });
    list.add(name + "_packed_off_by_one", {{6, 16}, dtype},
             [](Bundle& b) { pad_rows(b, "packed", 0, 1); });
  }
  list.add("large", {{100000, 16}}, [](Bundle&) {}, false);
  return list.take();
}

std::vector<BenchShape> bench_shapes(Level level) {
  const auto shape = [](std::int64_t T) -> BenchShape {
    return {{{"tokens", T}, {"topk", 16}}, [=] { return make_bundle({{T, 16}}, 5); }};
  };
  std::vector<BenchShape> shapes = {shape(1), shape(1024)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(shape(64));
  shapes.push_back(shape(262144));
  return shapes;
}

}  // namespace

const Driver& moe_pack_topk_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_pack_topk_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
