// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "harness/ops/case_list.h"
#include "harness/ops/mla_cache.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Copies, or one rounding that is part of the contract: every bit counts.
std::map<std::string, Tolerance> exact(const MlaCache& /*options*/) { return {}; }

Bundle make(const MlaCache& options, std::uint64_t seed) {
  MlaCache o = options;
  o.seed = seed;
  return mla_cache(o);
}

/// The same values at other places. The gaps of inputs hold NaN.
void place(Bundle& b, const std::string& name, std::vector<std::int64_t> strides,
           std::int64_t offset = 0) {
  Tensor& t = b.tensors.at(name);
  const bool output = name == "kv_buffer" || name == "q_out";
  t = restrided(t, std::move(strides), offset, output ? std::byte{0xA5} : kNaNGaps);
}

/// Latents and queries as views of wider rows, a cache of wider rows, all of it 16-byte aligned.
void wider_rows(Bundle& b) {
  place(b, "kv_buffer", {640, 1});
  place(b, "k_nope", {576, 1});
  place(b, "k_rope", {576, 1}, 512);
  place(b, "q_nope", {3 * 576, 576, 1});
  place(b, "q_rope", {3 * 192, 192, 1}, 128);
  place(b, "q_out", {3 * 592, 592, 1}, 16);
}

/// Queries as a batched product leaves them: heads first.
void heads_first(Bundle& b) {
  place(b, "q_nope", {512, 5 * 512, 1});
  place(b, "q_rope", {64, 5 * 64, 1});
}

/// The middle axis of one head that caches and latents often have.
void middle_axes(Bundle& b) {
  for (const char* name : {"kv_buffer", "k_nope", "k_rope"}) {
    Tensor& t = b.tensors.at(name);
    const auto shape = t.shape();
    Tensor with_axis = Tensor::dense(t.dtype(), {shape[0], 1, shape[1]});
    std::copy_n(t.storage(), t.storage_bytes(), with_axis.storage());
    t = with_axis;
  }
}

/// A cache of rows with more columns than are written.
void more_columns(Bundle& b) {
  const Tensor& t = b.tensors.at("kv_buffer");
  Tensor wide = Tensor::dense(t.dtype(), {t.shape()[0], t.shape()[1] + 48});
  wide.fill(3.0);
  b.tensors["kv_buffer"] = wide;
}

void set_slots(Bundle& b, const std::vector<std::int64_t>& slots) {
  b.tensors["slot_mapping"] = integers(b.tensors.at("slot_mapping").dtype(), slots);
}

/// Virtual slots of `world` ranks, each token's in another rank than the last one's.
void share(Bundle& b, int world, int rank) {
  Tensor& slots = b.tensors.at("slot_mapping");
  for (std::int64_t i = 0; i < slots.numel(); ++i)
    slots.set(i, slots.get(i) * world + static_cast<double>(i % world));
  b.scalars["dcp_world_size"] = std::to_string(world);
  b.scalars["dcp_rank"] = std::to_string(rank);
}

