// SPDX-License-Identifier: Apache-2.0
#include "harness/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/bf16.h"

namespace k3::harness {
namespace {

constexpr std::align_val_t kAlignment{64};

/// Exactly the bytes asked for, so that an address sanitizer sees the first byte past the end.
std::shared_ptr<std::byte[]> allocate(std::size_t bytes) {
  auto* data = static_cast<std::byte*>(::operator new[](bytes, kAlignment));
  return {data, [](std::byte* p) { ::operator delete[](p, kAlignment); }};
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(shape[d], 1);
  }
  return strides;
}

/// Elements of storage up to and with the last one of a view; `offset` for a view without elements.
std::size_t end_of(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                   std::int64_t offset) {
  std::int64_t end = offset + 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return static_cast<std::size_t>(offset);
    end += (shape[d] - 1) * strides[d];
  }
  return static_cast<std::size_t>(end);
}

/// A binary floating-point format below 32 bits, with subnormals.
struct SmallFloat {
  int mantissa_bits;
  int exponent_bits;
  bool has_inf;  ///< else the top exponent holds numbers, and only all ones is NaN (e4m3fn)

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int all_ones() const { return (1 << (mantissa_bits + exponent_bits)) - 1; }
  [[nodiscard]] int inf() const { return ((1 << exponent_bits) - 1) << mantissa_bits; }
  [[nodiscard]] int sign_bit() const { return 1 << (mantissa_bits + exponent_bits); }
};
constexpr SmallFloat kHalf{10, 5, true};
constexpr SmallFloat kE4M3{3, 4, false};

double decode(const SmallFloat& format, int bits) {
  const int magnitude = bits & format.all_ones();
  const double sign = (bits & format.sign_bit()) != 0 ? -1.0 : 1.0;
  if (format.has_inf && magnitude == format.inf()) return sign * HUGE_VAL;
  if (format.has_inf ? magnitude > format.inf() : magnitude == format.all_ones())
    return std::nan("");
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int significand = exponent == 0 ? mantissa : mantissa | (1 << format.mantissa_bits);
  const int scale = std::max(exponent, 1) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(significand, scale);
}

/// To nearest even. Past the largest number: Inf where the format has one, else NaN.
int encode(const SmallFloat& format, double value) {
  const int sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isnan(value)) return sign | format.all_ones();
  const int overflow = format.has_inf ? format.inf() : format.all_ones();
  if (std::isinf(value)) return sign | overflow;
  if (value == 0.0) return sign;
  const int exponent = std::max(std::ilogb(value), 1 - format.bias());
  // In units of the last place; a carry into the next binade gives the right bits by itself.
  const double units =
      std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  if (exponent > format.bias() + 1) return sign | overflow;
  const int magnitude =
      static_cast<int>(units) + ((exponent + format.bias() - 1) << format.mantissa_bits);
  return sign | std::min(magnitude, overflow);
}

/// A double to bf16 with one rounding: the float between is moved off a tie that is none in double.
bf16 to_bf16_once(double value) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const double rounded = std::bit_cast<float>(bits);
  if ((bits & 0xFFFFU) == 0x8000U && rounded != value && std::isfinite(rounded))
    bits += std::fabs(rounded) < std::fabs(value) ? 1U : ~0U;
  return to_bf16(std::bit_cast<float>(bits));
}

template <class T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void store_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

double load_number(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kBF16:
      return to_float(load_as<bf16>(at));
    case DType::kF16:
      return decode(kHalf, load_as<std::uint16_t>(at));
    case DType::kF32:
      return load_as<float>(at);
    case DType::kF64:
      return load_as<double>(at);
    case DType::kI8:
      return load_as<std::int8_t>(at);
    case DType::kU8:
      return load_as<std::uint8_t>(at);
    case DType::kI32:
      return load_as<std::int32_t>(at);
    case DType::kI64:
      return static_cast<double>(load_as<std::int64_t>(at));
    case DType::kF8E4M3:
      return decode(kE4M3, load_as<std::uint8_t>(at));
    case DType::kNone:
      break;
  }
  throw std::logic_error("an absent tensor has no elements");
}

void store_number(DType dtype, std::byte* at, double value) {
  switch (dtype) {
    case DType::kBF16:
      return store_as(at, to_bf16_once(value));
    case DType::kF16:
      return store_as(at, static_cast<std::uint16_t>(encode(kHalf, value)));
    case DType::kF32:
      return store_as(at, static_cast<float>(value));
    case DType::kF64:
      return store_as(at, value);
    case DType::kI8:
      return store_as(at, static_cast<std::int8_t>(std::llrint(value)));
    case DType::kU8:
      return store_as(at, static_cast<std::uint8_t>(std::llrint(value)));
    case DType::kI32:
      return store_as(at, static_cast<std::int32_t>(std::llrint(value)));
    case DType::kI64:
      return store_as(at, static_cast<std::int64_t>(std::llrint(value)));
    case DType::kF8E4M3:
      return store_as(at, static_cast<std::uint8_t>(encode(kE4M3, value)));
    case DType::kNone:
      break;
  }
  throw std::logic_error("an absent tensor has no elements");
}

}  // namespace

