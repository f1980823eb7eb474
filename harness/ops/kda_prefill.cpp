// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_prefill.h"

#include <algorithm>
#include <numeric>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "harness/ops/ops.h"
#include "k3/error.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_prefill";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"scale",          "lower_bound",  "qk_l2norm",
                                    "gate_in_kernel", "beta_sigmoid", "allow_neg_eigval",
                                    "state_layout"};

StateLayout layout_of(const Call& call) {
  const std::string text = scalar_text(call, "state_layout", "N,HV,V,K");
  if (text == "N,HV,V,K") return StateLayout::kVK;
  if (text == "N,HV,K,V") return StateLayout::kKV;
  throw ContractError(kOp, "state_layout", "must be N,HV,V,K or N,HV,K,V", text);
}

KdaPrefillArgs to_args(const Call& call) {
  KdaPrefillArgs args;
  set_tensors(kda_prefill_args(), call, args);
  args.scale = scalar_float(kOp, call, "scale");
  args.lower_bound = scalar_float(kOp, call, "lower_bound");
  args.qk_l2norm = scalar_bool(kOp, call, "qk_l2norm", false);
  args.gate_in_kernel = scalar_bool(kOp, call, "gate_in_kernel", false);
  args.beta_sigmoid = scalar_bool(kOp, call, "beta_sigmoid", false);
  args.allow_neg_eigval = scalar_bool(kOp, call, "allow_neg_eigval", false);
  args.state_layout = layout_of(call);
  return args;
}

std::int64_t num_sequences(const Bundle& bundle) {
  const auto cu = bundle.tensors.find("cu_seqlens");
  if (cu != bundle.tensors.end()) return std::max<std::int64_t>(cu->second.numel() - 1, 0);
  return bundle.tensors.at("q").shape()[0];
}

/// out and final_state always; a pool's final_state starts as a copy of the pool, so that slots
/// nobody names keep their values. tracked_states comes with its index tensor. chunk_states stands
/// in the file where it is wanted.
void add_outputs(Bundle& bundle, std::span<const std::string> wanted) {
  auto& tensors = bundle.tensors;
  if (!tensors.contains("q") || !tensors.contains("v")) return;
  if (tensors.at("q").shape().size() != 4 || tensors.at("v").shape().size() != 4) return;
  const std::int64_t N = num_sequences(bundle);
  const std::int64_t HV = tensors.at("v").shape()[2];
  const auto add = [&](const char* name, const auto& make) {
    if (!tensors.contains(name)) tensors[name] = make();
  };
  add("out", [&] { return poisoned(DType::kBF16, tensors.at("v").shape()); });
  add("final_state", [&] {
    if (!tensors.contains("initial_state")) return poisoned(DType::kF32, {N, HV, kD, kD});
    const Tensor& first = tensors.at("initial_state");
    if (tensors.contains("state_indices")) return first.clone();
    return poisoned(first.dtype(), first.shape());
  });
  if (tensors.contains("track_chunk_idx"))
    add("tracked_states", [&] { return constant(DType::kF32, {N, HV, kD, kD}, 0.0); });
  if (std::find(wanted.begin(), wanted.end(), "chunk_states") != wanted.end())
    add("chunk_states", [&] {
      const std::int64_t tokens = tensors.at("q").shape()[0] * tensors.at("q").shape()[1];
      return constant(DType::kF32, {tokens / kKdaChunkTokens + N, HV, kD, kD}, 0.0);
    });
}

void run(const Call& call, const ExecContext& ctx) { kda_prefill(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_prefill(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_prefill_workspace_size(to_args(call), ctx);
}

/// Bytes: every tensor of the call once. Useful work: decay, prediction, correction and read-out of
/// the recurrence, 7 operations an element of the state, a token and a value head; in chunks nearly
/// all of them are products.
Cost cost(const Bundle& bundle) {
  Cost cost;
  cost.tensor_cores = true;
  cost.bytes = bytes_of(bundle);
  const auto& v = bundle.tensors.at("v").shape();
  cost.flops = 7.0 * kD * kD * static_cast<double>(v[0] * v[1] * v[2]);
  return cost;
}

/// After so many the tokens of a bench shape come again, where it has more.
constexpr std::int64_t kPeriod = 256;

BenchShape bench_shape(const std::vector<std::int64_t>& lengths, std::int64_t H) {
  const std::int64_t T = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {{{"T", T}, {"H", H}, {"seqs", static_cast<std::int64_t>(lengths.size())}}, [=] {
            return prefill_layer(
                {.lengths = lengths, .H = H, .seed = 3, .period = std::min(T, kPeriod)});
          }};
}

BenchShape for_cuda(BenchShape shape) {
  shape.cuda_only = true;
  return shape;
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape({2048}, 12),
                                    bench_shape(std::vector<std::int64_t>(8, 256), 12)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape({512}, 12));
  shapes.push_back(bench_shape({8192}, 12));
  const std::vector<std::int64_t> mixed = {1300, 547, 2048, 963, 271, 3063};
  shapes.push_back(bench_shape(mixed, 12));
  if (level == Level::kK3) return shapes;
  shapes.push_back(bench_shape({1}, 12));
  shapes.push_back(bench_shape(std::vector<std::int64_t>(256, 1), 12));
  shapes.push_back(bench_shape({2048}, 96));
  shapes.push_back(bench_shape({2048}, 1));
  const std::vector<std::int64_t> eight(8, 1024);
  for (const std::int64_t H : {96, 64, 24}) shapes.push_back(for_cuda(bench_shape({8192}, H)));
  shapes.push_back(for_cuda(bench_shape(mixed, 96)));
  for (const std::int64_t H : {96, 12}) shapes.push_back(for_cuda(bench_shape(eight, H)));
  shapes.push_back(for_cuda(bench_shape({65536}, 12)));
  shapes.push_back(for_cuda(bench_shape(std::vector<std::int64_t>(128, 64), 96)));
  std::vector<std::int64_t> short_ones(64);  // every length to a chunk once
  for (std::size_t i = 0; i < 64; ++i) short_ones[i] = 1 + static_cast<std::int64_t>(37 * i % 64);
  for (const std::int64_t H : {96, 12}) shapes.push_back(for_cuda(bench_shape(short_ones, H)));
  return shapes;
}

}  // namespace

const Driver& kda_prefill_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_prefill_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_prefill_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
