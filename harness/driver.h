// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/tensor.h"
#include "k3/context.h"
#include "k3/tensor.h"

/// One driver per op joins it to everything that treats ops alike: `k3 run`, `k3 check`, `k3 bench`
/// and the tests. A new op adds one file in harness/ops/ and one line to `drivers()`.
namespace k3::harness {

enum class Role { kInput, kOutput, kInPlace };

struct ArgSpec {
  const char* name;
  Role role;
  bool optional = false;
};

/// Views by argument name (host or device) and scalars: what a driver turns into an op's Args.
struct Call {
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> scalars;

  [[nodiscard]] TensorView tensor(const std::string& name) const;  ///< absent view if not there
};

/// Readers of scalars. An empty or missing value gives the fallback (or nullopt).
/// @throws ContractError(op, name, ...) on text that does not parse.
std::optional<float> scalar_float(const char* op, const Call& call, const char* name);
float scalar_float(const char* op, const Call& call, const char* name, float fallback);
bool scalar_bool(const char* op, const Call& call, const char* name, bool fallback);
int scalar_int(const char* op, const Call& call, const char* name, int fallback);
std::string scalar_text(const Call& call, const char* name, std::string_view fallback);

/// How far a result may be from the oracle. Every bound given must hold; NaN and Inf must stand at
/// the same places with the same sign (of Inf) in both.
struct Tolerance {
  double err_ratio = 0.0;  ///< rms(ref - x) / rms(ref)
  /// The same of each row of the last axis, over max(rms(row of ref), rms(ref)).
  double row_err_ratio = 0.0;
  double atol = 0.0;  ///< |x - ref| <= atol + rtol * |ref| for each element, where either is > 0
  double rtol = 0.0;
  bool exact = false;  ///< bit for bit, the sign of 0 and NaN included; other bounds are ignored
};

struct Case {
  std::string name;                             ///< unique within the op, [a-z0-9_]+
  bool quick = true;                            ///< part of `--quick`
  std::function<Bundle()> make;                 ///< inputs, and every output tensor, poisoned
  std::map<std::string, Tolerance> tolerances;  ///< by output or in-place argument
  /// The same on CUDA, where an op's products run on tensor cores, whose operands are bf16; empty
  /// where they do not.
  std::map<std::string, Tolerance> cuda_tolerances = {};
};

/// What a call must do at least.
struct Cost {
  double bytes = 0;  ///< each input read once, each output written once
  double flops = 0;  ///< useful operations, 2 per multiply-add; floor = max of the two times
  /// On CUDA the operations are products of bf16 matrices and count at that rate.
  bool tensor_cores = false;
};

/// Of the elements, without gaps.
double bytes_of(const Tensor& tensor);
/// Of all its tensors.
double bytes_of(const Bundle& bundle);

struct BenchShape {
  std::map<std::string, std::int64_t> sizes;  ///< the `shape` object of a bench row
  std::function<Bundle()> make;
  bool cuda_only = false;  ///< would take a CPU seconds a call
};

enum class Level { kQuick, kK3, kFull };

struct Driver {
  const char* name;
  std::span<const ArgSpec> args;
  std::span<const char* const> scalars;

  /// Adds the output tensors that the call needs and the bundle lacks, dense and poisoned. `wanted`
  /// holds the optional outputs to add (a file's expected tensors). For in-place pools see the op.
  void (*add_outputs)(Bundle& bundle, std::span<const std::string> wanted);
  /// Calls the op, or its workspace size function.
  void (*run)(const Call& call, const ExecContext& ctx);
  std::size_t (*workspace_size)(const Call& call, const ExecContext& ctx);
  /// The double-precision reference, on host tensors.
  void (*run_oracle)(const Call& call);

  std::vector<Case> (*cases)();
  std::vector<BenchShape> (*bench_shapes)(Level level);
  Cost (*cost)(const Bundle& bundle);
};

/// All ops, in the order of the documentation.
std::span<const Driver* const> drivers();
/// Null for an unknown name.
const Driver* find_driver(std::string_view name);

/// The call over a bundle's own (host) bytes.
Call host_call(const Driver& driver, Bundle& bundle);

}  // namespace k3::harness
