// SPDX-License-Identifier: Apache-2.0
// The smallest use of the library: the activation of one row, on the CPU.
#include <k3/k3.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  // bf16 is the upper half of a float: 4.0 and 25.0, so gate = 4, up = 25.
  std::vector<std::uint16_t> input = {0x4080, 0x41C8};
  std::vector<std::uint16_t> out(1);
  k3::SituAndMulArgs args;
  args.input = k3::ConstTensorView(input.data(), k3::DType::kBF16, {1, 2});
  args.out = k3::TensorView(out.data(), k3::DType::kBF16, {1, 1});
  args.beta = 4.0F;
  args.linear_beta = 25.0F;
  try {
    k3::situ_and_mul(args);
  } catch (const k3::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  const auto result = std::bit_cast<float>(static_cast<std::uint32_t>(out[0]) << 16);
  std::printf("libk3 %s: situ(4, 25) = %.2f\n", k3::version(), result);
  return result > 56.5F && result < 57.5F ? 0 : 1;  // 56.959
}