/// The bf16 values in their order, in both parts of the queries.
void every_value(Bundle& b) {
  for (const char* name : {"q_nope", "q_rope"}) {
    Tensor& t = b.tensors.at(name);
    auto* const bits = reinterpret_cast<std::uint16_t*>(t.storage());
    for (std::int64_t i = 0; i < t.numel(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  }
}

/// Padded tokens whose keys are NaN, pointed at a reserved row.
void padding_is_nan(Bundle& b) {
  set_slots(b, {0, 0, 5, 9, 7});
  b.scalars["null_index"] = "0";
  for (const char* name : {"k_nope", "k_rope"}) fill_rows_with_nan(b, name, 0, 2);
}

void add_cases(CaseList<MlaCache>& list, DType cache) {
  const std::string form = cache == DType::kBF16 ? "bf16_" : cache == DType::kU8 ? "u8_" : "fp8_";
  const auto add = [&](
                       const std::string& name, MlaCache o,
                       std::function<void(Bundle&)> edit = [](Bundle&) {}, bool quick = true) {
    o.cache = cache;
    list.add(form + name, o, std::move(edit), quick);
  };
  add("k3", {.B = 4, .H = 96});
  if (cache == DType::kU8) return;
  add("one_rank", {.B = 17, .H = 12});
  add("slots_i32", {.B = 9, .H = 12, .slots = DType::kI32});
  add("tokens_0", {.B = 0});
  add("tokens_1", {.B = 1, .H = 1});
  add("heads_0", {.H = 0});
  add("tokens_300", {.B = 300, .H = 12, .pool = 512}, [](Bundle&) {}, false);
  add("wider_rows", {}, wider_rows);
  add("heads_first", {}, heads_first);
  add("middle_axes", {}, middle_axes);
  add("more_columns", {}, more_columns);
  add("slots_strided", {}, [](Bundle& b) { place(b, "slot_mapping", {3}, 1); });

  for (const char* name : {"kv_buffer", "k_nope", "k_rope"})
    add(std::string(name) + "_off_by_one", {},
        [=](Bundle& b) { place(b, name, {b.tensors.at(name).shape()[1], 1}, 1); });
  for (const char* name : {"q_nope", "q_rope", "q_out"})
    add(std::string(name) + "_off_by_one", {}, [=](Bundle& b) {
      const auto shape = b.tensors.at(name).shape();
      place(b, name, {shape[1] * shape[2], shape[2], 1}, 1);
    });
  add("kv_buffer_odd_rows", {}, [](Bundle& b) { place(b, "kv_buffer", {579, 1}); });
  add("q_rope_rows_of_4_bytes", {}, [](Bundle& b) { place(b, "q_rope", {3 * 66, 66, 1}); });

  for (const auto& [nope, rope] : {std::pair{128, 64},
                                   {256, 64},
                                   {512, 0},
                                   {0, 64},
                                   {520, 72},
                                   {512, 60},
                                   {7, 5},
                                   {1, 1},
                                   {1024, 128},
                                   {24, 8}})
    add("widths_" + std::to_string(nope) + "_" + std::to_string(rope),
        {.nope = nope, .rope = rope});

  add("slots_negative", {}, [](Bundle& b) { set_slots(b, {-1, 3, -7, 0, 31}); });
  add("slots_all_padding", {}, [](Bundle& b) { set_slots(b, {-1, -1, -1, -1, -1}); });
  add("no_cache_rows", {.B = 0, .pool = 0});
  add("padding_is_nan", {}, padding_is_nan);
  add("null_index_3", {.B = 6}, [](Bundle& b) {
    set_slots(b, {3, 4, 2, 31, 0, -1});
    b.scalars["null_index"] = "3";
  });
  for (const auto& [world, rank] : {std::pair{2, 0}, {2, 1}, {4, 3}, {7, 2}, {8, 5}})
    add("dcp_" + std::to_string(rank) + "_of_" + std::to_string(world), {.B = 16, .H = 2},
        [=](Bundle& b) { share(b, world, rank); });
  add("dcp_with_padding", {}, [](Bundle& b) {
    set_slots(b, {-1, 6, -2, 13, 63});
    b.scalars["dcp_world_size"] = "2";
    b.scalars["dcp_rank"] = "1";
  });
  // 2 * 64 * 512 and 8 * 128 * 64 are 65,536.
  add("every_value", {.B = 2, .H = 64}, every_value);
  add("every_value_in_rope", {.B = 8, .H = 128, .nope = 8}, every_value);
}

}  // namespace

std::vector<Case> mla_cache_write_concat_q_cases() {
  CaseList<MlaCache> list(make, exact);
  for (DType cache : {DType::kBF16, DType::kF8E4M3, DType::kU8}) add_cases(list, cache);
  return list.take();
}

}  // namespace k3::harness
