// SPDX-License-Identifier: Apache-2.0

// The router, one token at a time: vectors of biased scores are held against the k-th best so far,
// and only those with a better one are looked at by element. docs/moe_route_topk.md has the bound.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_route_topk.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/math-inl.h"
#include "cpu/moe_route_topk.h"
#include "cpu/parallel.h"

#ifndef K3_CPU_MOE_ROUTE_TOPK_BEST_
#define K3_CPU_MOE_ROUTE_TOPK_BEST_
namespace k3::cpu {

/// The best k experts seen so far, best first; of equal ones the one that came first.
class BestExperts {
 public:
  struct Entry {
    float biased;
    float activation;
    std::int32_t id;
  };

  explicit BestExperts(int k) : k_(k) {}

  [[nodiscard]] bool full() const { return count_ == k_; }
  /// Where full: what a later one must exceed.
  [[nodiscard]] float threshold() const { return entries_[k_ - 1].biased; }

  void add(const Entry& entry) {
    if (full() && !(entry.biased > threshold())) return;
    int at = full() ? k_ - 1 : count_++;
    for (; at > 0 && entry.biased > entries_[at - 1].biased; --at) entries_[at] = entries_[at - 1];
    entries_[at] = entry;
  }

  Entry* begin() { return entries_; }
  Entry* end() { return entries_ + count_; }

 private:
  int k_;
  int count_ = 0;
  Entry entries_[kMoeMaxTopk];
};

}  // namespace k3::cpu
#endif  // K3_CPU_MOE_ROUTE_TOPK_BEST_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

template <class DF>
HWY_INLINE hn::Vec<DF> load(DF df, const bf16* from) {
  return load_bf16(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load(DF df, const float* from) {
  return hn::LoadU(df, from);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load_n(DF df, const bf16* from, std::size_t count) {
  return load_bf16_n(df, from, count);
}
template <class DF>
HWY_INLINE hn::Vec<DF> load_n(DF df, const float* from, std::size_t count) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy_n(from, count, lanes);
  return hn::Load(df, lanes);
}

/// Experts [first, first + count), of which x and bias hold the logits and the corrections.
template <class DF>
HWY_INLINE void consider(DF df, hn::Vec<DF> x, hn::Vec<DF> bias, int first, int count,
                         BestExperts& best) {
  const auto activation = sigmoid(df, x);
  const auto sum = hn::Add(activation, bias);
  const auto biased = hn::IfThenElse(hn::IsNaN(sum), hn::Set(df, kMoeNaNScore), sum);
  std::uint32_t better = (std::uint32_t{1} << count) - 1;
  if (best.full()) {
    std::uint8_t bits[8] = {};  // all that the lanes of a vector may need
    hn::StoreMaskBits(df, hn::Gt(biased, hn::Set(df, best.threshold())), bits);
    better &= static_cast<std::uint32_t>(bits[0] | bits[1] << 8);
  }
  if (better == 0) return;
  HWY_ALIGN float activations[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float scores[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(activation, df, activations);
  hn::Store(biased, df, scores);
  for (; better != 0; better &= better - 1) {
    const int i = std::countr_zero(better);
    best.add({scores[i], activations[i], first + i});
  }
}

template <class Score>
void consider_all(const Score* scores, const float* bias, int num_experts, BestExperts& best) {
  const hn::ScalableTag<float> df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  int e = 0;
  for (; e + lanes <= num_experts; e += lanes)
    consider(df, load(df, scores + e), load(df, bias + e), e, lanes, best);
  if (e == num_experts) return;
  const auto rest = static_cast<std::size_t>(num_experts - e);
  consider(df, load_n(df, scores + e, rest), load_n(df, bias + e, rest), e, num_experts - e, best);
}

}  // namespace

void find_best(const MoeRouting& p, std::int64_t token, BestExperts& best) {
  const std::int64_t row = token * p.scores_stride;
  if (p.scores_dtype == DType::kBF16)
    consider_all(static_cast<const bf16*>(p.scores) + row, p.bias, p.num_experts, best);
  else
    consider_all(static_cast<const float*>(p.scores) + row, p.bias, p.num_experts, best);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(find_best);

constexpr std::int64_t kTaskTokens = 4;
constexpr double kExpertTime = 2e-3;  ///< microseconds of one thread, roughly

/// `best` in the order of the output; `by_id` in ascending order of id.
void write_token(const MoeRouting& p, std::int64_t token, BestExperts& best, BestExperts& by_id) {
  std::sort(by_id.begin(), by_id.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  float divisor = 1.0F;
  if (p.options.renormalize) {
    float sum = 0.0F;
    for (const auto& entry : by_id) sum += entry.activation;
    if (sum > 0.0F) divisor = sum;
  }
  float* weights = p.weights + token * p.weights_stride;
  std::int32_t* ids = p.ids + token * p.ids_stride;
  std::int32_t* packed = p.packed == nullptr ? nullptr : p.packed + token * p.packed_stride;
  for (const auto& entry : p.options.sorted ? best : by_id) {
    const float weight = entry.activation / divisor * p.options.routed_scaling_factor;
    *weights++ = weight;
    *ids++ = entry.id;
    if (packed != nullptr) *packed++ = pack_topk(entry.id, weight);
  }
}

}  // namespace

void moe_route(const MoeRouting& p, const Target& target) {
  if (p.num_tokens == 0) return;
  const auto find = HWY_DYNAMIC_DISPATCH(find_best);
  const int threads =
      useful_threads(target.threads, kExpertTime * static_cast<double>(p.num_tokens) *
                                         static_cast<double>(p.num_experts));
  parallel_for((p.num_tokens - 1) / kTaskTokens + 1, threads, [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kTaskTokens, p.num_tokens);
    for (std::int64_t token = task * kTaskTokens; token < end; ++token) {
      BestExperts best(p.options.topk);
      find(p, token, best);
      BestExperts by_id = best;
      write_token(p, token, best, by_id);
    }
  });
}

void moe_route_topk(const MoeRouteTopkProblem& problem, const Target& target) {
  moe_route(problem, target);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
