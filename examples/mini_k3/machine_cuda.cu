// SPDX-License-Identifier: Apache-2.0
// The device's half of what a model needs beside the ops. Everything runs in one stream. The
// kernels are plain: a thread an element, but for attention.
#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>

#include "cuda/common/cublaslt.h"
#include "cuda/common/error.h"
#include "examples/mini_k3/machine.h"
#include "examples/mini_k3/view.h"
#include "harness/cuda_timing.h"

namespace k3::mini {
namespace {

constexpr int kThreads = 256;

__device__ float widen(std::uint16_t bits) { return __uint_as_float(std::uint32_t{bits} << 16); }

/// To nearest even; the values here are finite.
__device__ std::uint16_t narrow(float x) {
  const std::uint32_t u = __float_as_uint(x);
  return static_cast<std::uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16);
}

/// A matrix, or a tensor of rows [rows, .., columns].
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  template <class View>
  explicit Rows(const View& view) : data(static_cast<T*>(view.data)), stride(view.strides[0]) {}
  __device__ T* operator[](std::int64_t row) const { return data + row * stride; }
};

__global__ void embed_kernel(const std::int32_t* ids, Rows<const std::uint16_t> table,
                             Rows<std::uint16_t> out, int columns) {
  for (int c = threadIdx.x; c < columns; c += kThreads)
    out[blockIdx.x][c] = table[ids[blockIdx.x]][c];
}

__global__ void cast_kernel(const float* in, Rows<std::uint16_t> out, int columns) {
  const float* const row = in + std::int64_t{blockIdx.x} * columns;
  for (int c = threadIdx.x; c < columns; c += kThreads) out[blockIdx.x][c] = narrow(row[c]);
}

/// A channel to each thread, token after token.
__global__ void causal_conv_kernel(Rows<const std::uint16_t> in, Rows<std::uint16_t> window,
                                   Rows<const float> weight, Rows<std::uint16_t> out, int tokens,
                                   int channels) {
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (c >= channels) return;
  std::uint16_t taps[4] = {0, window[0][c], window[1][c], window[2][c]};  // oldest first
  for (int t = 0; t < tokens; ++t) {
    float y = 0;
    for (int w = 0; w < 4; ++w) {
      taps[w] = w < 3 ? taps[w + 1] : in[t][c];
      y += widen(taps[w]) * weight[w][c];
    }
    out[t][c] = narrow(y / (1.0F + expf(-y)));
  }
  for (int w = 0; w < 3; ++w) window[w][c] = taps[w + 1];
}

/// A block for each position.
__global__ void sort_rows_kernel(Rows<const std::uint16_t> in, const std::int32_t* sorted_ids,
                                 Rows<std::uint16_t> out, std::int32_t* position, int topk,
                                 int columns) {
  const int slot = sorted_ids[blockIdx.x];
  for (int c = threadIdx.x; c < columns; c += kThreads) out[blockIdx.x][c] = in[slot / topk][c];
  if (threadIdx.x == 0) position[slot] = static_cast<std::int32_t>(blockIdx.x);
}

__device__ float sum_of_warp(float x) {
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, other);
  return x;
}

constexpr int kWarps = kThreads / 32;
constexpr int kColumnsOfBlock = 4 * kWarps;

/// A warp makes four columns of one row.
__global__ void linear_by_expert_kernel(Rows<const std::uint16_t> x, Rows<const std::uint16_t> w,
                                        const std::int32_t* experts, Rows<std::uint16_t> out, int N,
                                        int K) {
  const std::int64_t r = blockIdx.x;
  const std::uint16_t* const weight = w[experts[r]];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = static_cast<int>(blockIdx.y) * kColumnsOfBlock;
  for (int n = begin + static_cast<int>(threadIdx.x) / 32; n < min(begin + kColumnsOfBlock, N);
       n += kWarps) {
    float sum = 0;
    for (int k = lane; k < K; k += 32)
      sum += widen(x[r][k]) * widen(weight[std::int64_t{n} * K + k]);
    sum = sum_of_warp(sum);
    if (lane == 0) out[r][n] = narrow(sum);
  }
}

constexpr int kMaxWidth = 2048;    ///< of a row of the cache
constexpr int kKeys = kWarps * 8;  ///< keys between two updates of the running softmax

