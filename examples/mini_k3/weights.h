// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "examples/mini_k3/config.h"
#include "examples/mini_k3/machine.h"

/// The tensors of a checkpoint as the forward pass wants them: products that read the same input
/// are stacked into one, and what the ops take in another order is put into it. h is the number of
/// heads, D = 128.
namespace k3::mini {

/// A mixture over the finished blocks and the running sum, and the norm behind it.
struct MixWeights {
  Array score_norm;  ///< [hidden]
  Array score_proj;  ///< [hidden]
  Array out_norm;    ///< [hidden]
};

struct KdaWeights {
  Array qkvg;         ///< [4 h D, hidden]: q, k, v and the output gate
  Array forget_beta;  ///< [D + h up to a multiple of 8, hidden]: f_a, then b
  Array forget_up;    ///< [h D, D]: f_b
  Array conv;         ///< [4, 3 h D] f32, tap 3 the newest token
  Array A_log;        ///< [h] f32
  Array dt_bias;      ///< [h D] f32
  Array out_norm;     ///< [D] f32
  Array out;          ///< [hidden, h D]
};

struct MlaWeights {
  Array down_gate;  ///< [q_rank + kv_rank + rope + h v, hidden]: q_a, kv_a, then the output gate
  Array q_norm;     ///< [q_rank]
  Array kv_norm;    ///< [kv_rank]
  Array q_up;       ///< [h (nope + rope), q_rank]
  Array k_absorb;   ///< [h, kv_rank, nope]: takes a head's query into the space of the cache
  Array v_up;       ///< [h, v, kv_rank]: brings a head's mixture back
  Array out;        ///< [hidden, h v]
};

struct DenseWeights {
  Array gate_up;  ///< [2 width, hidden]
  Array down;     ///< [hidden, width]
};

struct MoeWeights {
  Array router;       ///< [experts, hidden]
  Array router_bias;  ///< [experts] f32
  Array latent_down;  ///< [latent, hidden]
  Array gate_up;      ///< [experts, 2 width, latent]: w1, then w3
  Array down;         ///< [experts, latent, width]: w2
  Array latent_norm;  ///< [latent]
  Array latent_up;    ///< [hidden, latent]
  DenseWeights shared;
};

struct Layer {
  MixWeights attention_mix;
  std::variant<KdaWeights, MlaWeights> attention;
  MixWeights ffn_mix;
  std::variant<DenseWeights, MoeWeights> ffn;
};

struct Weights {
  Array embedding;  ///< [vocab, hidden]
  std::vector<Layer> layers;
  MixWeights final_mix;
  Array head;  ///< [vocab, hidden]
};

/// @throws io::FileError naming the file and the tensor
Weights load_weights(const std::string& path, const Config& config, Machine& machine);

}  // namespace k3::mini
