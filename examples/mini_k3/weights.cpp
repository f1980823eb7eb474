// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/safetensors.h"

namespace k3::mini {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<std::int64_t>;

/// A tensor on its way to the machine.
struct HostTensor {
  DType dtype = DType::kBF16;
  Shape shape;
  Bytes bytes;

  HostTensor(DType dtype, Shape shape) : dtype(dtype), shape(std::move(shape)) {
    std::size_t size = size_of(dtype);
    for (const std::int64_t n : this->shape) size *= static_cast<std::size_t>(n);
    bytes.resize(size);
  }
  /// Bytes of one entry of the first axis.
  [[nodiscard]] std::size_t row_bytes() const {
    return bytes.size() / static_cast<std::size_t>(shape[0]);
  }
};

class Loader {
 public:
  Loader(const std::string& path, Machine& machine)
      : path_(path), file_(io::load(path)), machine_(machine) {}

  /// A tensor of the file, which must have this dtype and shape.
  [[nodiscard]] HostTensor read(const std::string& name, const Shape& shape,
                                DType dtype = DType::kBF16) const {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end())
      throw io::FileError(fmt::format("{}: tensor '{}' is missing", path_, name));
    const io::Entry& entry = found->second;
    if (entry.dtype != dtype || entry.shape != shape)
      throw io::FileError(fmt::format("{}: tensor '{}' must be {} [{}], not {} [{}]", path_, name,
                                      name_of(dtype), fmt::join(shape, ", "), name_of(entry.dtype),
                                      fmt::join(entry.shape, ", ")));
    HostTensor tensor(dtype, shape);
    std::memcpy(tensor.bytes.data(), entry.bytes.data(), entry.bytes.size());
    return tensor;
  }

  [[nodiscard]] Array load(const std::string& name, const Shape& shape,
                           DType dtype = DType::kBF16) const {
    return store(read(name, shape, dtype));
  }

  /// Matrices of `columns` columns, given by name and rows, one below the other. Rows that are
  /// missing to a multiple of `multiple` are zeros.
  [[nodiscard]] HostTensor stack(const std::vector<std::pair<std::string, std::int64_t>>& parts,
                                 std::int64_t columns, std::int64_t multiple = 1) const {
    std::vector<HostTensor> tensors;
    std::int64_t num_rows = 0;
    for (const auto& [name, part_rows] : parts) {
      tensors.push_back(read(name, {part_rows, columns}));
      num_rows += part_rows;
    }
    HostTensor whole(DType::kBF16, {(num_rows + multiple - 1) / multiple * multiple, columns});
    std::byte* to = whole.bytes.data();
    for (const HostTensor& part : tensors) to = std::copy(part.bytes.begin(), part.bytes.end(), to);
    return whole;
  }

  [[nodiscard]] Array store(const HostTensor& tensor) const {
    Array array(machine_, tensor.dtype, tensor.shape);
    machine_.upload(array.view().data, tensor.bytes.data(), tensor.bytes.size());
    return array;
  }

 private:
  std::string path_;
  io::SafeTensors file_;
  Machine& machine_;
};

/// [rows, columns] as [columns, rows].
HostTensor transposed(const HostTensor& from) {
  HostTensor to(from.dtype, {from.shape[1], from.shape[0]});
  const std::size_t size = size_of(from.dtype);
  const auto rows = static_cast<std::size_t>(from.shape[0]);
  const auto columns = static_cast<std::size_t>(from.shape[1]);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(to.bytes.data() + (c * rows + r) * size,
                  from.bytes.data() + (r * columns + c) * size, size);
  return to;
}

/// Rows [begin, end).
HostTensor rows_of(const HostTensor& from, std::int64_t begin, std::int64_t end) {
  Shape shape = from.shape;
  shape[0] = end - begin;
  HostTensor to(from.dtype, shape);
  std::memcpy(to.bytes.data(),
              from.bytes.data() + static_cast<std::size_t>(begin) * from.row_bytes(),
              to.bytes.size());
  return to;
}

