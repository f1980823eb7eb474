// SPDX-License-Identifier: Apache-2.0
// One decode step of a KDA layer: 2 requests on slots 5 and 1 of a paged pool.
#include <k3/k3.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t B = 2, H = 12, D = 128, kSlots = 8, kChannels = 3 * H * D;
  std::vector<std::uint16_t> mixed_qkv(B * kChannels), conv_states(kSlots * 3 * kChannels);
  std::vector<std::uint16_t> g(B * H * D), beta(B * H), out(B * H * D);
  std::vector<float> conv_weight(4 * kChannels), state(kSlots * H * D * D);
  std::vector<std::int32_t> slots = {5, 1};

  using k3::DType;
  k3::KdaFusedDecodeArgs args;
  args.mixed_qkv = k3::ConstTensorView(mixed_qkv.data(), DType::kBF16, {B, kChannels});
  args.conv_states = k3::TensorView(conv_states.data(), DType::kBF16, {kSlots, 3, kChannels});
  args.conv_weight = k3::ConstTensorView(conv_weight.data(), DType::kF32, {4, kChannels});
  args.g = k3::ConstTensorView(g.data(), DType::kBF16, {B, H * D});
  args.beta = k3::ConstTensorView(beta.data(), DType::kBF16, {B, H});
  args.state = k3::TensorView(state.data(), DType::kF32, {kSlots, H, D, D});  // updated in place
  args.state_indices = k3::ConstTensorView(slots.data(), DType::kI32, {B});
  args.out = k3::TensorView(out.data(), DType::kBF16, {B, H * D});
  args.lower_bound = -5.0F;
  try {
    k3::kda_fused_decode(args);  // where the tensors are: here the CPU, all threads
  } catch (const k3::ContractError& e) {
    std::fprintf(stderr, "%s\n", e.what());  // the argument, the rule, the value seen
    return 2;
  }
  std::printf("decoded %lld requests of %lld heads\n", static_cast<long long>(B),
              static_cast<long long>(H));
}
