// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/inputs.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

/// One unit in the last place of bf16, 2^-7 of a value, where the fp32 sum falls to the other side
/// of a tie; its own error is below topk 2^-24 of the largest partial sum.
Tolerance tolerance(std::int64_t topk, double largest) {
  return {.atol = static_cast<double>(topk) * 0x1p-24 * largest, .rtol = 0x1p-7};
}

Bundle bundle_of(Tensor input, Tensor out) {
  Bundle b;
  b.tensors["input"] = std::move(input);
  b.tensors["out"] = std::move(out);
  return b;
}

Case dense(std::int64_t T, std::int64_t topk, std::int64_t H, bool quick = true) {
  const std::string name =
      "dense_" + std::to_string(T) + "x" + std::to_string(topk) + "x" + std::to_string(H);
  return {name,
          quick,
          [=] {
            Random random(static_cast<std::uint64_t>(T * 7919 + topk * 104729 + H));
            return bundle_of(normal(random, DType::kBF16, {T, topk, H}),
                             poisoned(DType::kBF16, {T, H}));
          },
          {{"out", tolerance(topk, 4.0 * static_cast<double>(topk) + 1.0)}}};
}

struct Layout {
  std::int64_t token;
  std::int64_t slot;
  std::int64_t out;
  std::int64_t offset = 0;
  std::int64_t out_offset = 0;
};

/// Small integers under strides of their own; NaN in the gaps.
Case strided(const char* name, std::int64_t H, const Layout& layout) {
  return {name,
          true,
          [=] {
            constexpr std::int64_t kT = 3;
            constexpr std::int64_t kTopk = 5;
            Random random(11);
            Tensor input =
                Tensor::strided(DType::kBF16, {kT, kTopk, H}, {layout.token, layout.slot, 1},
                                layout.offset, std::byte{0xFF});
            for (std::int64_t i = 0; i < input.numel(); ++i)
              input.set(i, static_cast<double>(random.next() % 33) - 16.0);
            Tensor out = Tensor::strided(DType::kBF16, {kT, H}, {layout.out, 1}, layout.out_offset,
                                         std::byte{0xFF});
            return bundle_of(input, out);
          },
          {{"out", {.exact = true}}}};
}

/// Column c holds one special value in slot c % 3, and ordinary ones beside it; the last columns
/// hold what cancels or overflows.
Bundle specials() {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {0.0,   -0.0,   inf,      -inf, std::nan(""),
                           1e-40, -1e-40, 0x1p-126, 3e38, -3e38};
  constexpr std::int64_t kValues = std::size(values);
  constexpr std::int64_t kH = kValues + 4;
  Tensor input = constant(DType::kBF16, {1, 3, kH}, -0.0);
  for (std::int64_t c = 0; c < kValues; ++c) input.set(c % 3 * kH + c, values[c]);
  const double columns[4][3] = {
      {inf, 1.0, -inf}, {3e38, 3e38, 3e38}, {1.0, -1.0, -0.0}, {0x1p-133, 0x1p-133, 0.0}};
  for (std::int64_t c = 0; c < 4; ++c)
    for (std::int64_t j = 0; j < 3; ++j) input.set(j * kH + kValues + c, columns[c][j]);
  return bundle_of(input, poisoned(DType::kBF16, {1, kH}));
}

}  // namespace

std::vector<Case> moe_topk_sum_cases() {
  std::vector<Case> cases;
  for (std::int64_t T : {0, 1, 2, 17}) cases.push_back(dense(T, 16, 3584, T <= 2));
  cases.push_back(dense(2, 16, 7168));
  for (std::int64_t topk : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33})
    cases.push_back(dense(3, topk, 264));
  for (std::int64_t H : {0, 1, 2, 7, 8, 9, 15, 16, 4096, 4097, 8200})
    cases.push_back(dense(2, 6, H));
  cases.push_back(dense(300, 16, 1024, false));
  cases.push_back(strided("slots_with_gaps", 264, {1500, 280, 272}));
  cases.push_back(strided("slots_outermost", 264, {272, 816, 264}));
  cases.push_back(strided("odd_pitch", 264, {1500, 265, 267}));
  cases.push_back(strided("base_off_by_one", 264, {1320, 264, 264, 1}));
  cases.push_back(strided("out_off_by_one", 264, {1320, 264, 264, 0, 1}));
  cases.push_back(strided("one_slot_over_and_over", 264, {264, 0, 264}));
  cases.push_back({"specials", true, specials, {{"out", {.atol = 1e-300}}}});
  return cases;
}

}  // namespace k3::harness
