// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/inputs.h"
#include "harness/tensor.h"

namespace k3::harness {

struct MlaPages {
  std::vector<std::int64_t> lengths;      ///< tokens of each request
  std::vector<std::int64_t> starts = {};  ///< empty: absent
  std::int64_t rows = 0;  ///< of req_to_token; at least one, and one for each request
  std::int64_t page_size = 64;
  std::int64_t page_mult = 1;
  bool v2p = false;
  DType lists = DType::kI64;
  std::uint64_t seed = 1;
};

/// A call of mla_block_table over dense tensors: a pool of pages in random order, of which each row
/// of req_to_token names its own. The table is filled with a number that no entry has.
inline Bundle mla_pages(const MlaPages& o) {
  Random random(o.seed);
  const auto B = static_cast<std::int64_t>(o.lengths.size());
  std::int64_t longest = 0;
  std::int64_t row_length = 1;
  for (std::size_t b = 0; b < o.lengths.size(); ++b) {
    longest = std::max(longest, o.lengths[b]);
    row_length = std::max(row_length, o.lengths[b] + (o.starts.empty() ? 0 : o.starts[b]));
  }
  const std::int64_t rows = std::max<std::int64_t>({1, o.rows, B});
  const std::int64_t row_pages = (row_length + o.page_size - 1) / o.page_size;
  const std::int64_t num_pages = rows * row_pages + 1;

  const auto shuffled = [&](std::int64_t count) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i;
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[random.next() % i]);
    return values;
  };
  Bundle b;
  const std::vector<std::int64_t> pages = shuffled(num_pages);
  Tensor tokens = Tensor::dense(DType::kI32, {rows, row_length});
  auto* const token = reinterpret_cast<std::int32_t*>(tokens.storage());
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    const std::int64_t column = i % row_length;
    const std::int64_t page = i / row_length * row_pages + column / o.page_size;
    token[i] = static_cast<std::int32_t>(pages[static_cast<std::size_t>(page)] * o.page_size +
                                         column % o.page_size);
  }
  b.tensors["req_to_token"] = tokens;
  std::vector<std::int64_t> pool = shuffled(rows);
  pool.resize(static_cast<std::size_t>(B));
  b.tensors["req_pool"] = integers(o.lists, pool);
  b.tensors["seq_lens"] = integers(o.lists, o.lengths);
  if (!o.starts.empty()) b.tensors["start"] = integers(o.lists, o.starts);
  if (o.v2p) b.tensors["v2p"] = integers(o.lists, shuffled(num_pages));
  const std::int64_t columns = (longest + o.page_size - 1) / o.page_size + 3;
  b.tensors["block_table"] = constant(DType::kI32, {B, columns}, 0x5A5A5A5A);
  b.scalars = {{"page_size", std::to_string(o.page_size)},
               {"page_mult", std::to_string(o.page_mult)}};
  return b;
}

}  // namespace k3::harness
