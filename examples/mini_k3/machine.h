// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "k3/context.h"
#include "k3/tensor.h"

/// What a model needs of a machine beside the ops of libk3: memory, large matrix products, and five
/// plain functions for which there is no op.
namespace k3::mini {

/// Heads' queries against the rows of the cache of one sequence, MLA in its absorbed form:
///   score[r, h, j] = scale * sum_d query[r, h, d] cache[j, d]          for j <= positions[r]
///   out[r, h, :]   = sum_j softmax(score[r, h, :])[j] cache[j, 0 .. rank-1]
/// The bits of a row depend on its query and the rows it sees alone.
struct AttentionArgs {
  ConstTensorView query;      ///< [R, H, D] bf16
  ConstTensorView cache;      ///< [positions, D] bf16
  ConstTensorView positions;  ///< [R] i32
  float scale = 1;
  TensorView out;  ///< [R, H, rank] bf16, rank <= D
};

/// What a machine keeps of a sequence of calls, to run it again faster.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Machine {
 public:
  virtual ~Machine() = default;

  [[nodiscard]] virtual Device device() const = 0;
  /// Where ops run; without a workspace.
  [[nodiscard]] virtual ExecContext context() const = 0;
  /// CPU: how many threads the calls from here on may use; 0 for all.
  void use_threads(int threads) { threads_ = threads; }
  /// The matrix library, for people.
  [[nodiscard]] virtual std::string matrix_library() const = 0;

  /// Zeros. @throws std::bad_alloc
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  /// Waits for everything before it.
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  /// Runs `body`, which makes the same calls on the same tensors each time and, once it has run,
  /// neither allocates nor waits: so CUDA may record it, at the second time, and replay the graph.
  virtual void replay(std::unique_ptr<Recording>& recording, const std::function<void()>& body) = 0;

  /// out [M, N] = x [M, K] w [N, K]^T; bf16 operands, fp32 sums, out bf16 or f32. Up to 16 rows by
  /// `tiny_gemm`, whose rows have the same bits whatever the others are: so a token's result does
  /// not depend on how many are decoded or verified beside it. More rows by the matrix library.
  void linear(const ConstTensorView& x, const ConstTensorView& w, const TensorView& out);
  /// out[r] = x[r] w[experts[r]]^T for rows sorted by expert: a grouped product. x [R, K], w
  /// [experts, N, K], experts [R] i32. A row's bits in a step do not depend on the others.
  virtual void linear_by_expert(const ConstTensorView& x, const ConstTensorView& w,
                                const ConstTensorView& experts, const TensorView& out) = 0;

  /// out[r] = table[ids[r]]
  virtual void embed(const ConstTensorView& ids, const ConstTensorView& table,
                     const TensorView& out) = 0;
  /// The short convolution of a prompt, and SiLU: out[t, c] = SiLU(sum_{w<4} weight[w, c]
  /// in[t - 3 + w, c]), where in[-3 .. -1] are the taps of `window` [3, C], which then holds the
  /// last three tokens. A decode step has it inside `kda_fused_decode`.
  virtual void causal_conv(const ConstTensorView& in, const TensorView& window,
                           const ConstTensorView& weight, const TensorView& out) = 0;
  virtual void attend(const AttentionArgs& args) = 0;
  /// out[p] = in[sorted_ids[p] / topk], and position[sorted_ids[p]] = p: rows of tokens in the
  /// order of `moe_align`, and where each slot went.
  virtual void sort_rows(const ConstTensorView& in, const ConstTensorView& sorted_ids,
                         const TensorView& out, const TensorView& position) = 0;

 protected:
  /// Many rows by a matrix library; false where there is none.
  virtual bool multiply(const ConstTensorView& x, const ConstTensorView& w,
                        const TensorView& out) = 0;
  [[nodiscard]] int threads() const { return threads_; }

 private:
  int threads_ = 0;
};

std::unique_ptr<Machine> make_cpu_machine();
/// @throws UnsupportedError in a build without CUDA
std::unique_ptr<Machine> make_cuda_machine();

/// A tensor that owns its memory. Copies share it.
class Array {
 public:
  Array() = default;
  /// Zeros.
  Array(Machine& machine, DType dtype, std::span<const std::int64_t> shape);
  Array(Machine& machine, DType dtype, std::initializer_list<std::int64_t> shape)
      : Array(machine, dtype, std::span(shape.begin(), shape.size())) {}

  [[nodiscard]] const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }       // NOLINT: an array is a tensor
  operator ConstTensorView() const { return view_; }  // NOLINT
  [[nodiscard]] std::size_t bytes() const;

 private:
  std::shared_ptr<void> memory_;
  TensorView view_;
};

}  // namespace k3::mini
