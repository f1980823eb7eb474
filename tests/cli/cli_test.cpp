// SPDX-License-Identifier: Apache-2.0
// The k3 command as a script sees it: exit codes, stdout, stderr, files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "tests/cli/command.h"

namespace k3 {
namespace {

using nlohmann::json;

constexpr const char* kSitu = " situ_and_mul --in " K3_TEST_DATA "/situ_and_mul.safetensors ";

json json_of(const std::string& arguments) {
  const Result result = run(arguments);
  EXPECT_EQ(result.code, 0) << arguments;
  return json::parse(result.out, nullptr, false);
}

TEST(Cli, InfoAndOpsPrintJson) {
  const json info = json_of("info --json");
  EXPECT_TRUE(info.at("cpu").at("threads").is_number());
  const json ops = json_of("ops --json");
  ASSERT_TRUE(ops.is_array());
  for (const json& row : ops) {
    EXPECT_TRUE(row.at("status") == "verified" || row.at("status") == "compiled-not-run");
    for (const char* key : {"op", "backend", "variant", "arch", "conditions"})
      EXPECT_TRUE(row.at(key).is_string()) << key;
  }
}

TEST(Cli, HelpEndsWithAnExample) {
  for (const char* command :
       {"info", "ops", "run", "check", "bench", "generate", "layer", "demo"}) {
    const Result result = run(std::string(command) + " --help");
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("Example:\n  k3 " + std::string(command)), std::string::npos);
  }
}

TEST(Cli, RunComparesWithTheFile) {
  const std::string in = kSitu;
  for (const char* backend : {"cpu", "oracle"}) {
    const Result result = run("run" + in + "--compare --backend " + backend);
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_NE(result.out.find("err_ratio"), std::string::npos);
  }
  EXPECT_EQ(run("run" + in + "--compare --tol 1e-5").code, 1);
  EXPECT_EQ(run("run" + in + "--compare --set beta=3.5").code, 1);
  EXPECT_EQ(run("run" + in).code, 0);
}

TEST(Cli, RunWritesOutputsUnderTheirNames) {
  const ScratchFile file("decode.safetensors");
  const Result result = run("run kda_fused_decode --in " K3_TEST_DATA
                            "/kda_fused_decode_safe_gate.safetensors "
                            "--backend cpu --compare --out " +
                            file.path());
  EXPECT_EQ(result.code, 0) << result.out;
  const io::SafeTensors written = io::load(file.path());
  EXPECT_EQ(written.tensors.size(), 3U);
  for (const char* name : {"out", "state_out", "conv_states_out"})
    EXPECT_TRUE(written.tensors.contains(name)) << name;
}

TEST(Cli, RunGivesOutputsTheDtypeThatIsSet) {
  const ScratchFile in("product.safetensors");
  const ScratchFile out("out.safetensors");
  const std::array<std::byte, 32> bytes{};
  io::save(in.path(),
           {{"x", {DType::kBF16, {1, 16}, bytes}}, {"w", {DType::kBF16, {1, 16}, bytes}}}, {});
  const std::string product =
      "run tiny_gemm --backend cpu --in " + in.path() + " --out " + out.path();
  EXPECT_EQ(run(product).code, 0);
  EXPECT_EQ(io::load(out.path()).tensors.at("out").dtype, DType::kBF16);
  EXPECT_EQ(run(product + " --set output_dtype=f32").code, 0);
  EXPECT_EQ(io::load(out.path()).tensors.at("out").dtype, DType::kF32);
  EXPECT_EQ(errors_of(product + " --set output_dtype=f64").code, 2);

  EXPECT_EQ(run("run per_token_group_quant --in " K3_TEST_DATA "/per_token_group_quant.safetensors "
                "--backend cpu --set scale_ue8m0=1 --set scale_dtype=i32 --out " +
                out.path())
                .code,
            0);
  const io::SafeTensors quantised = io::load(out.path());
  EXPECT_EQ(quantised.tensors.at("output_s").dtype, DType::kI32);
  EXPECT_EQ(quantised.tensors.at("output_s").shape, (std::vector<std::int64_t>{7, 2}));
}

TEST(Cli, MistakesAreTwoAndSayWhy) {
  const std::string in = kSitu;
  for (const auto& [arguments, words] : {
           std::pair<std::string, const char*>{"", "subcommand"},
           {"nonsense", "nonsense"},
           {"run" + in + "--nonsense", "nonsense"},
           {"run nonsense --in x", "kda_prefill"},
           {"run situ_and_mul", "--in FILE"},
           {"run situ_and_mul --in /no/such/file", "/no/such/file"},
           {"run situ_and_mul --in /", "regular file"},
           {"run" + in + "--set nonsense=1", "linear_beta"},
           {"run" + in + "--set beta", "name=value"},
           {"run" + in + "--set beta=0", "beta"},
           {"run" + in + "--backend tpu", "tpu"},
           {"run" + in + "--compare --tol=-1", "tol"},
           {"run" + in + "--out /dev/null", "/dev/null"},
           {"check nonsense", "nonsense"},
           {"check --quick --full", "--full"},
           {"bench --peers /no/such/file", "/no/such/file"},
           {"bench --threads 0", "threads"},
       }) {
    const Result result = errors_of(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out.rfind("k3: error: ", 0), 0U) << arguments << ": " << result.out;
    EXPECT_NE(result.out.find(words), std::string::npos) << arguments << ": " << result.out;
  }
}

TEST(Cli, AReportGoesThroughALinkAndIntoAPipe) {
  const std::string bench =
      "bench kda_output_norm --backend cpu --shapes quick --threads 1 --json ";
  const ScratchFile file("target.json");
  const ScratchFile link("link.json");
  std::filesystem::create_symlink(file.path(), link.path());
  EXPECT_EQ(run(bench + link.path()).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link.path()));
  EXPECT_EQ(json::parse(std::ifstream(file.path())).at("rows").size(), 2U);