/// Tensors of one shape along a new first axis.
class Series {
 public:
  void add(const HostTensor& tensor) { parts_.push_back(tensor); }
  [[nodiscard]] HostTensor whole() const {
    Shape shape = parts_.front().shape;
    shape.insert(shape.begin(), static_cast<std::int64_t>(parts_.size()));
    HostTensor whole(parts_.front().dtype, shape);
    std::byte* to = whole.bytes.data();
    for (const HostTensor& part : parts_) to = std::copy(part.bytes.begin(), part.bytes.end(), to);
    return whole;
  }

 private:
  std::vector<HostTensor> parts_;
};

MixWeights load_mix(const Loader& loader, const Config& c, const std::string& norm,
                    const std::string& proj, const std::string& out_norm) {
  MixWeights w;
  w.score_norm = loader.load(norm + ".weight", {c.hidden_size});
  HostTensor row = loader.read(proj + ".weight", {1, c.hidden_size});
  row.shape = {c.hidden_size};
  w.score_proj = loader.store(row);
  w.out_norm = loader.load(out_norm + ".weight", {c.hidden_size});
  return w;
}

/// q, k and v beside each other, the newest tap last: [4, 3 h D] of three [h D, 1, 4].
HostTensor load_conv(const Loader& loader, const std::string& name, std::int64_t inner,
                     std::int64_t taps) {
  HostTensor channels(DType::kF32, {3 * inner, taps});
  std::byte* to = channels.bytes.data();
  for (const char* part : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
    const HostTensor from = loader.read(name + part + ".weight", {inner, 1, taps}, DType::kF32);
    to = std::copy(from.bytes.begin(), from.bytes.end(), to);
  }
  return transposed(channels);
}

KdaWeights load_kda(const Loader& loader, const Config& c, const std::string& name) {
  const std::int64_t heads = c.num_attention_heads;
  const std::int64_t inner = heads * c.head_dim;
  constexpr std::int64_t kStoredHeads = 128;  // A_log is padded in the file
  constexpr std::int64_t kAlignedRows = 8;    // 16-byte rows of the product's result
  KdaWeights w;
  w.qkvg = loader.store(loader.stack({{name + "q_proj.weight", inner},
                                      {name + "k_proj.weight", inner},
                                      {name + "v_proj.weight", inner},
                                      {name + "g_proj.weight", inner}},
                                     c.hidden_size));
  w.forget_beta = loader.store(
      loader.stack({{name + "f_a_proj.weight", c.head_dim}, {name + "b_proj.weight", heads}},
                   c.hidden_size, kAlignedRows));
  w.forget_up = loader.load(name + "f_b_proj.weight", {inner, c.head_dim});
  w.conv = loader.store(load_conv(loader, name, inner, c.conv));
  w.A_log =
      loader.store(rows_of(loader.read(name + "A_log", {kStoredHeads}, DType::kF32), 0, heads));
  w.dt_bias = loader.load(name + "dt_bias", {inner}, DType::kF32);
  w.out_norm = loader.load(name + "o_norm.weight", {c.head_dim}, DType::kF32);
  w.out = loader.load(name + "o_proj.weight", {c.hidden_size, inner});
  return w;
}

