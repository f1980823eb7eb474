// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "contract/checks.h"
#include "contract/kda_decode.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;

struct Sizes {
  std::int64_t N;
  std::int64_t tokens;
  std::int64_t H;
};

void check_shapes(const Contract& contract, const KdaVerifyArgs& a, const Sizes& s) {
  const KdaDecodeSizes sizes = {{"tokens", s.tokens}, {"H", s.H}, {"H*128", s.H * kD}};
  check_conv_and_norm_shapes(contract, a, sizes);
  check_recurrence_shapes(contract, a, sizes);
  contract.shape("query_start_loc", a.query_start_loc, {{"N + 1", s.N + 1}});
  contract.shape("ring_indices", a.ring_indices, {{"N", s.N}});
  contract.shape("scratch_indices", a.scratch_indices, {{"N", s.N}});
}

void check_layouts(const Contract& contract, const KdaVerifyArgs& a) {
  check_recurrence_layouts(contract, a);
  check_conv_and_norm_layouts(contract, a);
  contract.dense_from("ring_k", a.ring_k, 1);
  contract.dense_from("ring_v", a.ring_v, 1);
  contract.dense_from("ring_g", a.ring_g, 1);
  contract.unit_last_stride("conv_scratch", a.conv_scratch);
  contract.dense_from("snapshots", a.snapshots, 2);
}

/// All four rings or none, and then no snapshots: a chain is replayed from the one or the other.
void check_rings(const Contract& contract, const KdaVerifyArgs& a, std::int64_t H,
                 int max_query_len) {
  const bool rings = a.ring_k.defined();
  contract.require(a.ring_v.defined() == rings, "ring_v", "must be given exactly when ring_k is",
                   a.ring_v);
  contract.require(a.ring_g.defined() == rings, "ring_g", "must be given exactly when ring_k is",
                   a.ring_g);
  contract.require(a.ring_beta.defined() == rings, "ring_beta",
                   "must be given exactly when ring_k is", a.ring_beta);
  if (!rings) return;
  contract.require(!a.snapshots.defined(), "snapshots", "must be absent where the rings are given",
                   a.snapshots);
  const std::int64_t rows = a.ring_k.shape[0];
  const std::int64_t L = a.ring_k.shape[2];
  contract.require(L >= max_query_len, "ring_k", "must hold max_query_len tokens a row", a.ring_k);
  contract.small("ring_k", "L", L);
  contract.shape("ring_k", a.ring_k, {{"ring_rows", rows}, {"H", H}, {"L", L}, {"128", kD}});
  contract.shape("ring_v", a.ring_v, {{"ring_rows", rows}, {"H", H}, {"L", L}, {"128", kD}});
  contract.shape("ring_g", a.ring_g, {{"ring_rows", rows}, {"H", H}, {"L", L}, {"128", kD}});
  contract.shape("ring_beta", a.ring_beta, {{"ring_rows", rows}, {"H", H}, {"L", L}});
}

/// Rows of conv_scratch or snapshots: enough tokens each, and one per request where their order is
/// the requests' own.
void check_scratch(const Contract& contract, const KdaVerifyArgs& a, const char* argument,
                   const ConstTensorView& scratch, std::int64_t N, int max_query_len) {
  if (!scratch.defined()) return;
  contract.require(scratch.shape[1] >= max_query_len, argument,
                   "must hold max_query_len tokens a row", scratch);
  contract.require(a.scratch_indices.defined() || scratch.shape[0] >= N, argument,
                   "must have a row for every request where scratch_indices is absent", scratch);
}

void check_side_outputs(const Contract& contract, const KdaVerifyArgs& a, const Sizes& s,
                        int max_query_len) {
  check_rings(contract, a, s.H, max_query_len);
  check_scratch(contract, a, "conv_scratch", a.conv_scratch, s.N, max_query_len);
  contract.shape("conv_scratch", a.conv_scratch,
                 {{"rows", a.conv_scratch.shape[0]},
                  {"Ts", a.conv_scratch.shape[1]},
                  {"3", kKdaConvWidth - 1},
                  {"3*H*128", 3 * s.H * kD}});
  check_scratch(contract, a, "snapshots", a.snapshots, s.N, max_query_len);
  contract.shape("snapshots", a.snapshots,
                 {{"rows", a.snapshots.shape[0]},
                  {"Ts", a.snapshots.shape[1]},
                  {"H", s.H},
                  {"128", kD},
                  {"128", kD}});
  contract.require(!a.snapshots.defined() || a.snapshots.dtype == a.state.dtype, "snapshots",
                   "must have the dtype of state", a.snapshots);
}

/// Windows of neighbouring tokens share two taps. A conv_scratch with equal strides for tokens and
/// taps holds each token once, and overlaps itself in just that way: as rows of Ts + 2 tokens it
/// does not.
void check_overlaps(const Contract& contract, KdaVerifyArgs a) {
  TensorView& scratch = a.conv_scratch;
  if (scratch.shape[1] > 1 && scratch.strides[1] == scratch.strides[2]) {
    scratch.rank = 3;
    scratch.shape[1] += kKdaConvWidth - 2;
    scratch.shape[2] = scratch.shape[3];
    scratch.strides[2] = scratch.strides[3];
  }
  contract.overlaps(kda_verify_args(), a);
}

