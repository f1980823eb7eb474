// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/checks.h"

namespace k3 {

/// Leading axes of a tensor, seen as one.
struct FoldedRows {
  std::int64_t count = 1;
  std::int64_t stride = 0;  ///< elements; of more than one row
};

/// The first `num_axes` axes. @throws ContractError where they have no common stride
inline FoldedRows fold_rows(const Contract& contract, const char* argument,
                            const ConstTensorView& t, int num_axes) {
  FoldedRows rows;
  for (int d = num_axes - 1; d >= 0; --d) {
    if (t.shape[d] == 1) continue;
    if (rows.count == 1)
      rows.stride = t.strides[d];
    else if (rows.count > 1 && t.strides[d] != rows.stride * rows.count)
      contract.fail(argument, "must have leading axes that fold into rows of one stride",
                    describe(t));
    rows.count *= t.shape[d];
  }
  return rows;
}

}  // namespace k3