Tensor Tensor::dense(DType dtype, std::vector<std::int64_t> shape) {
  auto strides = dense_strides(shape);
  return strided(dtype, std::move(shape), std::move(strides), 0, std::byte{0});
}

Tensor Tensor::strided(DType dtype, std::vector<std::int64_t> shape,
                       std::vector<std::int64_t> strides, std::int64_t offset, std::byte gap_byte) {
  if (shape.size() != strides.size() || shape.size() > kMaxRank)
    throw std::invalid_argument("a tensor needs one stride for each of at most 8 axes");
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.strides_ = std::move(strides);
  tensor.offset_ = offset;
  tensor.num_bytes_ = end_of(tensor.shape_, tensor.strides_, offset) * size_of(dtype);
  tensor.bytes_ = allocate(tensor.num_bytes_);
  std::memset(tensor.storage(), static_cast<int>(gap_byte), tensor.num_bytes_);
  return tensor;
}

Tensor Tensor::alias(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                     std::int64_t offset) const {
  Tensor tensor = *this;
  tensor.shape_ = std::move(shape);
  tensor.strides_ = std::move(strides);
  tensor.offset_ += offset;
  if (end_of(tensor.shape_, tensor.strides_, tensor.offset_) * size_of(dtype_) > num_bytes_)
    throw std::invalid_argument("an alias ends behind its storage");
  return tensor;
}

std::int64_t Tensor::numel() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape_) n *= size;
  return n;
}

bool Tensor::is_dense() const {
  std::int64_t stride = 1;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    if (shape_[d] != 1 && strides_[d] != stride) return false;
    stride *= std::max<std::int64_t>(shape_[d], 1);
  }
  return true;
}

TensorView Tensor::view_at(void* storage, Device device) const {
  if (!defined()) return {};
  auto* data =
      static_cast<std::byte*>(storage) + static_cast<std::size_t>(offset_) * size_of(dtype_);
  return TensorView(data, dtype_, std::span(shape_), std::span(strides_), device);
}

TensorView Tensor::view() { return view_at(storage(), {}); }

ConstTensorView Tensor::view() const { return view_at(bytes_.get(), {}); }

Tensor Tensor::clone() const {
  Tensor copy = *this;
  if (!defined()) return copy;
  copy.bytes_ = allocate(num_bytes_);
  std::memcpy(copy.storage(), storage(), num_bytes_);
  return copy;
}

std::int64_t Tensor::offset_of(std::int64_t flat) const {
  std::int64_t offset = offset_;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    offset += flat % shape_[d] * strides_[d];
    flat /= shape_[d];
  }
  return offset;
}

std::span<const std::byte> Tensor::element(std::int64_t flat) const {
  const std::int64_t offset = is_dense() ? offset_ + flat : offset_of(flat);
  const std::size_t size = size_of(dtype_);
  return {storage() + static_cast<std::size_t>(offset) * size, size};
}

double Tensor::get(std::int64_t flat) const { return load_number(dtype_, element(flat).data()); }

void Tensor::set(std::int64_t flat, double value) {
  const std::int64_t offset = is_dense() ? offset_ + flat : offset_of(flat);
  store_number(dtype_, storage() + static_cast<std::size_t>(offset) * size_of(dtype_), value);
}

std::vector<double> Tensor::values() const {
  std::vector<double> values(static_cast<std::size_t>(numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(static_cast<std::int64_t>(i));
  return values;
}

void Tensor::fill(double value) {
  const std::int64_t n = numel();
  for (std::int64_t i = 0; i < n; ++i) set(i, value);
}

void Tensor::fill_bytes(std::byte byte) {
  const std::size_t size = size_of(dtype_);
  const std::int64_t n = numel();
  if (is_dense()) {
    std::memset(storage() + static_cast<std::size_t>(offset_) * size, static_cast<int>(byte),
                static_cast<std::size_t>(n) * size);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    std::memset(storage() + static_cast<std::size_t>(offset_of(i)) * size, static_cast<int>(byte),
                size);
}

Bundle Bundle::clone() const {
  Bundle copy;
  copy.scalars = scalars;
  for (const auto& [name, tensor] : tensors) copy.tensors[name] = tensor.clone();
  return copy;
}

}  // namespace k3::harness
