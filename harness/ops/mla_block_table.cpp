// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_block_table.h"

#include <algorithm>
#include <cmath>

#include "harness/ops/args.h"
#include "harness/ops/mla_pages.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_block_table";
constexpr const char* kScalars[] = {"page_size", "page_mult"};

MlaBlockTableArgs to_args(const Call& call) {
  MlaBlockTableArgs args;
  set_tensors(mla_block_table_args(), call, args);
  args.page_size = scalar_int(kOp, call, "page_size", args.page_size);
  args.page_mult = scalar_int(kOp, call, "page_mult", args.page_mult);
  return args;
}

/// As many columns as the longest request has pages.
void add_outputs(Bundle& bundle, std::span<const std::string> /*wanted*/) {
  if (bundle.tensors.contains("block_table") || !bundle.tensors.contains("seq_lens")) return;
  Call call;
  call.scalars = bundle.scalars;
  const int page_size = std::max(1, to_args(call).page_size);
  const Tensor& lengths = bundle.tensors.at("seq_lens");
  std::int64_t pages = 0;
  for (const double length : lengths.values())
    pages = std::max(pages, (static_cast<std::int64_t>(length) + page_size - 1) / page_size);
  bundle.tensors["block_table"] = poisoned(DType::kI32, {lengths.numel(), pages});
}

void run(const Call& call, const ExecContext& ctx) { mla_block_table(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::mla_block_table(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return mla_block_table_workspace_size(to_args(call), ctx);
}

/// A token and an entry, of 4 bytes each, for every page, its physical number where there is one,
/// and the lists.
Cost cost(const Bundle& bundle) {
  Call call;
  call.scalars = bundle.scalars;
  const int page_size = to_args(call).page_size;
  double pages = 0;
  for (const double length : bundle.tensors.at("seq_lens").values())
    pages += std::ceil(length / page_size);
  double page_bytes = 8.0;
  double list_bytes = 0;
  for (const auto& [name, tensor] : bundle.tensors) {
    const auto element = static_cast<double>(size_of(tensor.dtype()));
    if (name == "v2p") page_bytes += element;
    if (name == "seq_lens" || name == "req_pool" || name == "start")
      list_bytes += element * static_cast<double>(tensor.numel());
  }
  return {.bytes = pages * page_bytes + list_bytes};
}

BenchShape bench_shape(std::int64_t B, std::int64_t tokens) {
  return {
      {{"B", B}, {"tokens", tokens}}, [=] {
        return mla_pages({.lengths = std::vector<std::int64_t>(static_cast<std::size_t>(B), tokens),
                          .rows = B,
                          .v2p = true,
                          .seed = 7});
      }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 8192), bench_shape(64, 8192)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(1, 1 << 20));
  shapes.push_back(bench_shape(64, 1 << 17));
  return shapes;
}

}  // namespace

const Driver& mla_block_table_driver() {
  static const std::vector<ArgSpec> args = specs_of(mla_block_table_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = mla_block_table_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
