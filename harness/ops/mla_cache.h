// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "harness/inputs.h"
#include "harness/tensor.h"

namespace k3::harness {

struct MlaCache {
  std::int64_t B = 5;
  std::int64_t H = 3;
  std::int64_t nope = 512;
  std::int64_t rope = 64;
  DType cache = DType::kBF16;
  DType slots = DType::kI64;
  std::int64_t pool = 32;  ///< rows of the cache, at least B
  std::uint64_t seed = 1;
};

/// A call of mla_cache_write_concat_q over dense tensors: a cache of other bytes everywhere, and
/// rows of it in random order.
inline Bundle mla_cache(const MlaCache& o) {
  Random random(o.seed);
  Bundle b;
  Tensor pool = Tensor::dense(o.cache, {o.pool, o.nope + o.rope});
  for (std::size_t i = 0; i < pool.storage_bytes(); ++i)
    pool.storage()[i] = static_cast<std::byte>(i % 61 + 32);
  b.tensors["kv_buffer"] = pool;

  std::vector<std::int64_t> rows(static_cast<std::size_t>(o.pool));
  std::iota(rows.begin(), rows.end(), 0);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.next() % i]);
  rows.resize(static_cast<std::size_t>(o.B));
  b.tensors["slot_mapping"] = integers(o.slots, rows);

  const auto draw = [&](std::vector<std::int64_t> shape) {
    return repeated_normal(random, DType::kBF16, shape, shape.back());
  };
  const auto values = [&](std::vector<std::int64_t> shape) {
    return o.B * o.H > 1000 ? draw(shape) : normal(random, DType::kBF16, shape, 2.0);
  };
  b.tensors["k_nope"] = values({o.B, o.nope});
  b.tensors["k_rope"] = values({o.B, o.rope});
  b.tensors["q_nope"] = values({o.B, o.H, o.nope});
  b.tensors["q_rope"] = values({o.B, o.H, o.rope});
  b.tensors["q_out"] = poisoned(o.cache, {o.B, o.H, o.nope + o.rope});
  return b;
}

}  // namespace k3::harness
