// SPDX-License-Identifier: Apache-2.0
// `k3 generate` as a script sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "tests/cli/command.h"
#include "tests/environment.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kModel = K3_SOURCE_DIR "/examples/mini_k3/model";

std::string generate(const std::string& folder, const std::string& rest) {
  return "generate --backend cpu --model " + folder + " " + rest;
}

/// A copy of the model with another config or other tensors.
class ChangedModel {
 public:
  ChangedModel() : folder_("model") { fs::create_directory(folder_.path()); }
  ~ChangedModel() { fs::remove_all(folder_.path()); }
  ChangedModel(const ChangedModel&) = delete;
  ChangedModel& operator=(const ChangedModel&) = delete;

  [[nodiscard]] std::string path() const { return folder_.path(); }

  void config(const std::function<void(json&)>& change) const {
    json fields = json::parse(std::ifstream(kModel + "/config.json"));
    change(fields);
    std::ofstream(path() + "/config.json") << fields;
    if (!fs::exists(path() + "/model.safetensors"))
      fs::create_symlink(kModel + "/model.safetensors", path() + "/model.safetensors");
  }
  void tensors(const std::function<void(std::map<std::string, io::Entry>&)>& change) const {
    io::SafeTensors file = io::load(kModel + "/model.safetensors");
    change(file.tensors);
    io::save(path() + "/model.safetensors", file.tensors, {});
    fs::copy_file(kModel + "/config.json", path() + "/config.json",
                  fs::copy_options::overwrite_existing);
  }

 private:
  ScratchFile folder_;
};

void expect_one_line(const std::string& arguments, const std::string& words) {
  const Result result = errors_of(arguments);
  EXPECT_EQ(result.code, 2) << arguments;
  EXPECT_EQ(result.out.rfind("k3: error: ", 0), 0U) << result.out;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  EXPECT_NE(result.out.find(words), std::string::npos) << words << " in " << result.out;
}

TEST(CliGenerate, WritesPromptAndTextAndNothingElse) {
  const std::string prompt = "In the beginning ";
  const Result result = run(generate(kModel, "--tokens 40 --prompt '" + prompt + "'"));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.size(), prompt.size() + 40);
  EXPECT_EQ(result.out.rfind(prompt, 0), 0U);
  const Result figures = errors_of(generate(kModel, "--tokens 40 --speculate 4 --prompt 'a a a '"));
  EXPECT_NE(figures.out.find("bytes/s"), std::string::npos) << figures.out;
  EXPECT_NE(figures.out.find("drafted bytes accepted"), std::string::npos) << figures.out;
}

TEST(CliGenerate, AConfigThatIsNoneIsRefused) {
  const ChangedModel model;
  const std::string config = model.path() + "/config.json";
  model.config(
      [](json& fields) { fields["attn_res_block"] = 1, fields["num_hidden_layers"] = 1024; });
  expect_one_line(generate(model.path(), "--prompt x"), "attn_res_block");
  std::ofstream(config) << "{\"conv\": " << std::string(200000, '[') << std::string(200000, ']')
                        << "}";
  expect_one_line(generate(model.path(), "--prompt x"), "lists within lists");
  fs::remove(config);
  fs::create_directory(config);
  expect_one_line(generate(model.path(), "--prompt x"), "not a regular file");
  expect_one_line(generate(kModel, "--prompt x --seed -1"), "--seed");
}

TEST(CliGenerate, ASeedRepeats) {
  const auto text = [](const std::string& seed) {
    return run(generate(kModel, "--tokens 60 --temperature 1 --prompt 'And ' --seed " + seed)).out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST(CliGenerate, TheTextDoesNotDependOnThreads) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "And the king said unto him, ";
  const auto text = [&](const char* threads) {
    const Environment environment("OMP_NUM_THREADS", threads);
    return run(generate(kModel, "--tokens 40 --temperature 1 --prompt '" + prompt + "'")).out;
  };
  const std::string expected = text("1");
  EXPECT_EQ(expected.size(), prompt.size() + 40);
  for (const char* threads : {"2", "3"}) EXPECT_EQ(text(threads), expected) << threads;
}

TEST(CliGenerate, MistakesAreTwoAndOneLine) {
  const std::string prompt = "--prompt 'In '";
  expect_one_line(generate(kModel, "--prompt ''"), "--prompt is empty");
  expect_one_line(generate(kModel, prompt + " --tokens 1000000000"), "not enough memory");
  expect_one_line(generate(kModel, prompt + " --tokens=-1"), "tokens");
  expect_one_line(generate(kModel, prompt + " --speculate 16"), "speculate");
  expect_one_line(generate(kModel, prompt + " --temperature nan"), "temperature");
  expect_one_line(generate("/no/such/folder", prompt), "/no/such/folder/config.json");
  expect_one_line("generate " + prompt, "--model");
}

TEST(CliGenerate, AWrongConfigNamesTheField) {
  const ChangedModel model;
  const auto expect = [&](const std::function<void(json&)>& change, const std::string& words) {
    model.config(change);
    expect_one_line(generate(model.path(), "--prompt 'In '"), words);
  };
  expect([](json& c) { c["rope_theta"] = 10000; }, "field 'rope_theta' is not known");
  expect([](json& c) { c.erase("situ_beta"); }, "field 'situ_beta' is missing");
  expect([](json& c) { c["num_experts"] = "many"; }, "field 'num_experts' must be");
  expect([](json& c) { c["hidden_size"] = 255; }, "field 'hidden_size' must be a multiple of 8");
  expect([](json& c) { c["head_dim"] = 64; }, "field 'head_dim' must be 128, not 64");
  expect([](json& c) { c["lower_bound"] = 5; }, "field 'lower_bound' must be");
  expect([](json& c) { c["mla_layers"] = {4}; }, "field 'mla_layers' must be");
  expect([](json& c) { c["num_experts_per_token"] = 17; }, "field 'num_experts_per_token'");
  expect([](json& c) { c["num_hidden_layers"] = 5; }, "tensor 'model.layers.4.");
  expect([](json& c) { c = json::array(); }, "not a JSON object");
}

TEST(CliGenerate, AWrongTensorIsNamed) {
  using Tensors = std::map<std::string, io::Entry>;
  const ChangedModel model;
  const auto expect = [&](const std::function<void(Tensors&)>& change, const std::string& words) {
    model.tensors(change);
    expect_one_line(generate(model.path(), "--prompt 'In '"), words);
  };
  const std::string conv = "model.layers.1.self_attn.k_conv1d.weight";
  expect([&](Tensors& t) { t.erase(conv); }, "tensor '" + conv + "' is missing");
  expect([&](Tensors& t) { t.at(conv).shape = {256, 4, 1}; },
         "tensor '" + conv + "' must be f32 [256, 1, 4], not f32 [256, 4, 1]");
  const std::string expert = "model.layers.3.block_sparse_moe.experts.15.w2.weight";
  expect([&](Tensors& t) { t.at(expert).dtype = DType::kF16; },
         "tensor '" + expert + "' must be bf16 [128, 96], not f16 [128, 96]");
  fs::resize_file(model.path() + "/model.safetensors", 100000);
  expect_one_line(generate(model.path(), "--prompt 'In '"), "model.safetensors");
}

}  // namespace
}  // namespace k3
