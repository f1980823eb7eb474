// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/driver.h"
#include "harness/inputs.h"
#include "harness/tensor.h"

namespace k3::harness {

/// Collects an op's cases, each made from a set of options, then edited.
template <class Options>
class CaseList {
 public:
  using Make = Bundle (*)(const Options&, std::uint64_t seed);
  using Tolerances = std::map<std::string, Tolerance> (*)(const Options&);
  CaseList(Make make, Tolerances tolerances) : make_(make), tolerances_(tolerances) {}

  void add(
      std::string name, const Options& o, std::function<void(Bundle&)> edit = [](Bundle&) {},
      bool quick = true) {
    const auto seed = static_cast<std::uint64_t>(cases_.size()) + 41;
    cases_.push_back({std::move(name), quick,
                      [=, make = make_] {
                        Bundle b = make(o, seed);
                        edit(b);
                        return b;
                      },
                      tolerances_(o)});
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  Make make_;
  Tolerances tolerances_;
  std::vector<Case> cases_;
};

/// tensor[i] = value(i) over its flat index.
template <class Value>
void set_all(Bundle& b, const std::string& name, Value value) {
  Tensor& tensor = b.tensors.at(name);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, value(i));
}

/// The rows [begin, end) of the first axis hold NaN.
inline void fill_rows_with_nan(Bundle& b, const std::string& name, std::int64_t begin,
                               std::int64_t end) {
  Tensor& tensor = b.tensors.at(name);
  const std::int64_t row = tensor.numel() / tensor.shape()[0];
  for (std::int64_t i = begin * row; i < end * row; ++i)
    tensor.set(i, std::numeric_limits<double>::quiet_NaN());
}

/// Rows `extra` elements longer than dense ones and a base `offset` elements into the storage, so
/// that nothing but the element is aligned. Values stay.
inline void pad_rows(Bundle& b, const std::string& name, std::int64_t extra, std::int64_t offset) {
  const Tensor& t = b.tensors.at(name);
  b.tensors[name] = restrided(t, {t.shape()[1] + extra, 1}, offset);
}

}  // namespace k3::harness