  const ScratchFile pipe("pipe");
  ASSERT_EQ(::mkfifo(pipe.path().c_str(), 0600), 0);
  const Result read = run(bench + pipe.path() + " > /dev/null & timeout 60 cat " + pipe.path());
  EXPECT_EQ(json::parse(read.out, nullptr, false).at("rows").size(), 2U);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe.path()));
}

TEST(Cli, ASilencedStreamIsNoCrash) {
  for (const auto& [arguments, redirect] : {std::pair{"nonsense", "2>&-"},
                                            {"nonsense", "2>/dev/full"},
                                            {"ops", ">/dev/full 2>/dev/null"},
                                            {"ops", ">&- 2>/dev/null"},
                                            {"--help", ">/dev/full 2>&-"}})
    EXPECT_EQ(run(arguments, redirect).code, 2) << arguments << " " << redirect;
}

TEST(Cli, AFileOfOutputsAloneIsRefused) {
  const ScratchFile file("outputs.safetensors");
  const std::array<std::byte, 4> bytes{};
  io::save(file.path(), {{"out", {DType::kBF16, {1, 2}, bytes}}}, {});
  const Result result = errors_of("run situ_and_mul --compare --in " + file.path());
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("holds out but not the arguments that make it"), std::string::npos)
      << result.out;
}

TEST(Cli, ErrorsHoldNoControlsOfAFile) {
  const ScratchFile file("controls.safetensors");
  const std::array<std::byte, 8> bytes{};
  io::save(file.path(), {{"input", {DType::kBF16, {1, 4}, bytes}}}, {{"beta", "\x1B[2J\u009b1m"}});
  const Result result = errors_of("run situ_and_mul --in " + file.path());
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("?[2J?1m"), std::string::npos) << result.out;
}

TEST(Cli, DemoTakesFilesByTheirOp) {
  const ScratchFile folder("demo");
  std::filesystem::create_directory(folder.path());
  const std::string renamed = folder.path() + "/any_name.safetensors";
  std::filesystem::copy(K3_TEST_DATA "/situ_and_mul.safetensors", renamed);
  const std::array<std::byte, 8> bytes{};
  io::save(folder.path() + "/situ_and_mul.safetensors", {{"input", {DType::kBF16, {1, 4}, bytes}}},
           {{"op", "no_op_of_ours"}});
  const Result result = run("demo " + folder.path());
  std::filesystem::remove_all(folder.path());
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("any_name"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("no_op_of_ours"), std::string::npos) << result.out;
}

TEST(Cli, CudaThatCannotBeUsedIsThree) {
  if (!json_of("info --json").at("cuda").at("devices").empty()) GTEST_SKIP() << "CUDA is here";
  for (const char* arguments : {"check --backend cuda", "bench --backend cuda"})
    EXPECT_EQ(errors_of(arguments).code, 3) << arguments;
  EXPECT_EQ(errors_of(std::string("run") + kSitu + "--backend cuda").code, 3);
}

TEST(Cli, CheckCountsItsCases) {
  const json report = json_of("check situ_and_mul --backend cpu --quick --json");
  EXPECT_EQ(report.at("failed"), 0);
  EXPECT_EQ(report.at("cases").size(),
            report.at("passed").get<std::size_t>() + report.at("skipped").get<std::size_t>());
  const Result text = run("check situ_and_mul --backend cpu --quick");
  EXPECT_NE(text.out.find(" passed, 0 failed, "), std::string::npos);
}

TEST(Cli, BenchWritesItsReport) {
  const ScratchFile file("bench.json");
  const ScratchFile peers("peers.json");
  const std::string arguments =
      "bench situ_and_mul --backend cpu --threads 1 --json " + file.path();
  ASSERT_EQ(run(arguments).code, 0);
  const json report = json::parse(std::ifstream(file.path()));
  for (const char* key : {"machine", "date", "commit", "ceilings", "rows"})
    EXPECT_TRUE(report.contains(key)) << key;
  EXPECT_GT(report.at("ceilings").at("read_write_gbps"), 0.0);
  EXPECT_GT(report.at("ceilings").at("fma_gflops"), 0.0);
  for (const json& row : report.at("rows")) {
    EXPECT_LE(row.at("p10_us"), row.at("median_us"));
    EXPECT_LE(row.at("median_us"), row.at("p90_us"));
    EXPECT_GT(row.at("percent_of_floor"), 0.0);
    EXPECT_TRUE(row.at("peer").empty());
  }
  const json figures = {{report.at("machine").get<std::string>(),
                         {{"situ_and_mul", {{"D=6144,tokens=1", {{"other 2026-01-01", 9.5}}}}}}}};
  std::ofstream(peers.path()) << figures;
  ASSERT_EQ(run(arguments + " --peers " + peers.path()).code, 0);
  const json with_peers = json::parse(std::ifstream(file.path()));
  bool found = false;
  for (const json& row : with_peers.at("rows"))
    found |= row.at("peer").contains("other 2026-01-01");
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace k3
