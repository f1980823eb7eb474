// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "core/bf16.h"
#include "cpu/parallel.h"
#include "examples/mini_k3/attend_cpu.h"
#include "examples/mini_k3/machine.h"
#include "examples/mini_k3/openblas.h"
#include "examples/mini_k3/view.h"

namespace k3::mini {
namespace {

template <class T>
const T* row(const ConstTensorView& view, std::int64_t index) {
  return static_cast<const T*>(view.data) + index * view.strides[0];
}
template <class T>
T* row(const TensorView& view, std::int64_t index) {
  return static_cast<T*>(view.data) + index * view.strides[0];
}

/// A bf16 matrix as dense floats.
void widen(const ConstTensorView& from, std::vector<float>& to) {
  const std::int64_t width = from.shape[1];
  to.resize(static_cast<std::size_t>(from.shape[0] * width));
  for (std::int64_t r = 0; r < from.shape[0]; ++r)
    std::transform(row<bf16>(from, r), row<bf16>(from, r) + width, to.data() + r * width, to_float);
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void multiply_slice(const ConstTensorView& x, const std::vector<float>& weight,
                    const TensorView& out) {
  const std::int64_t M = out.shape[0];
  const std::int64_t N = out.shape[1];
  thread_local std::vector<float> a;
  thread_local std::vector<float> c;
  widen(x, a);
  c.resize(static_cast<std::size_t>(M * N));
  openblas_multiply({M, N, x.shape[1], a.data(), weight.data(), c.data()});
  for (std::int64_t m = 0; m < M; ++m) {
    const float* const from = c.data() + m * N;
    if (out.dtype == DType::kF32)
      std::copy_n(from, N, row<float>(out, m));
    else
      std::transform(from, from + N, row<bf16>(out, m), to_bf16);
  }
}

class CpuMachine final : public Machine {
 public:
  [[nodiscard]] Device device() const override { return {}; }
  [[nodiscard]] ExecContext context() const override {
    return {.backend = Backend::kCpu, .threads = threads()};
  }
  [[nodiscard]] std::string matrix_library() const override {
    return openblas_missing().empty() ? "OpenBLAS" : "tiny_gemm, as " + openblas_missing();
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    constexpr std::size_t kAlignment = 64;
    // A system that overcommits would find out later, and end the process.
    if (bytes / physical_memory() > 0) throw std::bad_alloc();
    void* const block = std::calloc(bytes + kAlignment, 1);
    if (block == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(block) + kAlignment - 1;
    const std::shared_ptr<void> owner(block, std::free);
    return {owner, reinterpret_cast<void*>(address / kAlignment * kAlignment)};
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

  void replay(std::unique_ptr<Recording>& /*recording*/,
              const std::function<void()>& body) override {
    body();
  }

  void linear_by_expert(const ConstTensorView& x, const ConstTensorView& w,
                        const ConstTensorView& experts, const TensorView& out) override {
    const auto* const expert = static_cast<const std::int32_t*>(experts.data);
    const std::int64_t num_rows = x.shape[0];
    for (std::int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
      end = std::find_if(expert + begin, expert + num_rows,
                         [&](std::int32_t e) { return e != expert[begin]; }) -
            expert;
      linear(rows(x, begin, end), select(w, 0, expert[begin]), rows(out, begin, end));
    }
  }

  void embed(const ConstTensorView& ids, const ConstTensorView& table,
             const TensorView& out) override {
    const auto* const id = static_cast<const std::int32_t*>(ids.data);
    for (std::int64_t r = 0; r < out.shape[0]; ++r)
      std::copy_n(row<bf16>(table, id[r]), out.shape[1], row<bf16>(out, r));
  }

  void causal_conv(const ConstTensorView& in, const TensorView& window,
                   const ConstTensorView& weight, const TensorView& out) override {
    const std::int64_t channels = in.shape[1];
    const std::int64_t tokens = in.shape[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      const bf16* taps[4];  // oldest first
      for (std::int64_t w = 0; w < 4; ++w)
        taps[w] = t + w < 3 ? row<bf16>(window, t + w) : row<bf16>(in, t + w - 3);
      for (std::int64_t c = 0; c < channels; ++c) {
        float y = 0;
        for (std::int64_t w = 0; w < 4; ++w) y += to_float(taps[w][c]) * row<float>(weight, w)[c];
        row<bf16>(out, t)[c] = to_bf16(y / (1.0F + std::exp(-y)));
      }
    }
    for (std::int64_t w = 0; w < 3; ++w) {
      const bf16* const from =
          tokens + w < 3 ? row<bf16>(window, tokens + w) : row<bf16>(in, tokens + w - 3);
      std::copy_n(from, channels, row<bf16>(window, w));
    }
  }

  void attend(const AttentionArgs& args) override {
    const std::int64_t heads = args.query.shape[1];
    cpu::parallel_for(
        args.query.shape[0] * heads, num_threads(),
        [&](std::int64_t task, int /*thread*/) { attend_head(args, task / heads, task % heads); });
  }

  void sort_rows(const ConstTensorView& in, const ConstTensorView& sorted_ids,
                 const TensorView& out, const TensorView& position) override {
    const std::int64_t topk = position.numel() / in.shape[0];
    const auto* const slots = static_cast<const std::int32_t*>(sorted_ids.data);
    auto* const positions = static_cast<std::int32_t*>(position.data);
    for (std::int64_t p = 0; p < sorted_ids.shape[0]; ++p) {
      std::copy_n(row<bf16>(in, slots[p] / topk), out.shape[1], row<bf16>(out, p));
      positions[slots[p]] = static_cast<std::int32_t>(p);
    }
  }

 protected:
  /// In slices of rows, each by one thread: the bits do not depend on how many there are.
  bool multiply(const ConstTensorView& x, const ConstTensorView& w,
                const TensorView& out) override {
    if (!openblas_missing().empty()) return false;
    constexpr std::int64_t kSliceRows = 64;
    const std::int64_t num_rows = x.shape[0];
    widen(w, weight_);
    cpu::parallel_for((num_rows + kSliceRows - 1) / kSliceRows, num_threads(),
                      [&](std::int64_t slice, int /*thread*/) {
                        const std::int64_t begin = slice * kSliceRows;
                        const std::int64_t end = std::min(begin + kSliceRows, num_rows);
                        multiply_slice(rows(x, begin, end), weight_, rows(out, begin, end));
                      });
    return true;
  }

 private:
  [[nodiscard]] int num_threads() const { return threads() > 0 ? threads() : cpu::max_threads(); }

  std::vector<float> weight_;  ///< of the product under way
};

}  // namespace

std::unique_ptr<Machine> make_cpu_machine() { return std::make_unique<CpuMachine>(); }

}  // namespace k3::mini
