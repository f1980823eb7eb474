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

/// The finite part of some elements: sums for their root mean squares.
struct Sums {
  double error = 0.0;
  double reference = 0.0;
  std::int64_t count = 0;

  void add(double e, double r) {
    error += e * e;
    reference += r * r;
    ++count;
  }
  void add(const Sums& other) {
    error += other.error;
    reference += other.reference;
    count += other.count;
  }
  [[nodiscard]] double mean_reference() const {
    return count == 0 ? 0.0 : reference / static_cast<double>(count);
  }
};

/// rms(error) / sqrt(`mean_square`). Against a reference of zeros any error is infinitely large.
double ratio(const Sums& sums, double mean_square) {
  return sums.error == 0.0 ? 0.0
                           : std::sqrt(sums.error / static_cast<double>(sums.count) / mean_square);
}

/// One pass over both tensors: the sums, and the elements that break a bound most.
struct Errors {
  Sums whole;
  std::vector<Sums> rows;  ///< of the last axis
  double max_abs = 0.0;
  std::int64_t worst = -1;
  std::int64_t mismatch = -1;    ///< first place where NaN or Inf stand on one side only
  std::int64_t other_bits = -1;  ///< first element of other bits (of another value across dtypes)
  double excess = 0.0;           ///< largest |x - ref| - (atol + rtol |ref|), where above 0
  std::int64_t excess_at = -1;
};

bool same_bits(const Tensor& a, const Tensor& b, std::int64_t flat) {
  return std::ranges::equal(a.element(flat), b.element(flat));
}

Errors measure(const Tensor& reference, const Tensor& result, const Tolerance& tolerance) {
  Errors errors;
  const std::int64_t n = reference.numel();
  const bool same_dtype = reference.dtype() == result.dtype();
  const std::int64_t row_length = reference.shape().empty() ? 1 : reference.shape().back();
  for (std::int64_t i = 0; i < n; ++i) {
    if (i % row_length == 0) errors.rows.emplace_back();
    const double expected = reference.get(i);
    const double seen = result.get(i);
    const bool agree = same_class(expected, seen);
    if (errors.mismatch < 0 && !agree) errors.mismatch = i;
    const bool finite = std::isfinite(expected) && std::isfinite(seen);
    const bool equal =
        same_dtype ? same_bits(reference, result, i) : agree && (!finite || expected == seen);
    if (errors.other_bits < 0 && !equal) errors.other_bits = i;
    if (!finite) continue;
    const double error = std::fabs(seen - expected);
    errors.rows.back().add(error, expected);
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
  for (const Sums& row : errors.rows) errors.whole.add(row);
  return errors;
}

struct WorstRow {
  double ratio = 0.0;
  std::size_t index = 0;
};

/// Each row against its own size or the whole tensor's, whichever is larger: rows near zero are no
/// more exact than the arithmetic that made them.
WorstRow worst_row(const Errors& errors) {
  const double mean_square = errors.whole.mean_reference();
  WorstRow worst;
  for (std::size_t i = 0; i < errors.rows.size(); ++i) {
    const Sums& row = errors.rows[i];
    const double r = ratio(row, std::max(row.mean_reference(), mean_square));
    if (r > worst.ratio) worst = {r, i};
  }
  return worst;
}

std::string at(const Tensor& reference, const Tensor& result, std::int64_t flat) {
  return fmt::format("at {} the reference is {:.9g} and the result {:.9g}",
                     coordinate(reference.shape(), flat), reference.get(flat), result.get(flat));
}

std::string bytes_at(const Tensor& reference, const Tensor& result, std::int64_t flat) {
  return fmt::format("{} (bytes {:02x} and {:02x})", at(reference, result, flat),
                     fmt::join(reference.element(flat), ""), fmt::join(result.element(flat), ""));
}

/// Empty where every bound holds.
std::string broken_bound(const Comparison& c, const Errors& errors, const Tolerance& tolerance,
                         const Tensor& reference, const Tensor& result) {
  const bool bounded = tolerance.err_ratio > 0 || tolerance.row_err_ratio > 0 ||
                       tolerance.atol > 0 || tolerance.rtol > 0;
  if (errors.mismatch >= 0) return "NaN or Inf: " + at(reference, result, errors.mismatch);
  if (tolerance.exact || !bounded)
    return errors.other_bits < 0
               ? ""
               : "must be equal: " + bytes_at(reference, result, errors.other_bits);
  // Written so that a NaN ratio fails.
  if (tolerance.err_ratio > 0 && !(c.err_ratio <= tolerance.err_ratio))
    return fmt::format("err_ratio {:.3g} > {:.3g}: {}", c.err_ratio, tolerance.err_ratio,
                       at(reference, result, errors.worst));
  if (tolerance.row_err_ratio > 0 && !(c.row_err_ratio <= tolerance.row_err_ratio)) {
    std::vector<std::int64_t> rows = reference.shape();
    if (!rows.empty()) rows.pop_back();
    return fmt::format("row_err_ratio {:.3g} > {:.3g} in row {}", c.row_err_ratio,
                       tolerance.row_err_ratio,
                       coordinate(rows, static_cast<std::int64_t>(worst_row(errors).index)));
  }
  if ((tolerance.atol > 0 || tolerance.rtol > 0) && errors.excess_at >= 0)
    return fmt::format("past atol {:.3g} + rtol {:.3g}: {}", tolerance.atol, tolerance.rtol,
                       at(reference, result, errors.excess_at));
  return "";
}

/// The elements of one index of the first axis, bit for bit.
bool same_row(const Tensor& a, const Tensor& b, std::int64_t row) {
  const std::int64_t length = a.numel() / a.shape()[0];
  if (a.is_dense() && b.is_dense()) {
    const std::size_t bytes = static_cast<std::size_t>(length) * size_of(a.dtype());
    return bytes == 0 ||
           std::memcmp(a.element(row * length).data(), b.element(row * length).data(), bytes) == 0;
  }
  for (std::int64_t i = row * length; i < (row + 1) * length; ++i)
    if (!same_bits(a, b, i)) return false;
  return true;
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
    c.err_ratio = c.row_err_ratio = c.max_abs = std::nan("");
    c.why = fmt::format("{}: the reference has shape [{}], the result [{}]", name,
                        fmt::join(reference.shape(), ", "), fmt::join(result.shape(), ", "));
    return c;
  }
  const Errors errors = measure(reference, result, tolerance);
  c.max_abs = errors.max_abs;
  c.finite_match = errors.mismatch < 0;
  c.worst = c.finite_match ? errors.worst : errors.mismatch;
  c.err_ratio = ratio(errors.whole, errors.whole.mean_reference());
  c.row_err_ratio = worst_row(errors).ratio;
  const std::string why = broken_bound(c, errors, tolerance, reference, result);
  c.passed = why.empty();
  if (!c.passed) c.why = name + ": " + why;
  return c;
}

std::string touched_rows(const Driver& driver, const Bundle& before, const Bundle& reference,
                         const Bundle& result) {
  for (const ArgSpec& arg : driver.args) {
    const auto found = before.tensors.find(arg.name);
    if (arg.role == Role::kInput || found == before.tensors.end()) continue;
    const Tensor& old = found->second;
    if (old.shape().empty()) continue;
    for (std::int64_t row = 0; row < old.shape()[0]; ++row)
      if (same_row(old, reference.tensors.at(arg.name), row) &&
          !same_row(old, result.tensors.at(arg.name), row))
        return fmt::format("{}[{}] must stay as it was, and was written", arg.name, row);
  }
  return "";
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
