// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_prefill.h"

#include <fmt/format.h>

#include <cmath>

#include "contract/checks.h"
#include "contract/sequences.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;
constexpr std::size_t kVectorBytes = 16;

struct Sizes {
  std::int64_t B, T, H, HV, N;
};

Sizes check_sizes(const Contract& contract, const KdaPrefillArgs& a) {
  Sizes s{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.v.shape[2], a.q.shape[0]};
  contract.small("q", "B", s.B);
  contract.small("q", "H*128", contract.small("q", "H", s.H) * kD);
  contract.small("v", "HV*128", contract.small("v", "HV", s.HV) * kD);
  contract.shape("q", a.q, {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"128", kD}});
  contract.shape("k", a.k, {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"128", kD}});
  contract.shape("v", a.v, {{"B", s.B}, {"T", s.T}, {"HV", s.HV}, {"128", kD}});
  contract.require(s.H >= 1, "q", "must have at least one head", a.q);
  contract.require(s.HV >= 1 && s.HV % s.H == 0, "v",
                   "must have a multiple of q's heads (HV % H == 0)", a.v);
  if (a.g.rank == 4)
    contract.shape("g", a.g, {{"B", s.B}, {"T", s.T}, {"HV", s.HV}, {"128", kD}});
  else
    contract.shape("g", a.g, {{"B", s.B}, {"T", s.T}, {"HV*128", s.HV * kD}});
  contract.shape("beta", a.beta, {{"B", s.B}, {"T", s.T}, {"HV", s.HV}});
  contract.shape("out", a.out, {{"B", s.B}, {"T", s.T}, {"HV", s.HV}, {"128", kD}});
  contract.shape("A_log", a.A_log, {{"HV", s.HV}});
  if (a.dt_bias.rank == 2)
    contract.shape("dt_bias", a.dt_bias, {{"HV", s.HV}, {"128", kD}});
  else
    contract.shape("dt_bias", a.dt_bias, {{"HV*128", s.HV * kD}});
  if (a.cu_seqlens.defined()) {
    contract.require(s.B == 1, "q", "must have B = 1 where cu_seqlens is given", a.q);
    contract.require(a.cu_seqlens.shape[0] >= 2, "cu_seqlens", "must have N + 1 >= 2 entries",
                     a.cu_seqlens);
    s.N = contract.small("cu_seqlens", "N", a.cu_seqlens.shape[0] - 1);
  }
  return s;
}

void check_state(const Contract& contract, const char* name, const ConstTensorView& t,
                 std::int64_t rows, std::int64_t HV) {
  if (!t.defined()) return;
  contract.shape(name, t, {{"rows", rows}, {"HV", HV}, {"128", kD}, {"128", kD}});
  contract.dense_from(name, t, 1);
}

void check_states(const Contract& contract, const KdaPrefillArgs& a, const Sizes& s) {
  const ConstTensorView final_state = a.final_state;
  const bool pooled = a.state_indices.defined();
  if (pooled)
    contract.require(a.initial_state.defined() || final_state.defined(), "state_indices",
                     "must come with a pool (initial_state or final_state)",
                     [] { return "no pool"; });
  const auto rows_of = [&](const ConstTensorView& t) { return pooled ? t.shape[0] : s.N; };
  check_state(contract, "initial_state", a.initial_state, rows_of(a.initial_state), s.HV);
  check_state(contract, "final_state", final_state, rows_of(final_state), s.HV);
  if (a.initial_state.defined() && final_state.defined()) {
    contract.require(final_state.dtype == a.initial_state.dtype, "final_state",
                     "must have the dtype of initial_state", final_state);
    contract.require(final_state.shape[0] == a.initial_state.shape[0], "final_state",
                     "must have the rows of initial_state", final_state);
  }
  contract.shape("state_indices", a.state_indices, {{"N", s.N}});
  contract.dense_from("state_indices", a.state_indices, 0);
  contract.shape("track_chunk_idx", a.track_chunk_idx, {{"N", s.N}});
  contract.dense_from("track_chunk_idx", a.track_chunk_idx, 0);
  contract.require(a.track_chunk_idx.defined() == a.tracked_states.defined(), "track_chunk_idx",
                   "must be given exactly when tracked_states is", a.track_chunk_idx);
  check_state(contract, "chunk_states", a.chunk_states, a.chunk_states.shape[0], s.HV);
  check_state(contract, "tracked_states", a.tracked_states, s.N, s.HV);
}

