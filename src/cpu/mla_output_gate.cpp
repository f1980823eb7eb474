// SPDX-License-Identifier: Apache-2.0

// out = bf16(x * bf16(sigmoid(gate))) on vectors of bf16, taken apart into fp32 vectors of their
// even and of their odd elements, which need no shuffle to come apart or together again.
// docs/mla_output_gate.md has the bound and the error argument.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mla_output_gate.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/mla_output_gate.h"
#include "cpu/row_spans.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using BF16Tag = hn::ScalableTag<std::uint16_t>;
using WordTag = hn::Repartition<std::uint32_t, BF16Tag>;
using FloatTag = hn::Repartition<float, BF16Tag>;
using BF16Vec = hn::Vec<BF16Tag>;
using WordVec = hn::Vec<WordTag>;
using FloatVec = hn::Vec<FloatTag>;

/// Vectors of bf16 that go through every step together: their chains of operations, two a vector,
/// hide each other's latency.
constexpr int kVectors = 4;
constexpr int kChains = 2 * kVectors;

/// chains[i] = sigmoid(g) = 1 / (1 + 2^t), t = -g log2(e), of g = chains[i], a bf16 value in
/// [-93.5, 64]: close enough that rounding it to bf16 rounds the exact one, for every such g.
///
/// 2^t is a polynomial of degree 5 in the fraction of t, times the whole power, which a sum with
/// 1.5 * 2^23 leaves in the low mantissa bits, biased by 127 - 16. Everything is scaled by 2^-16:
/// the denominator then stays finite where the sigmoid is subnormal.
HWY_INLINE void sigmoid_of_bf16(FloatVec (&chains)[kChains]) {
  const FloatTag df;
  const auto minus_log2e = hn::Set(df, -1.44269504F);
  const auto round_and_bias = hn::Set(df, 12582912.0F + 111.0F);
  const auto unit = hn::Set(df, 0x1p-16F);
  FloatVec power[kChains];
  FloatVec fraction[kChains];
  for (int i = 0; i < kChains; ++i) {
    const auto shifted = hn::MulAdd(chains[i], minus_log2e, round_and_bias);
    fraction[i] = hn::MulSub(chains[i], minus_log2e, hn::Sub(shifted, round_and_bias));
    power[i] = hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(WordTag(), shifted)));
    chains[i] = hn::Set(df, 1.33908633e-3F);
  }
  for (const float coefficient :
       {9.67603177e-3F, 5.55035695e-2F, 2.40221068e-1F, 6.93147182e-1F, 1.0F})
    for (int i = 0; i < kChains; ++i)
      chains[i] = hn::MulAdd(chains[i], fraction[i], hn::Set(df, coefficient));
  for (int i = 0; i < kChains; ++i)
    chains[i] = hn::Div(unit, hn::MulAdd(chains[i], power[i], unit));
}

