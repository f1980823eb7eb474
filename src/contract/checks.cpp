// SPDX-License-Identifier: Apache-2.0
#include "contract/checks.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace k3 {
namespace {

/// Views past this many bytes are refused, so that no later sum of offsets can overflow.
constexpr __int128 kMaxSpanBytes = __int128{1} << 62;

/// Bytes from the first to one past the last element.
__int128 span_bytes(const ConstTensorView& t) {
  if (t.numel() == 0) return 0;
  __int128 last = 0;
  for (int d = 0; d < t.rank; ++d) last += static_cast<__int128>(t.shape[d] - 1) * t.strides[d];
  return (last + 1) * static_cast<__int128>(size_of(t.dtype));
}

}  // namespace

void Contract::fail(const char* argument, const std::string& rule, const std::string& seen) const {
  throw ContractError(op_, argument, rule, seen);
}

void Contract::tensor(const char* argument, const ConstTensorView& t, const DTypeSet& dtypes,
                      const RankSet& ranks) const {
  if (!dtypes.contains(t.dtype)) {
    std::string names;
    for (int i = 0; i < 32; ++i)
      if (const auto dtype = static_cast<DType>(i); dtypes.contains(dtype))
        names += (names.empty() ? "" : " or ") + std::string(name_of(dtype));
    fail(argument, "must be " + names, name_of(t.dtype));
  }
  if (!ranks.contains(t.rank) || t.rank > kMaxRank) {
    std::string names;
    for (int rank = 0; rank <= kMaxRank; ++rank)
      if (ranks.contains(rank)) names += (names.empty() ? "" : " or ") + std::to_string(rank);
    fail(argument, "must have rank " + names, "rank " + std::to_string(t.rank));
  }
  constexpr const char* kTooFar = "must span less than 2^62 bytes";
  bool empty = false;
  __int128 numel = 1;
  __int128 last = 0;
  for (int d = 0; d < t.rank; ++d) {
    require(t.shape[d] >= 0, argument, "must have no negative size", t);
    require(t.strides[d] >= 0, argument, "must have no negative stride", t);
    empty |= t.shape[d] == 0;
    // Each factor stays below 2^62 and each sum below 2^63, so that nothing here can overflow.
    require(t.shape[d] < kMaxSpanBytes && t.strides[d] < kMaxSpanBytes, argument, kTooFar, t);
    numel *= t.shape[d];
    last += static_cast<__int128>(t.shape[d] > 0 ? t.shape[d] - 1 : 0) * t.strides[d];
    const auto bytes = static_cast<__int128>(size_of(t.dtype));
    require(numel < kMaxSpanBytes / bytes && last < kMaxSpanBytes / bytes, argument, kTooFar, t);
  }
  if (empty || plan_) return;
  require(t.data != nullptr, argument, "must have a pointer", [] { return "null"; });
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (address % size_of(t.dtype) != 0)
    fail(argument, fmt::format("must be aligned to its {}-byte element", size_of(t.dtype)),
         fmt::format("address {:#x}", address));
}

void Contract::shape(const char* argument, const ConstTensorView& t,
                     std::span<const Axis> axes) const {
  if (!t.defined()) return;
  bool same = t.rank == static_cast<int>(axes.size());
  for (int d = 0; same && d < t.rank; ++d) same = t.shape[d] == axes[d].size;
  if (same) return;
  std::string names;
  std::string sizes;
  for (const Axis& axis : axes) {
    names += (names.empty() ? "" : ", ") + std::string(axis.name);
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(axis.size);
  }
  fail(argument, fmt::format("must have shape [{}] = [{}]", names, sizes), describe(t));
}

void Contract::unit_last_stride(const char* argument, const ConstTensorView& t) const {
  if (!t.defined() || t.rank == 0 || t.shape[t.rank - 1] < 2) return;
  require(t.strides[t.rank - 1] == 1, argument, "must have unit stride along its last axis", t);
}

void Contract::dense_from(const char* argument, const ConstTensorView& t, int axis) const {
  if (!t.defined() || t.numel() == 0) return;
  std::int64_t expected = 1;
  for (int d = t.rank - 1; d >= axis; --d) {
    if (t.shape[d] > 1 && t.strides[d] != expected)
      fail(argument, fmt::format("must be dense from axis {} on", axis), describe(t));
    expected *= t.shape[d];
  }
}

void Contract::aligned(const char* argument, const ConstTensorView& t, std::size_t bytes) const {
  if (!t.defined() || t.numel() == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (!plan_ && address % bytes != 0)
    fail(argument, fmt::format("must start at a multiple of {} bytes", bytes),
         fmt::format("address {:#x}", address));
  for (int d = 0; d + 1 < t.rank; ++d)
    if (t.shape[d] > 1 && static_cast<std::size_t>(t.strides[d]) * size_of(t.dtype) % bytes != 0)
      fail(argument, fmt::format("must have strides of multiples of {} bytes", bytes), describe(t));
}

void Contract::no_self_overlap(const char* argument, const ConstTensorView& t) const {
  require(!may_overlap_itself(t), argument,
          "is written, so no two of its elements may share memory", t);
}

void Contract::no_overlap(const char* argument, const ConstTensorView& t,
                          const char* other_argument, const ConstTensorView& other) const {
  if (!may_overlap(t, other)) return;
  const auto interval = [](const ConstTensorView& v) {
    const auto begin = reinterpret_cast<std::uintptr_t>(v.data);
    return fmt::format("[{:#x}, {:#x})", begin, begin + static_cast<std::uintptr_t>(span_bytes(v)));
  };
  fail(argument, fmt::format("must not overlap {}", other_argument),
       fmt::format("{} and {}", interval(t), interval(other)));
}

void Contract::same_device(const char* argument, const ConstTensorView& t, Device device) const {
  if (!t.defined() || t.device == device) return;
  const auto text = [](Device d) {
    return d.kind == DeviceKind::kCpu ? std::string("cpu") : fmt::format("cuda:{}", d.index);
  };
  fail(argument, "must be on " + text(device) + " like the other tensors", text(t.device));
}

void Contract::finite(const char* argument, float value) const {
  require(std::isfinite(value), argument, "must be finite",
          [&] { return fmt::format("{}", value); });
}

void Contract::negative(const char* argument, const float* value) const {
  if (value == nullptr) return;
  require(std::isfinite(*value) && *value < 0.0F, argument, "must be finite and below 0",
          [&] { return fmt::format("{}", *value); });
}

int Contract::small(const char* argument, const char* what, std::int64_t value) const {
  require(value <= std::numeric_limits<int>::max(), argument, "must fit 31 bits",
          [&] { return fmt::format("{} = {}", what, value); });
  return static_cast<int>(value);
}

}  // namespace k3
