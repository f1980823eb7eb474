// SPDX-License-Identifier: Apache-2.0
#include "contract/rows.h"

namespace k3 {

Rows fold_rows(const Contract& contract, const char* argument, const ConstTensorView& t, int axes) {
  Rows rows;
  for (int d = axes - 1; d >= 0; --d) {
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

int first_dense_axis(const ConstTensorView& t) {
  int axis = t.rank - 1;
  std::int64_t expected = t.shape[axis];
  for (int d = axis - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != expected) break;
    expected *= t.shape[d];
    axis = d;
  }
  return axis;
}

}  // namespace k3