/// A block for each head of each row. Keys come kKeys at a time: a warp makes the score of every
/// eighth of them, then each thread adds up its columns of the values.
__global__ void __launch_bounds__(kThreads)
    attend_kernel(const std::uint16_t* query, std::int64_t query_row, std::int64_t query_head,
                  Rows<const std::uint16_t> cache, const std::int32_t* positions, float scale,
                  std::uint16_t* out, std::int64_t out_row, std::int64_t out_head, int width,
                  int rank) {
  __shared__ float q[kMaxWidth];
  __shared__ float weights[kKeys];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t r = blockIdx.x;
  const std::int64_t visible = std::int64_t{positions[r]} + 1;
  query += r * query_row + blockIdx.y * query_head;
  for (int d = threadIdx.x; d < width; d += kThreads) q[d] = widen(query[d]) * scale;
  __syncthreads();  // q is there

  constexpr int kColumns = kMaxWidth / kThreads;
  float mixed[kColumns] = {};
  float largest = -INFINITY;
  float sum = 0;
  for (std::int64_t begin = 0; begin < visible; begin += kKeys) {
    const int keys = static_cast<int>(min(std::int64_t{kKeys}, visible - begin));
    for (int j = warp; j < keys; j += kWarps) {
      float score = 0;
      for (int d = lane; d < width; d += 32) score += q[d] * widen(cache[begin + j][d]);
      score = sum_of_warp(score);
      if (lane == 0) weights[j] = score;
    }
    __syncthreads();  // the scores are there
    float new_largest = largest;
    for (int j = 0; j < keys; ++j) new_largest = fmaxf(new_largest, weights[j]);
    const float shrink = expf(largest - new_largest);
    largest = new_largest;
    sum *= shrink;
    for (float& m : mixed) m *= shrink;
    for (int j = 0; j < keys; ++j) {
      const float weight = expf(weights[j] - largest);
      sum += weight;
      for (int i = 0; i < kColumns; ++i) {
        const int d = i * kThreads + static_cast<int>(threadIdx.x);
        if (d < rank) mixed[i] += weight * widen(cache[begin + j][d]);
      }
    }
    __syncthreads();  // the next scores may come
  }
  out += r * out_row + blockIdx.y * out_head;
  for (int i = 0; i < kColumns; ++i) {
    const int d = i * kThreads + static_cast<int>(threadIdx.x);
    if (d < rank) out[d] = narrow(mixed[i] / sum);
  }
}

unsigned grid(std::int64_t blocks) { return static_cast<unsigned>(blocks); }

class CudaMachine final : public Machine {
 public:
  CudaMachine() : product_workspace_(allocate(cuda::kCublasLtWorkspaceBytes)) {
    K3_CUDA_CHECK(cudaGetDevice(&index_));
  }

