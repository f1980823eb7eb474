// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>

#include "k3/error.h"
#include "k3/tensor.h"

namespace k3 {

/// `kPlan` asks for workspace bytes: pointers, overlaps and values in memory do not count yet.
enum class Purpose { kRun, kPlan };

enum class Access { kRead, kWrite, kReadWrite };

/// A small set of dtypes or ranks.
template <class T>
class SmallSet {
 public:
  constexpr SmallSet(std::initializer_list<T> members) {
    for (T member : members) bits_ |= bit(member);
  }
  [[nodiscard]] constexpr bool contains(T member) const {
    const auto index = static_cast<std::int64_t>(member);
    return index >= 0 && index < 32 && (bits_ & bit(member)) != 0;
  }

 private:
  static constexpr std::uint32_t bit(T member) {
    return std::uint32_t{1} << static_cast<std::uint32_t>(member);
  }
  std::uint32_t bits_ = 0;
};
using DTypeSet = SmallSet<DType>;
using RankSet = SmallSet<int>;

/// One tensor argument of an op: what its contract asks of it by itself, and where it stands in
/// Args.
template <class Args>
struct ArgRule {
  const char* name;
  Access access;
  bool optional;
  DTypeSet dtypes;
  RankSet ranks;
  std::variant<ConstTensorView Args::*, TensorView Args::*> member;

  [[nodiscard]] ConstTensorView view(const Args& args) const {
    return std::visit([&](auto at) -> ConstTensorView { return args.*at; }, member);
  }
};

/// One axis of an expected shape: its size, and the name that an error text gives it.
struct Axis {
  const char* name;
  std::int64_t size;
};

/// True where the two views share a byte, however they interleave (rows of one buffer, layers and
/// slots of one paged pool). Strides without any order may give a false alarm, never a miss.
bool may_overlap(const ConstTensorView& a, const ConstTensorView& b);
/// The same of two elements of one view.
bool may_overlap_itself(const ConstTensorView& tensor);

/// The rules that the ops' contracts are made of. Each throws ContractError with the argument, the
/// rule and the value seen; no text is made where a rule holds. Absent tensors pass.
class Contract {
 public:
  Contract(const char* op, Purpose purpose) : op_(op), plan_(purpose == Purpose::kPlan) {}

  [[noreturn]] void fail(const char* argument, const std::string& rule,
                         const std::string& seen) const;
  /// `seen` is called for the text of a value, on failure only.
  template <std::invocable Seen>
  void require(bool holds, const char* argument, const char* rule, const Seen& seen) const {
    if (!holds) [[unlikely]]
      fail(argument, rule, seen());
  }
  void require(bool holds, const char* argument, const char* rule,
               const ConstTensorView& seen) const {
    if (!holds) [[unlikely]]
      fail(argument, rule, describe(seen));
  }

  /// Of every tensor by itself: presence, dtype, rank, sane sizes and strides, a pointer where
  /// there are elements, aligned to an element; and that all are on the device of the first.
  template <class Args>
  void tensors(std::span<const ArgRule<Args>> rules, const Args& args) const {
    Device device;
    bool first = true;
    for (const auto& rule : rules) {
      const ConstTensorView view = rule.view(args);
      if (!rule.optional) present(rule.name, view);
      if (!view.defined()) continue;
      tensor(rule.name, view, rule.dtypes, rule.ranks);
      if (first) device = view.device;
      first = false;
      same_device(rule.name, view, device);
    }
  }

  /// Of every written tensor: no two of its elements, and no element of another tensor, share its
  /// memory. `in_place` may name one pair (written, read) that is allowed to coincide.
  template <class Args>
  void overlaps(std::span<const ArgRule<Args>> rules, const Args& args,
                std::array<const char*, 2> in_place = {nullptr, nullptr}) const {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].access == Access::kRead) continue;
      const ConstTensorView written = rules[i].view(args);
      if (!written.defined()) continue;
      no_self_overlap(rules[i].name, written);
      if (plan_) continue;
      for (std::size_t j = 0; j < rules.size(); ++j) {
        const bool met_before = j < i && rules[j].access != Access::kRead;
        const bool allowed = rules[i].name == in_place[0] && rules[j].name == in_place[1];
        if (j == i || met_before || allowed) continue;
        no_overlap(rules[i].name, written, rules[j].name, rules[j].view(args));
      }
    }
  }

  void present(const char* argument, const ConstTensorView& tensor) const {
    require(tensor.defined(), argument, "must be given", tensor);
  }
  void tensor(const char* argument, const ConstTensorView& tensor, const DTypeSet& dtypes,
              const RankSet& ranks) const;
  void shape(const char* argument, const ConstTensorView& tensor, std::span<const Axis> axes) const;
  void shape(const char* argument, const ConstTensorView& tensor,
             std::initializer_list<Axis> axes) const {
    shape(argument, tensor, std::span(axes.begin(), axes.size()));
  }
  /// The last axis has unit stride (or fewer than two elements).
  void unit_last_stride(const char* argument, const ConstTensorView& tensor) const;
  /// Row-major without gaps from `axis` on.
  void dense_from(const char* argument, const ConstTensorView& tensor, int axis) const;
  /// Base pointer and every stride but the last are multiples of `bytes`.
  void aligned(const char* argument, const ConstTensorView& tensor, std::size_t bytes) const;
  void no_self_overlap(const char* argument, const ConstTensorView& tensor) const;
  void no_overlap(const char* argument, const ConstTensorView& tensor, const char* other_argument,
                  const ConstTensorView& other) const;
  void same_device(const char* argument, const ConstTensorView& tensor, Device device) const;
  void finite(const char* argument, float value) const;
  /// Absent, or finite and below zero.
  void negative(const char* argument, const float* value) const;
  /// Fits an int.
  int small(const char* argument, const char* what, std::int64_t value) const;
  /// One of the enumerators, which may have come from an integer.
  template <class Enum>
  void one_of(const char* argument, Enum value, std::initializer_list<Enum> allowed) const {
    for (Enum member : allowed)
      if (value == member) return;
    fail(argument, "must be one of its enumerators", std::to_string(static_cast<int>(value)));
  }

  /// True where values in host memory count.
  [[nodiscard]] bool reads_values(Device device) const {
    return !plan_ && device.kind == DeviceKind::kCpu;
  }

 private:
  const char* op_;
  bool plan_;
};

}  // namespace k3