void check_scalars(const Contract& contract, const KdaVerifyArgs& a) {
  check_recurrence_scalars(contract, a);
  check_conv_and_norm_scalars(contract, a);
  contract.require(!a.ring_indices.defined() || a.ring_k.defined(), "ring_indices",
                   "is used only with rings", a.ring_indices);
  contract.require(
      !a.scratch_indices.defined() || a.conv_scratch.defined() || a.snapshots.defined(),
      "scratch_indices", "is used only with conv_scratch or snapshots", a.scratch_indices);
}

/// The most tokens of one request.
int max_query_len_of(const Contract& contract, const KdaVerifyArgs& a, const Sizes& s) {
  contract.require(a.max_query_len >= 0 && a.max_query_len <= kKdaMaxVerifyTokens, "max_query_len",
                   "must be in 0 .. 16", [&] { return std::to_string(a.max_query_len); });
  if (a.max_query_len > 0) return a.max_query_len;
  if (s.N == 0) return 0;
  const auto seen = [&] { return fmt::format("tokens = {}, N = {}", s.tokens, s.N); };
  contract.require(s.tokens % s.N == 0, "max_query_len", "must be given where N does not divide",
                   seen);
  contract.require(s.tokens / s.N <= kKdaMaxVerifyTokens, "mixed_qkv",
                   "must have at most 16 tokens a request", seen);
  return static_cast<int>(s.tokens / s.N);
}

/// Every live request has a row below num_rows: its entry of `rows`, or its own number where that
/// is absent.
void check_rows(const Contract& contract, const KdaVerifyProblem& p, const char* argument,
                const IndexList& rows, std::int64_t num_rows, const char* what,
                ValueChecks checks) {
  std::unordered_map<std::int64_t, int> first_user;
  for (int n = 0; n < p.N; ++n) {
    if (!p.is_live(p.state_indices[n])) continue;
    const std::int64_t row = rows.defined() ? rows[n] : n;
    if (row < 0 || row >= num_rows)
      contract.fail(argument,
                    fmt::format("must give every live request a {} below {}", what, num_rows),
                    fmt::format("{}[{}] = {}", argument, n, row));
    if (checks != ValueChecks::kRangesAndDuplicates) continue;
    const auto [other, is_new] = first_user.try_emplace(row, n);
    if (!is_new)
      contract.fail(argument, fmt::format("must give every live request a {} of its own", what),
                    fmt::format("{0}[{1}] = {0}[{2}] = {3}", argument, other->second, n, row));
  }
}

void check_query_start_loc(const Contract& contract, const KdaVerifyProblem& p) {
  constexpr const char* kName = "query_start_loc";
  const IndexList& starts = p.query_start_loc;
  const auto seen = [&](std::int64_t n) { return fmt::format("{}[{}] = {}", kName, n, starts[n]); };
  contract.require(starts[0] >= 0, kName, "must begin at 0 or later", [&] { return seen(0); });
  for (int n = 0; n < p.N; ++n) {
    const std::int64_t length = std::int64_t{starts[n + 1]} - starts[n];
    const auto both = [&] { return seen(n) + ", " + seen(n + 1); };
    contract.require(length >= 0, kName, "must not decrease", both);
    if (length > p.max_query_len)
      contract.fail(
          kName,
          fmt::format("must give a request at most max_query_len = {} tokens", p.max_query_len),
          both());
  }
  if (starts[p.N] > p.tokens)
    contract.fail(kName, fmt::format("must end at most at tokens = {}", p.tokens), seen(p.N));
}

void set_side_outputs(const KdaVerifyArgs& a, KdaVerifyProblem& p) {
  p.has_rings = a.ring_k.defined();
  p.ring_rows = a.ring_k.shape[0];
  p.ring_len = p.has_rings ? static_cast<int>(a.ring_k.shape[2]) : 0;
  p.ring_k = static_cast<bf16*>(a.ring_k.data);
  p.ring_k_row_stride = a.ring_k.strides[0];
  p.ring_v = static_cast<bf16*>(a.ring_v.data);
  p.ring_v_row_stride = a.ring_v.strides[0];
  p.ring_g = a.ring_g.data;
  p.ring_g_dtype = a.ring_g.dtype;
  p.ring_g_row_stride = a.ring_g.strides[0];
  p.ring_beta = static_cast<float*>(a.ring_beta.data);
  p.ring_beta_row_stride = a.ring_beta.strides[0];
  p.ring_beta_head_stride = a.ring_beta.strides[1];
  p.ring_beta_token_stride = a.ring_beta.strides[2];
  p.ring_indices = IndexList(a.ring_indices);
  p.conv_scratch = static_cast<bf16*>(a.conv_scratch.data);
  p.conv_scratch_rows = a.conv_scratch.shape[0];
  p.conv_scratch_row_stride = a.conv_scratch.strides[0];
  p.conv_scratch_token_stride = a.conv_scratch.strides[1];
  p.conv_scratch_tap_stride = a.conv_scratch.strides[2];
  p.snapshots = a.snapshots.data;
  p.snapshot_rows = a.snapshots.shape[0];
  p.snapshot_row_stride = a.snapshots.strides[0];
  p.snapshot_token_stride = a.snapshots.strides[1];
  p.scratch_indices = IndexList(a.scratch_indices);
}

}  // namespace

