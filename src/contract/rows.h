// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/checks.h"

namespace k3 {

/// Axes of a tensor folded into one.
struct Rows {
  std::int64_t count = 1;
  std::int64_t stride = 0;
};

/// The first `axes` axes as rows. @throws ContractError where no single stride leads through them
Rows fold_rows(const Contract& contract, const char* argument, const ConstTensorView& tensor,
               int axes);

/// The first axis from which on the tensor is row-major without gaps; rank - 1 at most, as the last
/// axis has unit stride.
int first_dense_axis(const ConstTensorView& tensor);

/// The same elements at the same places, in tensors of one shape. A stride counts where an axis has
/// two elements.
bool same_memory(const ConstTensorView& a, const ConstTensorView& b);

/// @throws ContractError where the tensor has not the shape of `like`
void require_shape_of(const Contract& contract, const char* argument, const ConstTensorView& tensor,
                      const char* like_argument, const ConstTensorView& like);

}  // namespace k3