void check_layouts(const Contract& contract, const KdaPrefillArgs& a) {
  const auto vector_rows = [&](const char* name, const ConstTensorView& t) {
    contract.unit_last_stride(name, t);
    contract.aligned(name, t, kVectorBytes);
  };
  vector_rows("q", a.q);
  vector_rows("k", a.k);
  vector_rows("v", a.v);
  vector_rows("g", a.g);
  vector_rows("out", a.out);
  contract.unit_last_stride("beta", a.beta);
  contract.dense_from("A_log", a.A_log, 0);
  contract.dense_from("dt_bias", a.dt_bias, 0);
  contract.dense_from("cu_seqlens", a.cu_seqlens, 0);
  const ConstTensorView& first = a.initial_state;
  const bool in_place = first.defined() && first.data == a.final_state.data &&
                        (first.shape[0] < 2 || first.strides[0] == a.final_state.strides[0]);
  if (in_place)
    contract.overlaps(kda_prefill_args(), a, {"final_state", "initial_state"});
  else
    contract.overlaps(kda_prefill_args(), a);
}

void check_scalars(const Contract& contract, const KdaPrefillArgs& a) {
  const auto needs_gate = [&](const char* name, bool given) {
    contract.require(!given || a.gate_in_kernel, name, "is used only with gate_in_kernel",
                     [] { return "gate_in_kernel = false"; });
  };
  needs_gate("lower_bound", a.lower_bound.has_value());
  needs_gate("A_log", a.A_log.defined());
  needs_gate("dt_bias", a.dt_bias.defined());
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(!a.gate_in_kernel || a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where gate_in_kernel is set and lower_bound is absent", a.A_log);
  contract.require(!a.allow_neg_eigval || a.beta_sigmoid, "allow_neg_eigval", "needs beta_sigmoid",
                   [] { return "beta_sigmoid = false"; });
  contract.one_of("state_layout", a.state_layout, {StateLayout::kVK, StateLayout::kKV});
}

void check_host_values(const Contract& contract, const KdaPrefillProblem& p) {
  check_values(contract, static_cast<const Sequences&>(p));
  if (!p.packed && p.chunk_states == nullptr && p.state_indices == nullptr &&
      p.track_chunk_idx == nullptr)
    return;
  std::int64_t chunk_rows = 0;
  for (int n = 0; n < p.N; ++n) {
    const std::int64_t length = p.length(n);
    chunk_rows += (length + kKdaChunkTokens - 1) / kKdaChunkTokens;
    if (p.state_indices != nullptr && p.state_indices[n] >= p.state_rows)
      contract.fail(
          "state_indices",
          fmt::format("must be negative (padding) or below the pool's {} slots", p.state_rows),
          fmt::format("state_indices[{}] = {}", n, p.state_indices[n]));
    if (p.track_chunk_idx != nullptr) {
      const std::int64_t chunk = p.track_chunk_idx[n];
      if (chunk < -1 || chunk * kKdaChunkTokens > length)
        contract.fail("track_chunk_idx",
                      fmt::format("must be -1 or in [0, {}]", length / kKdaChunkTokens),
                      fmt::format("track_chunk_idx[{}] = {}", n, chunk));
    }
  }
  if (p.chunk_states != nullptr)
    contract.require(p.chunk_rows >= chunk_rows, "chunk_states",
                     "must have a row for every chunk of 64 tokens",
                     [&] { return fmt::format("{} rows, {} chunks", p.chunk_rows, chunk_rows); });
}

TokenStrides token_strides(const ConstTensorView& t) {
  return {t.strides[0], t.strides[1], t.rank == 4 ? t.strides[2] : kD};
}

}  // namespace