  [[nodiscard]] Device device() const override { return {DeviceKind::kCuda, index_}; }
  [[nodiscard]] ExecContext context() const override {
    ExecContext ctx;
    ctx.backend = Backend::kCuda;
    ctx.stream = stream_.get();
    return ctx;
  }
  [[nodiscard]] std::string matrix_library() const override {
    return refusal_.empty() ? "cuBLASLt" : "tiny_gemm, as " + refusal_;
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw std::bad_alloc();
    }
    K3_CUDA_CHECK(error);
    std::shared_ptr<void> owner(data, [](void* p) { static_cast<void>(cudaFree(p)); });
    K3_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream_.get()));
    return owner;
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    K3_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()));
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    K3_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()));
    K3_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

  void replay(std::unique_ptr<Recording>& recording, const std::function<void()>& body) override {
    if (recording == nullptr) {
      body();
      recording = std::make_unique<Graph>();
      return;
    }
    auto& graph = static_cast<Graph&>(*recording).graph;
    if (!graph) graph.emplace(stream_.get(), body);
    graph->launch(stream_.get());
  }

  void linear_by_expert(const ConstTensorView& x, const ConstTensorView& w,
                        const ConstTensorView& experts, const TensorView& out) override {
    const auto N = static_cast<int>(out.shape[1]);
    const dim3 blocks(grid(x.shape[0]), grid((N + kColumnsOfBlock - 1) / kColumnsOfBlock));
    start(linear_by_expert_kernel, blocks, Rows<const std::uint16_t>(x),
          Rows<const std::uint16_t>(w), static_cast<const std::int32_t*>(experts.data),
          Rows<std::uint16_t>(out), N, static_cast<int>(x.shape[1]));
  }

  void embed(const ConstTensorView& ids, const ConstTensorView& table,
             const TensorView& out) override {
    start(embed_kernel, grid(out.shape[0]), static_cast<const std::int32_t*>(ids.data),
          Rows<const std::uint16_t>(table), Rows<std::uint16_t>(out),
          static_cast<int>(out.shape[1]));
  }

  void causal_conv(const ConstTensorView& in, const TensorView& window,
                   const ConstTensorView& weight, const TensorView& out) override {
    const auto channels = static_cast<int>(in.shape[1]);
    start(causal_conv_kernel, grid((channels + kThreads - 1) / kThreads),
          Rows<const std::uint16_t>(in), Rows<std::uint16_t>(window), Rows<const float>(weight),
          Rows<std::uint16_t>(out), static_cast<int>(in.shape[0]), channels);
  }

  void attend(const AttentionArgs& a) override {
    const dim3 blocks(grid(a.query.shape[0]), grid(a.query.shape[1]));
    start(attend_kernel, blocks, static_cast<const std::uint16_t*>(a.query.data),
          a.query.strides[0], a.query.strides[1], Rows<const std::uint16_t>(a.cache),
          static_cast<const std::int32_t*>(a.positions.data), a.scale,
          static_cast<std::uint16_t*>(a.out.data), a.out.strides[0], a.out.strides[1],
          static_cast<int>(a.cache.shape[1]), static_cast<int>(a.out.shape[2]));
  }

  void sort_rows(const ConstTensorView& in, const ConstTensorView& sorted_ids,
                 const TensorView& out, const TensorView& position) override {
    start(sort_rows_kernel, grid(sorted_ids.shape[0]), Rows<const std::uint16_t>(in),
          static_cast<const std::int32_t*>(sorted_ids.data), Rows<std::uint16_t>(out),
          static_cast<std::int32_t*>(position.data),
          static_cast<int>(position.numel() / in.shape[0]), static_cast<int>(in.shape[1]));
  }

 protected:
  bool multiply(const ConstTensorView& x, const ConstTensorView& w,
                const TensorView& out) override {
    cuda::LtProduct product = {
        x.shape[0],   w.shape[0], x.shape[1],   x.data,
        x.strides[0], w.data,     w.strides[0], static_cast<float*>(out.data)};
    const std::size_t bytes = static_cast<std::size_t>(product.M * product.N) * sizeof(float);
    if (out.dtype != DType::kF32) product.c = static_cast<float*>(product_memory(bytes));
    if (const char* why = cuda::cublaslt_refusal(product, index_)) {
      refusal_ = why;
      return false;
    }
    cuda::cublaslt_multiply(product, product_workspace_.get(), index_, stream_.get());
    if (out.dtype != DType::kF32)
      start(cast_kernel, grid(product.M), product.c, Rows<std::uint16_t>(out),
            static_cast<int>(product.N));
    return true;
  }

 private:
  /// Of calls that have run once, so that all memory is there.
  struct Graph final : Recording {
    std::optional<harness::CudaGraph> graph;
  };

  template <class... Params, class... Args>
  void start(void (*kernel)(Params...), dim3 blocks, const Args&... args) {
    if (blocks.x == 0) return;
    kernel<<<blocks, kThreads, 0, stream_.get()>>>(args...);
    K3_CUDA_CHECK(cudaGetLastError());
  }

  /// fp32 results on their way to bf16.
  void* product_memory(std::size_t bytes) {
    if (bytes > product_bytes_) {
      product_ = allocate(bytes);
      product_bytes_ = bytes;
    }
    return product_.get();
  }

  harness::CudaStream stream_;
  int index_ = 0;
  std::shared_ptr<void> product_workspace_;
  std::shared_ptr<void> product_;
  std::size_t product_bytes_ = 0;
  std::string refusal_;
};

}  // namespace

std::unique_ptr<Machine> make_cuda_machine() { return std::make_unique<CudaMachine>(); }

}  // namespace k3::mini