HWY_INLINE void gate_vectors(const BF16Vec (&x)[kVectors], const BF16Vec (&g)[kVectors],
                             BF16Vec (&out)[kVectors]) {
  const BF16Tag du16;
  const WordTag du32;
  const hn::RebindToSigned<BF16Tag> di16;
  FloatVec chains[kChains];
  // Integer order is that of the magnitude: unsigned among negative values, signed among positive
  // ones. A NaN is clamped, too, and put back below.
  for (int v = 0; v < kVectors; ++v) {
    const auto not_below = hn::Min(g[v], hn::Set(du16, 0xC2BB));                     // -93.5
    const auto held = hn::Min(hn::BitCast(di16, not_below), hn::Set(di16, 0x4280));  // 64
    chains[2 * v] = even_values(hn::BitCast(du32, held));
    chains[2 * v + 1] = odd_values(hn::BitCast(du32, held));
  }
  sigmoid_of_bf16(chains);
  WordVec rounded[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = odd_values(rounded_high_halves(chains[i]));
  for (int v = 0; v < kVectors; ++v) {
    const auto pairs = hn::BitCast(du32, x[v]);
    rounded[2 * v] = rounded_high_halves(hn::Mul(even_values(pairs), chains[2 * v]));
    rounded[2 * v + 1] = rounded_high_halves(hn::Mul(odd_values(pairs), chains[2 * v + 1]));
  }
  const auto magnitude = hn::Set(du16, 0x7FFF);
  for (int v = 0; v < kVectors; ++v) {
    const auto even = hn::ShiftRight<16>(rounded[2 * v]);
    const auto odd = hn::And(rounded[2 * v + 1], hn::Set(du32, 0xFFFF0000));
    const auto result = hn::BitCast(du16, hn::Or(even, odd));
    const auto larger = hn::Max(hn::BitCast(di16, hn::And(result, magnitude)),
                                hn::BitCast(di16, hn::And(g[v], magnitude)));
    const auto is_nan = hn::RebindMask(du16, hn::Gt(larger, hn::Set(di16, 0x7F80)));
    out[v] = hn::IfThenElse(is_nan, hn::Set(du16, kMlaOutputGateNaN.bits), result);
  }
}

/// kVectors vectors. No alignment, but of `out` where `kStream`.
template <bool kStream>
HWY_INLINE void gate_block(const std::uint16_t* x_at, const std::uint16_t* g_at,
                           std::uint16_t* out_at) {
  const BF16Tag d;
  BF16Vec x[kVectors];
  BF16Vec g[kVectors];
  BF16Vec out[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    x[v] = hn::LoadU(d, x_at + v * hn::Lanes(d));
    g[v] = hn::LoadU(d, g_at + v * hn::Lanes(d));
  }
  gate_vectors(x, g, out);
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kStream)
      hn::Stream(out[v], d, out_at + v * hn::Lanes(d));
    else
      hn::StoreU(out[v], d, out_at + v * hn::Lanes(d));
  }
}

/// Fewer elements than a block has.
void gate_rest(const std::uint16_t* x, const std::uint16_t* g, std::uint16_t* out,
               std::int64_t count) {
  if (count == 0) return;
  constexpr std::size_t kMaxBlock = kVectors * HWY_MAX_BYTES / sizeof(std::uint16_t);
  HWY_ALIGN std::uint16_t x_block[kMaxBlock] = {};
  HWY_ALIGN std::uint16_t g_block[kMaxBlock] = {};
  std::copy_n(x, count, x_block);
  std::copy_n(g, count, g_block);
  gate_block<false>(x_block, g_block, x_block);
  std::copy_n(x_block, count, out);
}

}  // namespace

/// `count` elements of one row. `stream`: past the caches.
void gate_span(const bf16* x_at, const bf16* g_at, bf16* out_at, std::int64_t count, bool stream) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(BF16Tag()));
  const std::int64_t block = kVectors * lanes;
  const auto* x = reinterpret_cast<const std::uint16_t*>(x_at);
  const auto* g = reinterpret_cast<const std::uint16_t*>(g_at);
  auto* out = reinterpret_cast<std::uint16_t*>(out_at);
  std::int64_t i = 0;
  if (stream) {
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) / 2) % lanes;
    i = std::min((lanes - past) % lanes, count);
    gate_rest(x, g, out, i);
    for (; i + block <= count; i += block) gate_block<true>(x + i, g + i, out + i);
    hwy::FlushStream();
  }
  for (; i + block <= count; i += block) gate_block<false>(x + i, g + i, out + i);
  gate_rest(x + i, g + i, out + i, count - i);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(gate_span);

constexpr RowSpans kShares = {.task_outputs = 16384, .output_time = 3e-4};  // 5 us a task

}  // namespace

void mla_output_gate(const MlaOutputGateProblem& p, const Target& target) {
  if (p.D == 0) return;
  const auto gate_part = HWY_DYNAMIC_DISPATCH(gate_span);
  const bool stream = stream_outputs(p.num_rows, p.D);
  for_each_row_span(p.num_rows, p.D, target.threads, kShares,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
                      gate_part(p.x + row * p.x_stride + begin,
                                p.gate + row * p.gate_stride + begin,
                                p.out + row * p.out_stride + begin, count, stream);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
