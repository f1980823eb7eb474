// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace k3::harness {
namespace {

std::string coordinate(const std::vector<std::int64_t>& shape, std::int64_t flat) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

bool same_class(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return (!std::isinf(a) && !std::isinf(b)) || a == b;
}

/// One pass over both tensors: the sums, and the element that breaks the bounds most.
struct Errors {
  double squared_error = 0.0;
  double squared_reference = 0.0;
  double max_abs = 0.0;
  std::int64_t worst = -1;
  std::int64_t mismatch = -1;  ///< first place where NaN or Inf stand on one side only
  double excess = 0.0;         ///< largest |x - ref| - (atol + rtol |ref|), where above 0
  std::int64_t excess_at = -1;
};

Errors measure(const Tensor& reference, const Tensor& result, const Tolerance& tolerance) {
  Errors errors;
  const std::int64_t n = reference.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    const double expected = reference.get(i);
    const double seen = result.get(i);
    if (!std::isfinite(expected) || !std::isfinite(seen)) {
      if (errors.mismatch < 0 && !same_class(expected, seen)) errors.mismatch = i;
      continue;
    }
    const double error = std::fabs(seen - expected);
    errors.squared_error += error * error;
    errors.squared_reference += expected * expected;
    if (error > errors.max_abs || errors.worst < 0) {
      errors.max_abs = error;
      errors.worst = i;
    }
    const double excess = error - (tolerance.atol + tolerance.rtol * std::fabs(expected));
    if (excess > errors.excess) {
      errors.excess = excess;
      errors.excess_at = i;
    }
  }
  return errors;
}

std::string at(const Tensor& reference, const Tensor& result, std::int64_t flat) {
  return fmt::format("at {} the reference is {:.9g} and the result {:.9g}",
                     coordinate(reference.shape(), flat), reference.get(flat), result.get(flat));
}

/// Empty where every bound holds.
std::string broken_bound(const Comparison& c, const Errors& errors, const Tolerance& tolerance,
                         const Tensor& reference, const Tensor& result) {
  if (errors.mismatch >= 0) return "NaN or Inf: " + at(reference, result, errors.mismatch);
  const bool bounded = tolerance.err_ratio > 0 || tolerance.atol > 0 || tolerance.rtol > 0;
  if (tolerance.exact || !bounded)
    return c.max_abs == 0.0 ? "" : "must be equal: " + at(reference, result, errors.worst);
  // Written so that a NaN ratio fails.
  if (tolerance.err_ratio > 0 && !(c.err_ratio <= tolerance.err_ratio))
    return fmt::format("err_ratio {:.3g} > {:.3g}: {}", c.err_ratio, tolerance.err_ratio,
                       at(reference, result, errors.worst));
  if ((tolerance.atol > 0 || tolerance.rtol > 0) && errors.excess_at >= 0)
    return fmt::format("past atol {:.3g} + rtol {:.3g}: {}", tolerance.atol, tolerance.rtol,
                       at(reference, result, errors.excess_at));
  return "";
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.storage_bytes() == b.storage_bytes() &&
         std::memcmp(a.storage(), b.storage(), a.storage_bytes()) == 0;
}

/// The tensor with all its elements set to one value: what is left is the gaps.
Tensor gaps_of(const Tensor& tensor) {
  Tensor gaps = tensor.clone();
  gaps.fill_bytes(std::byte{0});
  return gaps;
}

std::size_t first_difference(const Tensor& a, const Tensor& b) {
  const std::byte* end = a.storage() + a.storage_bytes();
  return static_cast<std::size_t>(std::mismatch(a.storage(), end, b.storage()).first - a.storage());
}

}  // namespace

Comparison compare(const std::string& name, const Tensor& reference, const Tensor& result,
                   const Tolerance& tolerance) {
  Comparison c;
  c.name = name;
  if (reference.shape() != result.shape()) {
    c.finite_match = false;
    c.err_ratio = c.max_abs = std::nan("");
    c.why = fmt::format("{}: the reference has shape [{}], the result [{}]", name,
                        fmt::join(reference.shape(), ", "), fmt::join(result.shape(), ", "));
    return c;
  }
  const Errors errors = measure(reference, result, tolerance);
  c.max_abs = errors.max_abs;
  c.finite_match = errors.mismatch < 0;
  c.worst = c.finite_match ? errors.worst : errors.mismatch;
  // Against a reference of zeros any error is infinitely large.
  c.err_ratio = errors.squared_error == 0.0
                    ? 0.0
                    : std::sqrt(errors.squared_error / errors.squared_reference);
  const std::string why = broken_bound(c, errors, tolerance, reference, result);
  c.passed = why.empty();
  if (!c.passed) c.why = name + ": " + why;
  return c;
}

std::string stray_writes(const Driver& driver, const Bundle& before, const Bundle& after) {
  for (const auto& [name, old_tensor] : before.tensors) {
    if (!old_tensor.defined()) continue;
    const auto spec = std::find_if(driver.args.begin(), driver.args.end(),
                                   [&](const ArgSpec& arg) { return name == arg.name; });
    const bool written = spec != driver.args.end() && spec->role != Role::kInput;
    const Tensor& new_tensor = after.tensors.at(name);
    const bool has_gaps =
        old_tensor.storage_bytes() !=
        static_cast<std::size_t>(old_tensor.numel()) * size_of(old_tensor.dtype());
    if (written && !has_gaps) continue;
    if (same_bytes(old_tensor, new_tensor)) continue;
    if (!written)
      return fmt::format("the input {} was written at byte {}", name,
                         first_difference(old_tensor, new_tensor));
    const Tensor old_gaps = gaps_of(old_tensor);
    const Tensor new_gaps = gaps_of(new_tensor);
    if (!same_bytes(old_gaps, new_gaps))
      return fmt::format("a gap of {} was written at byte {} of its storage", name,
                         first_difference(old_gaps, new_gaps));
  }
  return "";
}

}  // namespace k3::harness
