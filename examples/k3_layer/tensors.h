// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/k3_layer/sizes.h"
#include "harness/tensor.h"

/// All tensors of a run, by name: weights, states, activations.
namespace k3::layer {

/// Normal values, or one value where the deviation is 0.
struct TensorSpec {
  const char* name;
  DType dtype;
  std::vector<std::int64_t> shape;
  double deviation = 0.0;
  double mean = 0.0;
};

std::vector<TensorSpec> tensor_specs(const Request& request);
/// Of all of them, before any is made.
double bytes_of(const std::vector<TensorSpec>& specs);

std::uint64_t fnv1a(std::span<const std::byte> bytes);

/// The tensors, each with the values that seed and name give, whatever the others are. Large ones
/// repeat theirs, with a period that divides no row.
harness::Bundle make_tensors(const Request& request);

/// The inputs of a step: prefix and bank, and the rows of the cache that its tokens get.
void draw_inputs(const Request& request, std::int64_t step, harness::Bundle& tensors);
/// Their names.
inline constexpr const char* kStepInputs[] = {"bank", "prefix", "cache_slots"};

}  // namespace k3::layer
