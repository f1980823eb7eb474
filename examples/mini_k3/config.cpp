// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/safetensors.h"

namespace k3::mini {
namespace {

using nlohmann::json;

struct IntField {
  const char* name;
  int Config::* member;
  int least;
  int most;
  int multiple = 1;
};

// Where both ends are one number, the kernels or the byte-level text leave no choice.
constexpr int kMost = 1 << 16;
constexpr IntField kInts[] = {
    {"vocab_size", &Config::vocab_size, 256, 256},
    {"hidden_size", &Config::hidden_size, 8, kMost, 8},
    {"num_hidden_layers", &Config::num_hidden_layers, 1, 1024},
    {"num_attention_heads", &Config::num_attention_heads, 1, 128},
    {"head_dim", &Config::head_dim, 128, 128},
    {"conv", &Config::conv, 4, 4},
    {"q_lora_rank", &Config::q_lora_rank, 8, kMost, 8},
    {"kv_lora_rank", &Config::kv_lora_rank, 16, 1024, 16},
    {"qk_nope_head_dim", &Config::qk_nope_head_dim, 8, 1024, 8},
    {"qk_rope_head_dim", &Config::qk_rope_head_dim, 16, 1024, 16},
    {"v_head_dim", &Config::v_head_dim, 8, 1024, 8},
    {"num_experts", &Config::num_experts, 1, 8192},
    {"num_experts_per_token", &Config::num_experts_per_token, 1, 64},
    {"routed_expert_hidden_size", &Config::routed_expert_hidden_size, 8, kMost, 8},
    {"moe_intermediate_size", &Config::moe_intermediate_size, 8, kMost, 8},
    {"num_shared_experts_width", &Config::num_shared_experts_width, 8, kMost, 8},
    {"intermediate_size", &Config::intermediate_size, 8, kMost, 8},
    {"attn_res_block", &Config::attn_res_block, 1, 1024},
};

struct FloatField {
  const char* name;
  float Config::* member;
  float sign;  ///< of every value that makes sense
};

constexpr FloatField kFloats[] = {
    {"rms_norm_eps", &Config::rms_norm_eps, 1},
    {"lower_bound", &Config::lower_bound, -1},
    {"situ_beta", &Config::situ_beta, 1},
    {"situ_linear_beta", &Config::situ_linear_beta, 1},
};

constexpr const char* kMlaLayers = "mla_layers";

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
      throw io::FileError(path + ": not a regular file");
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) throw io::FileError(path + ": cannot read");
    // A value of a field is a number or a list of them; to copy or print deeper ones would take as
    // deep a stack.
    constexpr int kDeepest = 4;
    const auto refuse_deep = [&](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) throw io::FileError(path + ": lists within lists");
      return true;
    };
    fields_ = json::parse(text.str(), refuse_deep, /*allow_exceptions=*/false);
    if (!fields_.is_object()) throw io::FileError(path + ": not a JSON object");
  }

  [[noreturn]] void fail(const std::string& field, const std::string& rule) const {
    throw io::FileError(fmt::format("{}: field '{}' {}", path_, field, rule));
  }

  void refuse_unknown_fields() const {
    const auto is_named = [](const std::string& name) {
      return [&name](const auto& field) { return name == field.name; };
    };
    for (const auto& [name, value] : fields_.items())
      if (name != kMlaLayers && std::none_of(std::begin(kInts), std::end(kInts), is_named(name)) &&
          std::none_of(std::begin(kFloats), std::end(kFloats), is_named(name)))
        fail(name, "is not known");
  }

  int integer(const IntField& field) const {
    const json& value = get(field.name);
    const auto seen = value.is_number_integer() ? value.get<std::int64_t>() : field.least - 1;
    if (seen < field.least || seen > field.most || seen % field.multiple != 0)
      fail(field.name,
           (field.least == field.most ? fmt::format("must be {}", field.least)
            : field.multiple == 1
                ? fmt::format("must be an integer from {} to {}", field.least, field.most)
                : fmt::format("must be a multiple of {} up to {}", field.multiple, field.most)) +
               ", not " + shown(value));
    return static_cast<int>(seen);
  }

  float real(const FloatField& field) const {
    const json& value = get(field.name);
    const float seen = value.is_number() ? value.get<float>() : 0.0F;
    if (!std::isfinite(seen) || seen * field.sign <= 0)
      fail(field.name, fmt::format("must be a number {} 0, not {}",
                                   field.sign > 0 ? "above" : "below", shown(value)));
    return seen;
  }

  std::vector<int> layers(int num_layers) const {
    const json& value = get(kMlaLayers);
    std::vector<int> layers;
    for (const json& layer : value.is_array() ? value : json::array({nullptr})) {
      const bool valid = layer.is_number_integer() && layer.get<std::int64_t>() >= 0 &&
                         layer.get<std::int64_t>() < num_layers;
      if (!valid)
        fail(kMlaLayers, fmt::format("must be a list of layers from 0 to {}, not {}",
                                     num_layers - 1, shown(value)));
      layers.push_back(layer.get<int>());
    }
    return layers;
  }

 private:
  const json& get(const char* name) const {
    const auto found = fields_.find(name);
    if (found == fields_.end()) fail(name, "is missing");
    return *found;
  }
  static std::string shown(const json& value) {
    constexpr std::size_t kMostShown = 40;
    return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, kMostShown);
  }

  std::string path_;
  json fields_;
};

}  // namespace

bool Config::is_mla(int layer) const {
  return std::find(mla_layers.begin(), mla_layers.end(), layer) != mla_layers.end();
}

Config load_config(const std::string& path) {
  const Reader reader(path);
  reader.refuse_unknown_fields();
  Config config;
  for (const IntField& field : kInts) config.*field.member = reader.integer(field);
  for (const FloatField& field : kFloats) config.*field.member = reader.real(field);
  config.mla_layers = reader.layers(config.num_hidden_layers);
  if (config.num_experts_per_token > config.num_experts)
    reader.fail("num_experts_per_token", "must be at most num_experts");
  constexpr int kMostBlocks = 1023;  // rows of a residual bank
  if ((config.num_hidden_layers - 1) / config.attn_res_block + 1 > kMostBlocks)
    reader.fail("attn_res_block",
                fmt::format("must leave at most {} blocks of layers", kMostBlocks));
  return config;
}

}  // namespace k3::mini