std::span<const ArgRule<KdaVerifyArgs>> kda_verify_args() {
  using Args = KdaVerifyArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr DTypeSet kI32 = {DType::kI32};
  constexpr DTypeSet kF32OrBF16 = {DType::kF32, DType::kBF16};
  constexpr auto kRead = Access::kRead;
  constexpr auto kInPlace = Access::kReadWrite;  // what a call does not write stays
  static const ArgRule<Args> rules[] = {
      {"mixed_qkv", kRead, false, kBF16, {2}, &Args::mixed_qkv},
      {"conv_states", kRead, false, kBF16, {3}, &Args::conv_states},
      {"conv_weight", kRead, false, kF32, {2}, &Args::conv_weight},
      {"conv_bias", kRead, true, kF32, {1}, &Args::conv_bias},
      {"g", kRead, false, kBF16, {2}, &Args::g},
      {"beta", kRead, false, kBF16, {2}, &Args::beta},
      {"A_log", kRead, true, kF32, {1}, &Args::A_log},
      {"dt_bias", kRead, true, kF32, {1, 2}, &Args::dt_bias},
      {"onorm_gate", kRead, true, kBF16, {2}, &Args::onorm_gate},
      {"onorm_weight", kRead, true, kF32, {1}, &Args::onorm_weight},
      {"state", kRead, false, kF32OrBF16, {4}, &Args::state},
      {"state_indices", kRead, false, kI32, {1}, &Args::state_indices},
      {"query_start_loc", kRead, false, kI32, {1}, &Args::query_start_loc},
      {"ring_k", kInPlace, true, kBF16, {4}, &Args::ring_k},
      {"ring_v", kInPlace, true, kBF16, {4}, &Args::ring_v},
      {"ring_g", kInPlace, true, kF32OrBF16, {4}, &Args::ring_g},
      {"ring_beta", kInPlace, true, kF32, {3}, &Args::ring_beta},
      {"ring_indices", kRead, true, kI32, {1}, &Args::ring_indices},
      {"conv_scratch", kInPlace, true, kBF16, {4}, &Args::conv_scratch},
      {"snapshots", kInPlace, true, kF32OrBF16, {5}, &Args::snapshots},
      {"scratch_indices", kRead, true, kI32, {1}, &Args::scratch_indices},
      {"out", Access::kWrite, false, kBF16, {2}, &Args::out},
  };
  return rules;
}

void check_values(const Contract& contract, const KdaVerifyProblem& p, ValueChecks checks) {
  check_indices(contract, "state_indices", p.state_indices, p.null_index, p.num_slots, "slot",
                ValueChecks::kRanges);
  check_query_start_loc(contract, p);
  if (p.has_rings && p.ring_indices.defined())
    check_rows(contract, p, "ring_indices", p.ring_indices, p.ring_rows, "ring row", checks);
  else if (p.has_rings)
    check_rows(contract, p, "state_indices", p.state_indices, p.ring_rows, "ring row", checks);
  if (p.conv_scratch != nullptr)
    check_rows(contract, p, "scratch_indices", p.scratch_indices, p.conv_scratch_rows,
               "conv_scratch row", checks);
  if (p.snapshots != nullptr)
    check_rows(contract, p, "scratch_indices", p.scratch_indices, p.snapshot_rows, "snapshot row",
               checks);
}

KdaVerifyProblem check(const KdaVerifyArgs& a, Purpose purpose) {
  const Contract contract("kda_verify", purpose);
  contract.tensors(kda_verify_args(), a);
  KdaVerifyProblem p;
  p.N = contract.small("state_indices", "N", a.state_indices.shape[0]);
  p.tokens = contract.small("beta", "tokens", a.beta.shape[0]);
  p.H = contract.small("beta", "H", a.beta.shape[1]);
  const Sizes sizes = {p.N, p.tokens, p.H};
  contract.require(p.H >= 1, "beta", "must have at least one head", a.beta);
  contract.small("mixed_qkv", "3*H*128", 3 * sizes.H * kD);
  check_shapes(contract, a, sizes);
  p.max_query_len = max_query_len_of(contract, a, sizes);
  check_side_outputs(contract, a, sizes, p.max_query_len);
  check_layouts(contract, a);
  check_overlaps(contract, a);
  check_scalars(contract, a);

  set_recurrence(a, p);
  set_conv_and_norm(a, p);
  p.query_start_loc = IndexList(a.query_start_loc);
  set_side_outputs(a, p);
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
