// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace k3::mini {

/// The sizes of a K3, by the names of its config.json.
struct Config {
  int vocab_size = 0;
  int hidden_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int head_dim = 0;  ///< of KDA's keys and values
  int conv = 0;      ///< taps of KDA's short convolution
  int q_lora_rank = 0;
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;  ///< the part of a key that all heads share; K3 rotates nothing
  int v_head_dim = 0;
  int num_experts = 0;
  int num_experts_per_token = 0;
  int routed_expert_hidden_size = 0;  ///< the latent width that the routed experts work in
  int moe_intermediate_size = 0;
  int num_shared_experts_width = 0;
  int intermediate_size = 0;  ///< of the dense feed-forward block in layer 0
  int attn_res_block = 0;     ///< layers of a block of attention residuals
  float rms_norm_eps = 0;
  float lower_bound = 0;  ///< of KDA's log decay
  float situ_beta = 0;
  float situ_linear_beta = 0;
  std::vector<int> mla_layers;  ///< from 0; the others are KDA layers

  [[nodiscard]] bool is_mla(int layer) const;
  /// The attention residuals' snapshots, the embedding included.
  [[nodiscard]] int num_blocks() const {
    return (num_hidden_layers + attn_res_block - 1) / attn_res_block;
  }
  /// A row of the MLA cache.
  [[nodiscard]] int cache_width() const { return kv_lora_rank + qk_rope_head_dim; }
};

/// @throws io::FileError naming the file and the field
Config load_config(const std::string& path);

}  // namespace k3::mini
