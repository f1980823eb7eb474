// SPDX-License-Identifier: Apache-2.0
// A thread takes four channels of a run of tokens. The first run of a request alone reads its
// window, and moves it on once it is done: the last tokens come from the input.
#include <algorithm>
#include <cstdint>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/step.cuh"
#include "examples/k3_layer/drivers.h"

namespace k3::layer {
namespace {

constexpr int kThreads = 128;
constexpr int kRun = 8;
constexpr int kTaps = kKdaConvWidth;
using Access = cuda::QuadAccess<true>;

/// grid (C / 4 / kThreads, runs, requests). The weights count as constant: they are read while the
/// previous kernel may still run.
__global__ void __launch_bounds__(kThreads)
    convolve(const bf16* in, std::int64_t in_stride, bf16* windows, const float* weight,
             const std::int32_t* slots, bf16* out, std::int64_t tokens, std::int64_t channels) {
  const std::int64_t channel = 4 * (std::int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (channel >= channels) return;
  const auto weights = cuda::load_conv_weights<Access>(weight + channel, channels, nullptr);
  const std::int64_t begin = std::int64_t{blockIdx.y} * kRun;
  const int count = static_cast<int>(min(std::int64_t{kRun}, tokens - begin));
  in += blockIdx.z * tokens * in_stride + channel;
  out += (blockIdx.z * tokens + begin) * channels + channel;
  cuda::pdl_wait();
  cuda::pdl_launch_dependents();

  bf16* const window = windows + std::int64_t{slots[blockIdx.z]} * (kTaps - 1) * channels + channel;
  cuda::Bf16Quad x[kTaps - 1 + kRun];  // all on their way before the first is used
#pragma unroll
  for (int i = 0; i < kTaps - 1 + kRun; ++i) {
    const std::int64_t t = begin - (kTaps - 1) + i;
    if (i < kTaps - 1 + count)
      x[i] = Access::load(t < 0 ? window + (t + kTaps - 1) * channels : in + t * in_stride);
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (i >= count) break;
    const cuda::ConvQuad taps = {{x[i], x[i + 1], x[i + 2], x[i + 3]}};
    Access::store(out + i * channels,
                  cuda::narrow(cuda::conv_silu(weights, taps, Rounding::kBF16)));
  }
  if (begin > 0) return;
  for (int w = 0; w < kTaps - 1; ++w) {
    const std::int64_t t = tokens - (kTaps - 1) + w;
    Access::store(window + w * channels,
                  Access::load(t < 0 ? window + (t + kTaps - 1) * channels : in + t * in_stride));
  }
}

}  // namespace

void short_conv_cuda(const ShortConv& conv, const ExecContext& ctx) {
  const std::int64_t C = conv.channels();
  cuda::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>((C / 4 + kThreads - 1) / kThreads),
                     static_cast<unsigned>((conv.tokens() + kRun - 1) / kRun),
                     static_cast<unsigned>(conv.requests()));
  config.block = dim3(kThreads);
  config.pdl = ctx.pdl;
  config.stream = static_cast<cudaStream_t>(ctx.stream);
  K3_CUDA_CHECK(cuda::launch(convolve, config, static_cast<const bf16*>(conv.in.data),
                             conv.in.strides[0], static_cast<bf16*>(conv.conv_states.data),
                             static_cast<const float*>(conv.weight.data),
                             static_cast<const std::int32_t*>(conv.state_indices.data),
                             static_cast<bf16*>(conv.out.data), conv.tokens(), C));
}

}  // namespace k3::layer
