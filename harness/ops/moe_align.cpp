// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_align.h"

#include <algorithm>
#include <numeric>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_align";
constexpr const char* kScalars[] = {"num_experts", "block_size"};

MoeAlignArgs to_args(const Call& call) {
  MoeAlignArgs args;
  set_tensors(moe_align_args(), call, args);
  args.num_experts = scalar_int(kOp, call, "num_experts", args.num_experts);
  args.block_size = scalar_int(kOp, call, "block_size", args.block_size);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("topk_ids")) return;
  const auto& shape = bundle.tensors.at("topk_ids").shape();
  if (shape.size() != 2) return;
  const MoeAlignArgs args = to_args({.scalars = bundle.scalars});
  const std::int64_t capacity =
      moe_align_capacity(shape[0], shape[1], args.num_experts, args.block_size);
  const std::int64_t blocks = args.block_size > 0 ? capacity / args.block_size : 0;
  for (const auto& [name, size] :
       {std::pair{"sorted_ids", capacity}, {"expert_ids", blocks}, {"num_post", std::int64_t{1}}})
    if (!bundle.tensors.contains(name)) bundle.tensors[name] = poisoned(DType::kI32, {size});
}

void run(const Call& call, const ExecContext& ctx) { moe_align(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_align(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_align_workspace_size(to_args(call), ctx);
}

/// Every tensor once; a count and a place for each slot.
Cost cost(const Bundle& bundle) {
  double elements = 0.0;
  for (const auto& [name, tensor] : bundle.tensors) elements += static_cast<double>(tensor.numel());
  return {.bytes = 4.0 * elements,
          .flops = 2.0 * static_cast<double>(bundle.tensors.at("topk_ids").numel())};
}

struct Options {
  std::int64_t T = 3;
  std::int64_t k = 16;
  int experts = 896;
  int block = 64;
  std::int64_t extra = 0;  ///< elements of the outputs past their capacity
};

/// The experts of a token are distinct, as a router gives them, where there are enough.
Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  std::vector<int> experts(static_cast<std::size_t>(o.experts));
  std::iota(experts.begin(), experts.end(), 0);
  Tensor ids = Tensor::dense(DType::kI32, {o.T, o.k});
  for (std::int64_t t = 0; t < o.T; ++t)
    for (std::int64_t j = 0; j < o.k; ++j) {
      const std::int64_t from = j % o.experts;
      const auto other = from + static_cast<std::int64_t>(
                                    random.next() % static_cast<std::uint64_t>(o.experts - from));
      std::swap(experts[from], experts[other]);
      ids.set(t * o.k + j, experts[from]);
    }
  b.tensors["topk_ids"] = ids;
  b.scalars = {{"num_experts", std::to_string(o.experts)}, {"block_size", std::to_string(o.block)}};
  const std::int64_t capacity = moe_align_capacity(o.T, o.k, o.experts, o.block);
  b.tensors["sorted_ids"] = poisoned(DType::kI32, {capacity + o.extra});
  b.tensors["expert_ids"] = poisoned(DType::kI32, {capacity / o.block + o.extra});
  b.tensors["num_post"] = poisoned(DType::kI32, {1});
  return b;
}

std::map<std::string, Tolerance> exact(const Options&) { return {}; }

/// Every third slot belongs to no expert here.
void drop_some(Bundle& b) {
  Tensor& ids = b.tensors.at("topk_ids");
  for (std::int64_t i = 0; i < ids.numel(); i += 3) ids.set(i, i % 2 == 0 ? -1 : -2147483648.0);
}

void all_of_one_expert(Bundle& b) {
  set_all(b, "topk_ids", [](std::int64_t) { return 5; });
}

std::vector<Case> cases() {
  CaseList<Options> list(make_bundle, exact);
  for (std::int64_t T : {0, 1, 2, 3, 16, 17, 64, 1000})
    list.add("tokens_" + std::to_string(T), {.T = T});
  for (std::int64_t k : {0, 1, 8, 31, 32, 33, 300})
    for (std::int64_t T : {1, 5})
      list.add("tokens_" + std::to_string(T) + "_topk_" + std::to_string(k), {.T = T, .k = k});
  for (int block : {1, 2, 7, 16, 128, 1000})
    for (std::int64_t T : {1, 40})
      list.add("tokens_" + std::to_string(T) + "_block_" + std::to_string(block),
               {.T = T, .block = block});
  for (int experts : {1, 2, 33, 1024, 1025, 8192})
    for (std::int64_t T : {1, 40})
      list.add("tokens_" + std::to_string(T) + "_experts_" + std::to_string(experts),
               {.T = T, .experts = experts, .block = 16});
  for (std::int64_t T : {1, 9, 300}) {
    const std::string name = "_tokens_" + std::to_string(T);
    list.add("dropped" + name, {.T = T}, drop_some);
    list.add("all_dropped" + name, {.T = T},
             [](Bundle& b) { set_all(b, "topk_ids", [](std::int64_t) { return -1; }); });
    list.add("one_expert" + name, {.T = T}, all_of_one_expert);
    list.add("outputs_longer" + name, {.T = T, .extra = 77});
    list.add("off_by_one_element" + name, {.T = T}, [](Bundle& b) {
      for (const char* tensor : {"sorted_ids", "expert_ids", "num_post"})
        b.tensors[tensor] = restrided(b.tensors.at(tensor), {1}, 1);
      b.tensors["topk_ids"] = restrided(b.tensors.at("topk_ids"), {16, 1}, 1);
    });
  }
  list.add("tokens_8192", {.T = 8192}, [](Bundle&) {}, false);
  list.add("tokens_40000", {.T = 40000}, drop_some, false);
  return list.take();
}

std::vector<BenchShape> bench_shapes(Level level) {
  const auto shape = [](std::int64_t T) -> BenchShape {
    return {{{"tokens", T}, {"topk", 16}, {"experts", 896}, {"block", 64}},
            [=] { return make_bundle({.T = T}, 5); }};
  };
  std::vector<BenchShape> shapes = {shape(1), shape(64)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t T : {8, 1024, 8192}) shapes.push_back(shape(T));
  return shapes;
}

}  // namespace

const Driver& moe_align_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_align_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
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
