// SPDX-License-Identifier: Apache-2.0
#include "harness/driver.h"

#include <charconv>
#include <cmath>

#include "k3/error.h"

namespace k3::harness {
namespace {

/// Empty where the scalar is missing or empty.
std::string_view text_of(const Call& call, const char* name) {
  const auto found = call.scalars.find(name);
  return found == call.scalars.end() ? std::string_view() : std::string_view(found->second);
}

/// The whole text as a number, or nullopt. A leading plus sign is taken too.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

TensorView Call::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? TensorView() : found->second;
}

std::optional<float> scalar_float(const char* op, const Call& call, const char* name) {
  const std::string_view text = text_of(call, name);
  if (text.empty()) return std::nullopt;
  // Through double: decimal text past float's range then becomes Inf or a zero, which the op
  // judges.
  const auto value = parse_number<double>(text);
  if (!value) throw ContractError(op, name, "must be a number", std::string(text));
  return static_cast<float>(*value);
}

float scalar_float(const char* op, const Call& call, const char* name, float fallback) {
  return scalar_float(op, call, name).value_or(fallback);
}

bool scalar_bool(const char* op, const Call& call, const char* name, bool fallback) {
  const std::string_view text = text_of(call, name);
  if (text.empty()) return fallback;
  if (text == "1" || text == "true" || text == "True") return true;
  if (text == "0" || text == "false" || text == "False") return false;
  throw ContractError(op, name, "must be 0, 1, true or false", std::string(text));
}

int scalar_int(const char* op, const Call& call, const char* name, int fallback) {
  const std::string_view text = text_of(call, name);
  if (text.empty()) return fallback;
  const auto value = parse_number<int>(text);
  if (!value) throw ContractError(op, name, "must be an integer of 32 bits", std::string(text));
  return *value;
}

std::string scalar_text(const Call& call, const char* name, std::string_view fallback) {
  const std::string_view text = text_of(call, name);
  return std::string(text.empty() ? fallback : text);
}

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(size_of(tensor.dtype()));
}

double bytes_of(const Bundle& bundle) {
  double bytes = 0.0;
  for (const auto& [name, tensor] : bundle.tensors) bytes += bytes_of(tensor);
  return bytes;
}

Call host_call(const Driver& driver, Bundle& bundle) {
  Call call;
  call.scalars = bundle.scalars;
  for (const ArgSpec& arg : driver.args) {
    const auto found = bundle.tensors.find(arg.name);
    if (found != bundle.tensors.end() && found->second.defined())
      call.tensors[arg.name] = found->second.view();
  }
  return call;
}

}  // namespace k3::harness
