// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_route_quant/moe_route_quant.h"

#include <bit>
#include <cstdint>

#include "cuda/common/group_quant.cuh"
#include "cuda/moe/launch.h"
#include "cuda/moe/route_beside.cuh"
#include "cuda/moe_route_topk/moe_route_topk.h"
#include "cuda/per_token_group_quant/kernel.cuh"
#include "cuda/per_token_group_quant/per_token_group_quant.h"

namespace k3::cuda {
namespace {

/// Quantises a row: sixteen neighbouring values a thread, a group's threads in one warp.
template <class T>
struct QuantiseRow {
  PerTokenGroupQuantProblem p;
  int lanes;  ///< of a group: 1, 2, 4, 8 or 16
  int lanes_log2;

  __device__ void operator()(std::int64_t token, int thread) const {
    constexpr QuantFormat kFormat = QuantFormat::kE4M3UE8M0;
    const T* const input = static_cast<const T*>(p.input) + token * p.input_stride;
    std::uint8_t* const output = p.output_q + token * p.q_stride;
    const std::int64_t vectors = p.D / kGroupQuantVec;
    // Lanes past the row stay for the exchange within their warp; groups are whole.
    for (std::int64_t first = 0; first < vectors; first += moe::kRowThreads) {
      const std::int64_t vector = first + thread;
      float x[kGroupQuantVec] = {};
      if (vector < vectors) load_vector(input + vector * kGroupQuantVec, x);
      const GroupScale scale = group_scale<kFormat>(warp::max(largest_magnitude(x), lanes));
      if (vector >= vectors) continue;
      *reinterpret_cast<uint4*>(output + vector * kGroupQuantVec) =
          quantise_vector<kFormat>(x, scale.multiplier);
      if ((vector & (lanes - 1)) == 0) store_scale(p.scales, token, vector >> lanes_log2, scale);
    }
  }
};

template <class T>
void run_one_launch(const MoeRouteQuantProblem& p, const Target& target) {
  const int lanes = p.quant.group_size / kGroupQuantVec;
  const QuantiseRow<T> row = {p.quant, lanes, std::countr_zero(static_cast<unsigned>(lanes))};
  const auto kernel = p.routing.scores_dtype == DType::kBF16
                          ? moe::route_beside_kernel<bf16, QuantiseRow<T>>
                          : moe::route_beside_kernel<float, QuantiseRow<T>>;
  moe::launch_over_tokens(p.routing.num_tokens, moe::kRouteThreads + moe::kRowThreads, 0, target,
                          kernel, static_cast<const MoeRouting&>(p.routing), row);
}

}  // namespace

const char* moe_route_quant_one_launch_refusal(const MoeRouteQuantProblem& p,
                                               const Target& target) {
  if (const char* reason = moe_route_topk_16_of_896_refusal(p.routing, target)) return reason;
  return per_token_group_quant_vec16_refusal(p.quant, target);
}

void moe_route_quant_one_launch(const MoeRouteQuantProblem& p, const Target& target) {
  return p.quant.input_dtype == DType::kBF16 ? run_one_launch<bf16>(p, target)
                                             : run_one_launch<float>(p, target);
}

void moe_route_quant_two_launches(const MoeRouteQuantProblem& p, const Target& target) {
  moe_route_topk_any(p.routing, target);
  if (per_token_group_quant_vec16_refusal(p.quant, target) == nullptr)
    per_token_group_quant_vec16(p.quant, target);
  else
    per_token_group_quant_warp_per_group(p.quant, target);
}

}  // namespace k3::cuda
