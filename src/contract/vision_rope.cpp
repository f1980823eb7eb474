// SPDX-License-Identifier: Apache-2.0
#include "contract/vision_rope.h"

#include <fmt/format.h>

#include <vector>

#include "contract/checks.h"
#include "contract/rows.h"

namespace k3 {
namespace {

constexpr RankSet kRanks = {3, 4, 5, 6, 7, 8};

/// `t` has the shape, the dtype and the layout rules of q. @returns its heads
template <class View>
auto heads_of(const Contract& contract, const char* argument, const View& t,
              const ConstTensorView& q) {
  contract.require(t.dtype == q.dtype, argument, "must have the dtype of q", t);
  bool same = t.rank == q.rank;
  for (int d = 0; same && d < q.rank; ++d) same = t.shape[d] == q.shape[d];
  if (!same)
    contract.fail(argument, fmt::format("must have the shape of q, {}", describe(q)), describe(t));
  contract.unit_last_stride(argument, t);
  const Rows tokens = fold_rows(contract, argument, t, t.rank - 2);
  return RopeHeads<std::remove_pointer_t<decltype(t.data)>>{
      t.data, tokens.stride, t.shape[t.rank - 2] > 1 ? t.strides[t.rank - 2] : 0};
}

/// Freqs have the leading axes of q, and a pair for each two of its elements.
void check_freqs(const Contract& contract, const VisionRopeArgs& args) {
  const ConstTensorView& q = args.q;
  contract.require(args.freqs.rank == q.rank, "freqs", "must have the rank of q", args.freqs);
  std::vector<Axis> axes;
  for (int d = 0; d + 2 < q.rank; ++d) axes.push_back({"tokens of q", q.shape[d]});
  axes.push_back({"D/2", q.shape[q.rank - 1] / 2});
  axes.push_back({"2", 2});
  contract.shape("freqs", args.freqs, axes);
  contract.dense_from("freqs", args.freqs, q.rank - 2);
}

}  // namespace

std::span<const ArgRule<VisionRopeArgs>> vision_rope_args() {
  using Args = VisionRopeArgs;
  constexpr DTypeSet kHalves = {DType::kBF16, DType::kF16};
  static const ArgRule<Args> rules[] = {
      {"q", Access::kRead, false, kHalves, kRanks, &Args::q},
      {"k", Access::kRead, false, kHalves, kRanks, &Args::k},
      {"freqs", Access::kRead, false, {DType::kF32}, kRanks, &Args::freqs},
      {"q_out", Access::kWrite, false, kHalves, kRanks, &Args::q_out},
      {"k_out", Access::kWrite, false, kHalves, kRanks, &Args::k_out},
  };
  return rules;
}

VisionRopeProblem check(const VisionRopeArgs& args, Purpose purpose) {
  const Contract contract("vision_rope", purpose);
  contract.tensors(vision_rope_args(), args);
  const ConstTensorView& q = args.q;

  VisionRopeProblem p;
  p.H = contract.small("q", "H", q.shape[q.rank - 2]);
  p.D = contract.small("q", "D", q.shape[q.rank - 1]);
  contract.require(p.D % 2 == 0, "q", "must have an even last axis", q);
  p.q = heads_of(contract, "q", args.q, q);
  p.k = heads_of(contract, "k", args.k, q);
  check_freqs(contract, args);
  p.q_out = heads_of(contract, "q_out", args.q_out, q);
  p.k_out = heads_of(contract, "k_out", args.k_out, q);
  p.T = fold_rows(contract, "q", q, q.rank - 2).count;

  const bool q_in_place = same_memory(args.q_out, args.q);
  const bool k_in_place = same_memory(args.k_out, args.k);
  contract.no_self_overlap("q_out", args.q_out);
  contract.no_self_overlap("k_out", args.k_out);
  if (purpose == Purpose::kRun) {
    if (!q_in_place) contract.no_overlap("q_out", args.q_out, "q", args.q);
    contract.no_overlap("q_out", args.q_out, "k", args.k);
    contract.no_overlap("q_out", args.q_out, "freqs", args.freqs);
    contract.no_overlap("q_out", args.q_out, "k_out", args.k_out);
    if (!k_in_place) contract.no_overlap("k_out", args.k_out, "k", args.k);
    contract.no_overlap("k_out", args.k_out, "q", args.q);
    contract.no_overlap("k_out", args.k_out, "freqs", args.freqs);
  }

  p.dtype = q.dtype;
  p.freqs = static_cast<const float*>(args.freqs.data);
  p.freqs_stride = fold_rows(contract, "freqs", args.freqs, q.rank - 2).stride;
  p.in_place = q_in_place || k_in_place;
  p.device = q.device;
  return p;
}

}  // namespace k3
