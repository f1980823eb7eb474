// SPDX-License-Identifier: Apache-2.0

// The CPU's attention over the latent cache: scores of all keys, softmax, weighted sum. Keys come
// four at a time, but each score and each output is one chain of multiply-adds, whatever stands
// beside it.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/mini_k3/attend_cpu.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/bf16-inl.h"
#include "examples/mini_k3/attend_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace k3::mini::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::load_bf16;

// Widths are multiples of 16 (config.cpp).
using DF = hn::CappedTag<float, 16>;

struct Keys {
  const bf16* data;
  std::int64_t stride;
  const bf16* operator[](std::int64_t j) const { return data + j * stride; }
};

template <int kKeys>
HWY_INLINE void score(const float* q, const Keys& keys, std::int64_t first, std::int64_t width,
                      float* scores) {
  const DF df;
  hn::Vec<DF> sums[kKeys];
  for (auto& sum : sums) sum = hn::Zero(df);
  for (std::int64_t d = 0; d < width; d += static_cast<std::int64_t>(hn::Lanes(df))) {
    const auto query = hn::LoadU(df, q + d);
    for (int j = 0; j < kKeys; ++j)
      sums[j] = hn::MulAdd(query, load_bf16(df, keys[first + j] + d), sums[j]);
  }
  for (int j = 0; j < kKeys; ++j) scores[first + j] = hn::GetLane(hn::SumOfLanes(df, sums[j]));
}

template <int kKeys>
HWY_INLINE void add_values(const float* weights, const Keys& values, std::int64_t first,
                           std::int64_t rank, float* mixed) {
  const DF df;
  for (std::int64_t d = 0; d < rank; d += static_cast<std::int64_t>(hn::Lanes(df))) {
    auto sum = hn::LoadU(df, mixed + d);
    for (int j = 0; j < kKeys; ++j)
      sum = hn::MulAdd(hn::Set(df, weights[first + j]), load_bf16(df, values[first + j] + d), sum);
    hn::StoreU(sum, df, mixed + d);
  }
}

}  // namespace

void attend_head_simd(const float* q, const bf16* cache, std::int64_t stride, std::int64_t visible,
                      std::int64_t width, std::int64_t rank, float* mixed) {
  const Keys keys = {cache, stride};
  std::vector<float> weights(static_cast<std::size_t>(visible));
  std::int64_t j = 0;
  for (; j + 4 <= visible; j += 4) score<4>(q, keys, j, width, weights.data());
  for (; j < visible; ++j) score<1>(q, keys, j, width, weights.data());

  const float largest = *std::max_element(weights.begin(), weights.end());
  float sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - largest);

  for (j = 0; j + 4 <= visible; j += 4) add_values<4>(weights.data(), keys, j, rank, mixed);
  for (; j < visible; ++j) add_values<1>(weights.data(), keys, j, rank, mixed);
  for (std::int64_t d = 0; d < rank; ++d) mixed[d] /= sum;
}

}  // namespace k3::mini::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::mini {
namespace {

HWY_EXPORT(attend_head_simd);

}  // namespace

void attend_head(const AttentionArgs& args, std::int64_t row, std::int64_t head) {
  const std::int64_t width = args.cache.shape[1];
  const std::int64_t rank = args.out.shape[2];
  const bf16* const query = static_cast<const bf16*>(args.query.data) +
                            row * args.query.strides[0] + head * args.query.strides[1];
  std::vector<float> q(static_cast<std::size_t>(width));
  std::transform(query, query + width, q.begin(), [&](bf16 x) { return to_float(x) * args.scale; });
  std::vector<float> mixed(static_cast<std::size_t>(rank));
  HWY_DYNAMIC_DISPATCH(attend_head_simd)
  (q.data(), static_cast<const bf16*>(args.cache.data), args.cache.strides[0],
   static_cast<const std::int32_t*>(args.positions.data)[row] + 1, width, rank, mixed.data());
  bf16* const out =
      static_cast<bf16*>(args.out.data) + row * args.out.strides[0] + head * args.out.strides[1];
  std::transform(mixed.begin(), mixed.end(), out, to_bf16);
}

}  // namespace k3::mini
#endif  // HWY_ONCE