std::span<const ArgRule<KdaPrefillArgs>> kda_prefill_args() {
  using Args = KdaPrefillArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr DTypeSet kI32 = {DType::kI32};
  constexpr DTypeSet kFloat = {DType::kF32, DType::kBF16};
  constexpr auto kRead = Access::kRead;
  constexpr auto kWrite = Access::kWrite;
  static const ArgRule<Args> rules[] = {
      {"q", kRead, false, kBF16, {4}, &Args::q},
      {"k", kRead, false, kBF16, {4}, &Args::k},
      {"v", kRead, false, kBF16, {4}, &Args::v},
      {"g", kRead, false, kFloat, {3, 4}, &Args::g},
      {"beta", kRead, false, kFloat, {3}, &Args::beta},
      {"A_log", kRead, true, kF32, {1}, &Args::A_log},
      {"dt_bias", kRead, true, kF32, {1, 2}, &Args::dt_bias},
      {"cu_seqlens", kRead, true, {DType::kI32, DType::kI64}, {1}, &Args::cu_seqlens},
      {"initial_state", kRead, true, kFloat, {4}, &Args::initial_state},
      {"state_indices", kRead, true, kI32, {1}, &Args::state_indices},
      {"track_chunk_idx", kRead, true, kI32, {1}, &Args::track_chunk_idx},
      {"out", kWrite, false, kBF16, {4}, &Args::out},
      {"final_state", kWrite, true, kFloat, {4}, &Args::final_state},
      {"chunk_states", kWrite, true, kFloat, {4}, &Args::chunk_states},
      {"tracked_states", kWrite, true, kF32, {4}, &Args::tracked_states},
  };
  return rules;
}

KdaPrefillProblem check(const KdaPrefillArgs& a, Purpose purpose) {
  const Contract contract("kda_prefill", purpose);
  contract.tensors(kda_prefill_args(), a);
  const Sizes s = check_sizes(contract, a);
  check_states(contract, a, s);
  check_layouts(contract, a);
  check_scalars(contract, a);

  KdaPrefillProblem p;
  p.N = static_cast<int>(s.N);
  p.H = static_cast<int>(s.H);
  p.HV = static_cast<int>(s.HV);
  p.T = s.T;
  p.packed = a.cu_seqlens.defined();
  p.q = static_cast<const bf16*>(a.q.data);
  p.q_strides = token_strides(a.q);
  p.k = static_cast<const bf16*>(a.k.data);
  p.k_strides = token_strides(a.k);
  p.v = static_cast<const bf16*>(a.v.data);
  p.v_strides = token_strides(a.v);
  p.g = a.g.data;
  p.g_dtype = a.g.dtype;
  p.g_strides = token_strides(a.g);
  p.beta = a.beta.data;
  p.beta_dtype = a.beta.dtype;
  p.beta_strides = {a.beta.strides[0], a.beta.strides[1], 1};
  p.A_log = static_cast<const float*>(a.A_log.data);
  p.dt_bias = static_cast<const float*>(a.dt_bias.data);
  p.cu_seqlens = a.cu_seqlens.data;
  p.cu_dtype = a.cu_seqlens.dtype;
  p.initial_state = a.initial_state.data;
  p.initial_slot_stride = a.initial_state.strides[0];
  p.final_state = a.final_state.data;
  p.final_slot_stride = a.final_state.strides[0];
  const ConstTensorView final_state = a.final_state;
  const ConstTensorView& any_state = a.initial_state.defined() ? a.initial_state : final_state;
  p.state_dtype = any_state.defined() ? any_state.dtype : DType::kF32;
  p.state_rows = any_state.defined() ? any_state.shape[0] : 0;
  p.state_indices = static_cast<const std::int32_t*>(a.state_indices.data);
  p.state_layout = a.state_layout;
  p.out = static_cast<bf16*>(a.out.data);
  p.out_strides = token_strides(a.out);
  p.chunk_states = a.chunk_states.data;
  p.chunk_dtype = a.chunk_states.dtype;
  p.chunk_row_stride = a.chunk_states.strides[0];
  p.chunk_rows = a.chunk_states.shape[0];
  p.track_chunk_idx = static_cast<const std::int32_t*>(a.track_chunk_idx.data);
  p.tracked_states = static_cast<float*>(a.tracked_states.data);
  p.tracked_row_stride = a.tracked_states.strides[0];
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(kD)));
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.qk_l2norm = a.qk_l2norm;
  p.gate_in_kernel = a.gate_in_kernel;
  p.beta_sigmoid = a.beta_sigmoid;
  p.allow_neg_eigval = a.allow_neg_eigval;
  p.device = a.q.device;
  if (contract.reads_values(p.device)) check_host_values(contract, p);
  return p;
}

}  // namespace k3
