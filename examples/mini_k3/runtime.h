// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "examples/mini_k3/config.h"
#include "examples/mini_k3/machine.h"
#include "examples/mini_k3/scratch.h"
#include "examples/mini_k3/weights.h"

namespace k3::mini {

/// Runs ops on one machine, and what the layers have in common.
class Runtime {
 public:
  Runtime(const Config& config, Machine& machine);

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Machine& machine() const { return machine_; }
  [[nodiscard]] Scratch& scratch() { return scratch_; }

  /// A tensor of the innermost frame.
  TensorView bf16(std::initializer_list<std::int64_t> shape) {
    return scratch_.take(DType::kBF16, shape);
  }
  TensorView f32(std::initializer_list<std::int64_t> shape) {
    return scratch_.take(DType::kF32, shape);
  }
  TensorView i32(std::initializer_list<std::int64_t> shape) {
    return scratch_.take(DType::kI32, shape);
  }

  /// Any op of the library, by its function and the one that tells its workspace.
  template <class Args>
  void run(void (*op)(const Args&, const ExecContext&),
           std::size_t (*workspace_size)(const Args&, const ExecContext&), const Args& args) {
    ExecContext ctx = machine_.context();
    ctx.workspace = workspace(workspace_size(args, ctx));
    op(args, ctx);
  }

  /// out = x w^T
  void linear(const ConstTensorView& x, const ConstTensorView& w, const TensorView& out) {
    machine_.linear(x, w, out);
  }

  /// out = RMS(x; weight)
  void rms_norm(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out);

  /// out = bf16(a + b); may be a itself.
  void add(const ConstTensorView& a, const ConstTensorView& b, const TensorView& out);

  /// out = SiTU(gate) * cap(up) of input = [gate | up]
  void situ(const ConstTensorView& input, const TensorView& out);

 private:
  Workspace workspace(std::size_t bytes);

  const Config& config_;
  Machine& machine_;
  Scratch scratch_;
  std::vector<Array> workspaces_;  ///< the largest last; recordings may use the others
  Array zeros_;                    ///< [1, hidden]
};

}  // namespace k3::mini
