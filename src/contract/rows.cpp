// SPDX-License-Identifier: Apache-2.0
#include "contract/rows.h"

#include <fmt/format.h>

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

bool same_memory(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.data != b.data) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

void require_shape_of(const Contract& contract, const char* argument, const ConstTensorView& t,
                      const char* like_argument, const ConstTensorView& like) {
  bool same = t.rank == like.rank;
  for (int d = 0; same && d < t.rank; ++d) same = t.shape[d] == like.shape[d];
  if (!same)
    contract.fail(argument,
                  fmt::format("must have the shape of {}, {}", like_argument, describe(like)),
                  describe(t));
}

}  // namespace k3
