// SPDX-License-Identifier: Apache-2.0
#include "contract/kda.h"

#include <fmt/format.h>

#include <unordered_map>

namespace k3 {

IndexList::IndexList(const ConstTensorView& view)
    : data(static_cast<const std::int32_t*>(view.data)),
      stride(view.rank == 1 ? view.strides[0] : 1),
      size(view.rank == 1 ? view.shape[0] : 0) {}

void check_indices(const Contract& contract, const char* argument, const IndexList& indices,
                   int null_index, std::int64_t num_rows, const char* what, ValueChecks checks) {
  std::unordered_map<std::int32_t, std::int64_t> first_user;
  for (std::int64_t n = 0; n < indices.size; ++n) {
    const std::int32_t row = indices[n];
    if (row <= null_index) continue;
    if (row >= num_rows)
      contract.fail(
          argument,
          fmt::format("must be at most {} (none) or a {} below {}", null_index, what, num_rows),
          fmt::format("{}[{}] = {}", argument, n, row));
    if (checks != ValueChecks::kRangesAndDuplicates) continue;
    const auto [other, is_new] = first_user.try_emplace(row, n);
    if (!is_new)
      contract.fail(argument, fmt::format("must give every live request a {} of its own", what),
                    fmt::format("{0}[{1}] = {0}[{2}] = {3}", argument, other->second, n, row));
  }
}

}  // namespace k3
