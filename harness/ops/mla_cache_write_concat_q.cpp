// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_cache_write_concat_q.h"

#include "harness/ops/args.h"
#include "harness/ops/mla_cache.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_cache_write_concat_q";
constexpr const char* kScalars[] = {"dcp_world_size", "dcp_rank", "null_index"};

MlaCacheWriteConcatQArgs to_args(const Call& call) {
  MlaCacheWriteConcatQArgs args;
  set_tensors(mla_cache_write_concat_q_args(), call, args);
  args.dcp_world_size = scalar_int(kOp, call, "dcp_world_size", args.dcp_world_size);
  args.dcp_rank = scalar_int(kOp, call, "dcp_rank", args.dcp_rank);
  args.null_index = scalar_int(kOp, call, "null_index", args.null_index);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string> /*wanted*/) {
  if (bundle.tensors.contains("q_out")) return;
  for (const char* name : {"kv_buffer", "q_nope", "q_rope"})
    if (!bundle.tensors.contains(name)) return;
  auto shape = bundle.tensors.at("q_nope").shape();
  const auto& rope = bundle.tensors.at("q_rope").shape();
  if (!shape.empty() && !rope.empty()) shape.back() += rope.back();
  bundle.tensors["q_out"] = poisoned(bundle.tensors.at("kv_buffer").dtype(), shape);
}

void run(const Call& call, const ExecContext& ctx) { mla_cache_write_concat_q(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::mla_cache_write_concat_q(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return mla_cache_write_concat_q_workspace_size(to_args(call), ctx);
}

/// Every query and every key that this rank writes, once in and once out, and the slots.
Cost cost(const Bundle& bundle) {
  const auto bytes = [&](const char* name) { return bytes_of(bundle.tensors.at(name)); };
  Bundle copy = bundle;  // a handle: the bytes are the bundle's
  Call call;
  for (auto& [name, tensor] : copy.tensors) call.tensors[name] = tensor.view();
  call.scalars = bundle.scalars;
  const MlaCacheWriteConcatQProblem p = check(to_args(call));
  double written = 0;
  for (std::int64_t i = 0; i < p.B; ++i)
    if (p.slots[i] > p.null_index && p.slots[i] % p.dcp_world_size == p.dcp_rank) ++written;
  const double row = static_cast<double>(p.nope + p.rope);
  return {.bytes = bytes("slot_mapping") + bytes("q_nope") + bytes("q_rope") + bytes("q_out") +
                   written * row * (2.0 + static_cast<double>(p.out_bytes()))};
}

BenchShape bench_shape(std::int64_t tokens, std::int64_t heads, DType cache) {
  const auto bits = static_cast<std::int64_t>(8 * size_of(cache));
  return {{{"tokens", tokens}, {"heads", heads}, {"bits", bits}}, [=] {
            return mla_cache({.B = tokens,
                              .H = heads,
                              .cache = cache,
                              .pool = std::max<std::int64_t>(1024, 2 * tokens),
                              .seed = 7});
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes;
  for (DType cache : {DType::kBF16, DType::kF8E4M3}) {
    for (std::int64_t tokens : {1, 64}) shapes.push_back(bench_shape(tokens, 96, cache));
    if (level == Level::kQuick) continue;
    shapes.push_back(bench_shape(512, 96, cache));
    if (level == Level::kK3) continue;
    for (std::int64_t tokens : {1, 64, 512}) shapes.push_back(bench_shape(tokens, 12, cache));
  }
  return shapes;
}

}  // namespace

const Driver& mla_cache_write_concat_q_driver() {
  static const std::vector<ArgSpec> args = specs_of(mla_cache_write_concat_q_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = mla_cache_write_concat_q_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
