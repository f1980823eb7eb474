// SPDX-License-Identifier: Apache-2.0
#include "contract/top_p_renorm.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "harness/ops/probabilities.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "top_p_renorm";
constexpr const char* kScalars[] = {"top_p"};

TopPRenormArgs to_args(const Call& call) {
  TopPRenormArgs args;
  set_tensors(top_p_renorm_args(), call, args);
  args.top_p = scalar_float(kOp, call, "top_p");
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("probs")) return;
  bundle.tensors["out"] = poisoned(DType::kF32, bundle.tensors.at("probs").shape());
}

void run(const Call& call, const ExecContext& ctx) { top_p_renorm(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::top_p_renorm(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return top_p_renorm_workspace_size(to_args(call), ctx);
}

Cost cost(const Bundle& bundle) {
  const auto values = static_cast<double>(bundle.tensors.at("probs").numel());
  return {.bytes = 8.0 * values, .flops = 2.0 * values};
}

BenchShape bench_shape(std::int64_t B, std::int64_t V) {
  return {{{"B", B}, {"V", V}}, [=] {
            Random random(7);
            const Tensor row = random_probabilities(random, 1, V);
            Bundle bundle;
            bundle.tensors["probs"] = Tensor::dense(DType::kF32, {B, V});
            for (std::int64_t b = 0; b < B; ++b)
              std::memcpy(bundle.tensors.at("probs").storage() +
                              static_cast<std::size_t>(b) * row.storage_bytes(),
                          row.storage(), row.storage_bytes());
            bundle.tensors["out"] = poisoned(DType::kF32, {B, V});
            bundle.scalars = {{"top_p", "0.95"}};
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  constexpr std::int64_t kVocabulary = 163840;
  std::vector<BenchShape> shapes = {bench_shape(1, kVocabulary), bench_shape(64, kVocabulary)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(8, kVocabulary));
  if (level == Level::kK3) return shapes;
  shapes.push_back(bench_shape(256, kVocabulary));
  shapes.push_back(bench_shape(256, 1024));
  return shapes;
}

}  // namespace

const Driver& top_p_renorm_driver() {
  static const std::vector<ArgSpec> args = specs_of(top_p_renorm_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = top_p_renorm_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