MlaWeights load_mla(const Loader& loader, const Config& c, const std::string& name) {
  const std::int64_t heads = c.num_attention_heads;
  const std::int64_t nope = c.qk_nope_head_dim;
  const std::int64_t v = c.v_head_dim;
  MlaWeights w;
  w.down_gate = loader.store(loader.stack({{name + "q_a_proj.weight", c.q_lora_rank},
                                           {name + "kv_a_proj_with_mqa.weight", c.cache_width()},
                                           {name + "g_proj.weight", heads * v}},
                                          c.hidden_size));
  w.q_norm = loader.load(name + "q_a_layernorm.weight", {c.q_lora_rank});
  w.kv_norm = loader.load(name + "kv_a_layernorm.weight", {c.kv_lora_rank});
  w.q_up =
      loader.load(name + "q_b_proj.weight", {heads * (nope + c.qk_rope_head_dim), c.q_lora_rank});
  // A head's rows of kv_b: its nope rows make k, the v rows behind them v.
  const HostTensor kv =
      loader.read(name + "kv_b_proj.weight", {heads * (nope + v), c.kv_lora_rank});
  Series k_absorb;
  Series v_up;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t begin = head * (nope + v);
    k_absorb.add(transposed(rows_of(kv, begin, begin + nope)));
    v_up.add(rows_of(kv, begin + nope, begin + nope + v));
  }
  w.k_absorb = loader.store(k_absorb.whole());
  w.v_up = loader.store(v_up.whole());
  w.out = loader.load(name + "o_proj.weight", {c.hidden_size, heads * v});
  return w;
}

DenseWeights load_dense(const Loader& loader, const Config& c, const std::string& name,
                        std::int64_t width) {
  DenseWeights w;
  w.gate_up = loader.store(loader.stack(
      {{name + "gate_proj.weight", width}, {name + "up_proj.weight", width}}, c.hidden_size));
  w.down = loader.load(name + "down_proj.weight", {c.hidden_size, width});
  return w;
}

MoeWeights load_moe(const Loader& loader, const Config& c, const std::string& name) {
  const std::int64_t latent = c.routed_expert_hidden_size;
  const std::int64_t width = c.moe_intermediate_size;
  MoeWeights w;
  w.router = loader.load(name + "gate.weight", {c.num_experts, c.hidden_size});
  w.router_bias = loader.load(name + "gate.e_score_correction_bias", {c.num_experts}, DType::kF32);
  w.latent_down = loader.load(name + "routed_expert_down_proj.weight", {latent, c.hidden_size});
  w.latent_norm = loader.load(name + "routed_expert_norm.weight", {latent});
  w.latent_up = loader.load(name + "routed_expert_up_proj.weight", {c.hidden_size, latent});
  Series gate_up;
  Series down;
  for (int expert = 0; expert < c.num_experts; ++expert) {
    const std::string of_expert = fmt::format("{}experts.{}.", name, expert);
    gate_up.add(
        loader.stack({{of_expert + "w1.weight", width}, {of_expert + "w3.weight", width}}, latent));
    down.add(loader.read(of_expert + "w2.weight", {latent, width}));
  }
  w.gate_up = loader.store(gate_up.whole());
  w.down = loader.store(down.whole());
  w.shared = load_dense(loader, c, name + "shared_experts.", c.num_shared_experts_width);
  return w;
}

Layer load_layer(const Loader& loader, const Config& c, int index) {
  const std::string name = fmt::format("model.layers.{}.", index);
  Layer layer;
  layer.attention_mix = load_mix(loader, c, name + "self_attention_res_norm",
                                 name + "self_attention_res_proj", name + "input_layernorm");
  if (c.is_mla(index))
    layer.attention = load_mla(loader, c, name + "self_attn.");
  else
    layer.attention = load_kda(loader, c, name + "self_attn.");
  layer.ffn_mix = load_mix(loader, c, name + "mlp_res_norm", name + "mlp_res_proj",
                           name + "post_attention_layernorm");
  if (index == 0)
    layer.ffn = load_dense(loader, c, name + "mlp.", c.intermediate_size);
  else
    layer.ffn = load_moe(loader, c, name + "block_sparse_moe.");
  return layer;
}

}  // namespace

Weights load_weights(const std::string& path, const Config& config, Machine& machine) {
  const Loader loader(path, machine);
  Weights w;
  w.embedding = loader.load("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  for (int index = 0; index < config.num_hidden_layers; ++index)
    w.layers.push_back(load_layer(loader, config, index));
  w.final_mix = load_mix(loader, config, "model.output_attn_res_norm", "model.output_attn_res_proj",
                         "model.norm");
  w.head = loader.load("lm_head.weight", {config.vocab_size, config.hidden_size});
  return w;
}

}  // namespace k3::mini
