// SPDX-License-Identifier: Apache-2.0
// The oracles and the CPU against tensors recorded from other implementations
// (tests/data/README.md).
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/compare.h"
#include "harness/files.h"
#include "harness/runner.h"

namespace k3::harness {
namespace {

struct Golden {
  const char* op;
  const char* file;
  double err_ratio = 2e-3;  ///< 1.6e-3 is what the rounding of an output to bf16 costs alone
};

/// Values halfway between two codes fall either way where the file's producer rounds its scale
/// elsewhere; ten codes of 7168, a step of 1/16 to 1/8 apart.
constexpr double kTiesOfCodes = 4e-3;

/// The source tree's tests/data, or where a program carried to another machine finds them.
std::string data_folder() {
  const char* moved = std::getenv("K3_TEST_DATA");
  return moved != nullptr ? moved : K3_TEST_DATA;
}

void PrintTo(const Golden& golden, std::ostream* os) { *os << golden.file; }

class GoldenFile : public testing::TestWithParam<std::tuple<Golden, RunOn>> {};

TEST_P(GoldenFile, Agrees) {
  const auto& [golden, on] = GetParam();
  const Driver& driver = *find_driver(golden.op);
  const RunFile file = load_run_file(driver, data_folder() + "/" + golden.file);
  Bundle bundle = file.bundle.clone();
  run_once(driver, bundle, {.on = on});
  ASSERT_FALSE(file.expected.empty());
  for (const Comparison& c : compare_expected(file, bundle, {.err_ratio = golden.err_ratio}))
    EXPECT_TRUE(c.passed) << c.why;
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenFile,
    testing::Combine(
        testing::Values(Golden{"kda_prefill", "kda_prefill_safe_gate_varlen.safetensors"},
                        Golden{"kda_prefill", "kda_prefill_softplus_gva.safetensors"},
                        Golden{"kda_fused_decode", "kda_fused_decode_safe_gate.safetensors"},
                        Golden{"situ_and_mul", "situ_and_mul.safetensors"},
                        Golden{"attn_res_mix", "attn_res_mix_5.safetensors"},
                        Golden{"per_token_group_quant", "per_token_group_quant.safetensors",
                               kTiesOfCodes},
                        Golden{"moe_route_topk", "moe_route_topk.safetensors"}),
        testing::Values(RunOn::kOracle, RunOn::kCpu)));

}  // namespace
}  // namespace k3::harness
