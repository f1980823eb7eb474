// SPDX-License-Identifier: Apache-2.0
// A task is a block of channels of a run of tokens. The first run of a request alone reads its
// window, and moves it on once it is done: the last tokens come from the input.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/k3_layer/short_conv_cpu.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/kda_step-inl.h"
#include "cpu/parallel.h"
#include "examples/k3_layer/drivers.h"

HWY_BEFORE_NAMESPACE();
namespace k3::layer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace step = cpu::HWY_NAMESPACE::step;

/// 128 channels from `channel` on, tokens [begin, end) of request n.
void convolve(const ShortConv& conv, std::int64_t n, std::int64_t channel, std::int64_t begin,
              std::int64_t end) {
  constexpr int kTaps = kKdaConvWidth;
  const std::int64_t C = conv.channels();
  const auto* const in =
      static_cast<const bf16*>(conv.in.data) + n * conv.tokens() * conv.in.strides[0] + channel;
  const std::int64_t slot = static_cast<const std::int32_t*>(conv.state_indices.data)[n];
  auto* const window = static_cast<bf16*>(conv.conv_states.data) + slot * (kTaps - 1) * C + channel;
  auto* const out = static_cast<bf16*>(conv.out.data) + n * conv.tokens() * C + channel;
  const auto token = [&](std::int64_t t) {
    return t < 0 ? window + (t + kTaps - 1) * C : in + t * conv.in.strides[0];
  };
  const step::ConvWeights weights = {.tap0 = static_cast<const float*>(conv.weight.data) + channel,
                                     .tap_stride = C};
  for (std::int64_t t = begin; t < end; ++t) {
    const bf16* const taps[] = {token(t - 3), token(t - 2), token(t - 1), token(t)};
    HWY_ALIGN float y[kKdaHeadDim];
    step::conv_silu(weights, taps, Rounding::kBF16, y);
    step::for_channels([&](auto d, int i) HWY_ATTR {
      cpu::HWY_NAMESPACE::store_bf16(d, hn::Load(d, y + i), out + t * C + i);
    });
  }
  if (begin > 0) return;
  for (std::int64_t w = 0; w < kTaps - 1; ++w)
    std::copy_n(token(conv.tokens() - (kTaps - 1) + w), kKdaHeadDim, window + w * C);
}

}  // namespace k3::layer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::layer {

HWY_EXPORT(convolve);

void short_conv_cpu(const ShortConv& conv, int threads) {
  constexpr std::int64_t kRun = 64;
  const std::int64_t blocks = conv.channels() / kKdaHeadDim;
  const std::int64_t runs = (conv.tokens() + kRun - 1) / kRun;
  const double microseconds = 1e-3 * static_cast<double>(conv.in.numel());
  const auto convolve = HWY_DYNAMIC_DISPATCH(convolve);
  cpu::parallel_for(conv.requests() * runs * blocks, cpu::useful_threads(threads, microseconds),
                    [&](std::int64_t task, int /*thread*/) {
                      const std::int64_t begin = task / blocks % runs * kRun;
                      convolve(conv, task / blocks / runs, task % blocks * kKdaHeadDim, begin,
                               std::min(begin + kRun, conv.tokens()));
                    });
}

}  // namespace k3::layer
#endif
