// SPDX-License-Identifier: Apache-2.0
//
// The same layer step as kda_fused_decode in three launches, timed as `k3 bench` times ours: a
// causal convolution with SiLU that shifts its windows (below), kda_packed_decode, kda_output_norm.
// What fusing them is worth.
//   k3_decode_chain --json OUT
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/step.cuh"
#include "harness/cuda_timing.h"
#include "harness/machine.h"
#include "k3/ops/kda_output_norm.h"
#include "k3/ops/kda_packed_decode.h"

namespace {

using namespace k3;
using harness::CudaBuffer;

constexpr int kDim = kKdaHeadDim;
constexpr int kTaps = kKdaConvWidth;
constexpr std::size_t kColdBytes = std::size_t{4} * 60 << 20;  // four L2s of an H200

__global__ void fill(std::uint32_t* words, std::size_t count, bool is_bf16) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U;
    x ^= x >> 15;
    x *= 0x2C1B3C6DU;
    x ^= x >> 13;
    // In [-1, 1): signs and fractions vary, the exponent is that of 0.5 .. 1.
    words[i] = is_bf16 ? (x & 0x807F807FU) | 0x3F003F00U : (x & 0x807FFFFFU) | 0x3F000000U;
  }
}

__global__ void fill_indices(std::int32_t* indices, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    indices[i] = static_cast<std::int32_t>(std::int64_t{i} * 7919 % count);
}

/// y = SiLU(conv), four channels a thread; the window of the request's slot moves on.
/// grid (C / 4 / 128, B), 128 threads.
__global__ void convolve(const bf16* x, bf16* windows, const float* weight,
                         const std::int32_t* slots, bf16* y, int C) {
  using Access = cuda::QuadAccess<true>;
  cuda::pdl_wait();
  cuda::pdl_launch_dependents();
  const int channel = 4 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= C) return;
  const std::int64_t n = blockIdx.y;
  bf16* const window = windows + std::int64_t{slots[n]} * (kTaps - 1) * C + channel;
  cuda::ConvQuad taps;
  for (int t = 0; t < kTaps - 1; ++t) taps.tap[t] = Access::load(window + std::int64_t{t} * C);
  taps.tap[kTaps - 1] = Access::load(x + n * C + channel);
  const auto weights = cuda::load_conv_weights<Access>(weight + channel, C, nullptr);
  Access::store(y + n * C + channel, cuda::narrow(cuda::conv_silu(weights, taps, Rounding::kBF16)));
  for (int t = 0; t < kTaps - 1; ++t) Access::store(window + std::int64_t{t} * C, taps.tap[t + 1]);
}

/// Dense device tensors of one call, with the memory they lie in.
class Tensors {
 public:
  TensorView make(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) elements *= size;
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
    buffers_.emplace_back(bytes);
    const TensorView view(buffers_.back().data(), dtype, shape, {DeviceKind::kCuda, 0});
    if (dtype == DType::kI32)
      fill_indices<<<1, 256>>>(static_cast<std::int32_t*>(view.data), static_cast<int>(elements));
    else
      fill<<<1024, 256>>>(static_cast<std::uint32_t*>(view.data), bytes / 4, dtype == DType::kBF16);
    K3_CUDA_CHECK(cudaGetLastError());
    return view;
  }

 private:
  std::vector<CudaBuffer> buffers_;
};

/// One layer's step of B requests with H heads.
class Chain {
 public:
  Chain(int B, int H) : B_(B), C_(3 * H * kDim) {
    const std::int64_t channels = std::int64_t{H} * kDim;
    x_ = tensors_.make(DType::kBF16, {B, C_});
    windows_ = tensors_.make(DType::kBF16, {B, kTaps - 1, C_});
    weight_ = tensors_.make(DType::kF32, {kTaps, C_});
    y_ = tensors_.make(DType::kBF16, {B, C_});
    packed_.mixed_qkv = y_;
    packed_.g = tensors_.make(DType::kBF16, {B, channels});
    packed_.beta = tensors_.make(DType::kBF16, {B, H});
    packed_.A_log = tensors_.make(DType::kF32, {H});
    packed_.dt_bias = tensors_.make(DType::kF32, {channels});
    packed_.state = tensors_.make(DType::kF32, {B, H, kDim, kDim});
    packed_.state_indices = tensors_.make(DType::kI32, {B});
    packed_.out = tensors_.make(DType::kBF16, {B, channels});
    packed_.lower_bound = -5.0F;
    norm_.raw = packed_.out;
    norm_.gate = tensors_.make(DType::kBF16, {B, channels});
    norm_.weight = tensors_.make(DType::kF32, {kDim});
    norm_.out = tensors_.make(DType::kBF16, {B, channels});
  }

  void launch(cudaStream_t stream) const {
    cuda::LaunchConfig config;
    config.grid = dim3((C_ / 4 + 127) / 128, B_);
    config.block = dim3(128);
    config.pdl = true;
    config.stream = stream;
    K3_CUDA_CHECK(cuda::launch(convolve, config, static_cast<const bf16*>(x_.data),
                               static_cast<bf16*>(windows_.data),
                               static_cast<const float*>(weight_.data),
                               static_cast<const std::int32_t*>(packed_.state_indices.data),
                               static_cast<bf16*>(y_.data), C_));
    ExecContext ctx;
    ctx.backend = Backend::kCuda;
    ctx.stream = stream;
    kda_packed_decode(packed_, ctx);
    kda_output_norm(norm_, ctx);
  }

 private:
  int B_;
  int C_;
  Tensors tensors_;
  TensorView x_;
  TensorView windows_;
  TensorView weight_;
  TensorView y_;
  KdaPackedDecodeArgs packed_;
  KdaOutputNormArgs norm_;
};

double time_chain(int B, int H) {
  const std::size_t bytes = 2 * sizeof(float) * B * H * kDim * kDim;
  const auto num_sets = std::max<std::size_t>(2, kColdBytes / bytes + 1);
  std::vector<std::unique_ptr<Chain>> sets;
  for (std::size_t i = 0; i < num_sets; ++i) sets.push_back(std::make_unique<Chain>(B, H));
  K3_CUDA_CHECK(cudaDeviceSynchronize());
  return harness::time_in_graphs(static_cast<int>(num_sets),
                                 [&](int i, cudaStream_t stream) { sets[i]->launch(stream); })
      .median_us;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"Times convolution, packed decode and output norm as three launches"};
  std::string path;
  app.add_option("--json", path, "Write the figures here")->required();
  CLI11_PARSE(app, argc, argv);

  constexpr std::array<std::pair<int, int>, 10> kShapes = {{{1, 12},
                                                            {8, 12},
                                                            {32, 12},
                                                            {64, 12},
                                                            {128, 12},
                                                            {256, 12},
                                                            {1, 96},
                                                            {8, 96},
                                                            {32, 96},
                                                            {256, 96}}};
  nlohmann::ordered_json report = {{"machine", harness::machine_name(Backend::kCuda)},
                                   {"name", "three launches of ours: conv, packed, norm"},
                                   {"ops", {"kda_fused_decode"}},
                                   {"rows", nlohmann::ordered_json::array()}};
  for (const auto& [B, H] : kShapes) {
    const double us = time_chain(B, H);
    std::printf("B=%d H=%d: %.2f us\n", B, H, us);
    report["rows"].push_back({{"B", B}, {"H", H}, {"us", us}});
  }
  std::ofstream(path) << report.dump(2) << '\n';
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "k3_decode_chain: %s\n", error.what());
  return 1;
}
