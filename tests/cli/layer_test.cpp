// SPDX-License-Identifier: Apache-2.0
// `k3 layer` as a script sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace k3 {
namespace {

using nlohmann::json;

/// Its two arguments: what is wrong, and words of the one line that says so.
struct Mistake {
  const char* arguments;
  const char* words;
};

TEST(CliLayer, MistakesGetOneLine) {
  for (const Mistake& mistake : {
           Mistake{"--tp 0", "--tp"},
           {"--tp 5", "{1,4,8,16,32}"},
           {"--tp ''", "--tp"},
           {"--seed -1", "--seed"},
           {"--tp -8", "--tp"},
           {"--tp 64", "--tp"},
           {"--batch 0", "--batch"},
           {"--batch -1", "--batch"},
           {"--batch 99999999999999999999", "--batch"},
           {"--steps 0", "--steps"},
           {"--steps -3", "--steps"},
           {"--steps many", "--steps"},
           {"--context 0", "--context"},
           {"--context 1048577", "--context"},
           {"--mode train", "--mode"},
           {"--backend tpu", "--backend"},
           {"--threads 0", "--threads"},
           {"--dense none", "--dense"},
           {"--batch 60000 --context 1048576", "GB of memory; this machine has"},
           {"--mode prefill --batch 65535 --context 1048576", "GB of memory; this machine has"},
           {"--json /no/such/folder/bill.json", "/no/such/folder"},
           {"--json bill --plot bill", "the same file"},
           {"--layers 3", "--layers"},
       }) {
    const Result result = errors_of(std::string("layer --backend cpu ") + mistake.arguments);
    EXPECT_EQ(result.code, 2) << mistake.arguments;
    EXPECT_EQ(result.out.rfind("k3: error: ", 0), 0U) << result.out;
    EXPECT_NE(result.out.find(mistake.words), std::string::npos) << result.out;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  }
}

TEST(CliLayer, WritesItsBill) {
  for (const std::string mode : {"decode", "verify", "prefill"}) {
    const ScratchFile file("layer.json");
    const std::string arguments =
        "layer --backend cpu --tp 32 --threads 1 --steps 2 --context 16 "
        "--mode " +
        mode + " --json " + file.path();
    const Result result = run(arguments);
    ASSERT_EQ(result.code, 0) << mode;
    EXPECT_NE(result.out.find("KDA attention, own ops"), std::string::npos);
    const json bill = json::parse(std::ifstream(file.path()));
    EXPECT_EQ(bill.at("layer").at("mode"), mode);
    double ops = 0.0;
    for (const json& row : bill.at("rows")) {
      EXPECT_GT(row.at("median_us"), 0.0);
      EXPECT_GT(row.at("floor_us"), 0.0);
      if (row.at("op") == "kda_" + (mode == "decode" ? "fused_decode" : mode)) ops += 1.0;
    }
    EXPECT_EQ(ops, 1.0) << mode;
    for (const json& sum : bill.at("sums")) {
      EXPECT_GT(sum.at("chain_us"), 0.0);
      EXPECT_GT(sum.at("launches"), 0);
    }
    // The same seed gives the same result, whatever the threads; another one another.
    const auto hash_of = [&](const std::string& call) {
      EXPECT_EQ(run(call).code, 0);
      return json::parse(std::ifstream(file.path())).at("layer").at("out_hash");
    };
    if (mode != "decode") continue;
    const std::string threads = "--threads 1";
    std::string two = arguments;
    two.replace(two.find(threads), threads.size(), "--threads 2");
    EXPECT_EQ(hash_of(two), bill.at("layer").at("out_hash"));
    EXPECT_NE(hash_of(arguments + " --seed 2"), bill.at("layer").at("out_hash"));
  }
}

}  // namespace
}  // namespace k3
