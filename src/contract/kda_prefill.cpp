// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_prefill.h"

#include <fmt/format.h>

#include <cmath>

#include "contract/checks.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;
constexpr std::size_t kVectorBytes = 16;

struct Sizes {
  std::int64_t B, T, H, HV, N;
};

void check_types(const Contract& contract, const KdaPrefillArgs& a) {
  const auto f32_or_bf16 = {DType::kF32, DType::kBF16};
  contract.present("q", a.q);
  contract.present("k", a.k);
  contract.present("v", a.v);
  contract.present("g", a.g);
  contract.present("beta", a.beta);
  contract.present("out", a.out);
  contract.tensor("q", a.q, {DType::kBF16}, {4});
  contract.tensor("k", a.k, {DType::kBF16}, {4});
  contract.tensor("v", a.v, {DType::kBF16}, {4});
  contract.tensor("g", a.g, f32_or_bf16, {3, 4});
  contract.tensor("beta", a.beta, f32_or_bf16, {3});
  contract.tensor("A_log", a.A_log, {DType::kF32}, {1});
  contract.tensor("dt_bias", a.dt_bias, {DType::kF32}, {1, 2});
  contract.tensor("cu_seqlens", a.cu_seqlens, {DType::kI32, DType::kI64}, {1});
  contract.tensor("initial_state", a.initial_state, f32_or_bf16, {4});
  contract.tensor("state_indices", a.state_indices, {DType::kI32}, {1});
  contract.tensor("track_chunk_idx", a.track_chunk_idx, {DType::kI32}, {1});
  contract.tensor("out", a.out, {DType::kBF16}, {4});
  contract.tensor("final_state", a.final_state, f32_or_bf16, {4});
  contract.tensor("chunk_states", a.chunk_states, f32_or_bf16, {4});
  contract.tensor("tracked_states", a.tracked_states, {DType::kF32}, {4});
}

Sizes check_sizes(const Contract& contract, const KdaPrefillArgs& a) {
  Sizes s{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.v.shape[2], a.q.shape[0]};
  contract.shape("q", a.q, {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"128", kD}});
  contract.shape("k", a.k, {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"128", kD}});
  contract.shape("v", a.v, {{"B", s.B}, {"T", s.T}, {"HV", s.HV}, {"128", kD}});
  contract.require(s.H >= 1, "q", "must have at least one head", describe(a.q));
  contract.require(s.HV >= 1 && s.HV % s.H == 0, "v",
                   "must have a multiple of q's heads (HV % H == 0)", describe(a.v));
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
    contract.require(s.B == 1, "q", "must have B = 1 where cu_seqlens is given", describe(a.q));
    contract.require(a.cu_seqlens.shape[0] >= 2, "cu_seqlens", "must have N + 1 >= 2 entries",
                     describe(a.cu_seqlens));
    s.N = a.cu_seqlens.shape[0] - 1;
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
                     "must come with a pool (initial_state or final_state)", "no pool");
  const auto rows_of = [&](const ConstTensorView& t) { return pooled ? t.shape[0] : s.N; };
  check_state(contract, "initial_state", a.initial_state, rows_of(a.initial_state), s.HV);
  check_state(contract, "final_state", final_state, rows_of(final_state), s.HV);
  if (a.initial_state.defined() && final_state.defined()) {
    contract.require(final_state.dtype == a.initial_state.dtype, "final_state",
                     "must have the dtype of initial_state", name_of(final_state.dtype));
    contract.require(final_state.shape[0] == a.initial_state.shape[0], "final_state",
                     "must have the rows of initial_state", describe(final_state));
  }
  contract.shape("state_indices", a.state_indices, {{"N", s.N}});
  contract.dense_from("state_indices", a.state_indices, 0);
  contract.shape("track_chunk_idx", a.track_chunk_idx, {{"N", s.N}});
  contract.dense_from("track_chunk_idx", a.track_chunk_idx, 0);
  contract.require(a.track_chunk_idx.defined() == a.tracked_states.defined(), "track_chunk_idx",
                   "must be given exactly when tracked_states is", describe(a.track_chunk_idx));
  check_state(contract, "chunk_states", a.chunk_states, a.chunk_states.shape[0], s.HV);
  check_state(contract, "tracked_states", a.tracked_states, s.N, s.HV);
}

void check_layouts(const Contract& contract, const KdaPrefillArgs& a) {
  for (const NamedTensor& t : std::initializer_list<NamedTensor>{
           {"q", a.q}, {"k", a.k}, {"v", a.v}, {"g", a.g}, {"out", a.out}}) {
    contract.unit_last_stride(t.name, t.tensor);
    contract.aligned(t.name, t.tensor, kVectorBytes);
  }
  contract.unit_last_stride("beta", a.beta);
  contract.dense_from("A_log", a.A_log, 0);
  contract.dense_from("dt_bias", a.dt_bias, 0);
  contract.dense_from("cu_seqlens", a.cu_seqlens, 0);
  for (const NamedTensor& t :
       std::initializer_list<NamedTensor>{{"out", a.out},
                                          {"final_state", a.final_state},
                                          {"chunk_states", a.chunk_states},
                                          {"tracked_states", a.tracked_states}})
    contract.no_self_overlap(t.name, t.tensor);

  const ConstTensorView& first = a.initial_state;
  const bool in_place = first.defined() && first.data == a.final_state.data &&
                        (first.shape[0] < 2 || first.strides[0] == a.final_state.strides[0]);
  no_overlaps(contract,
              {{"out", a.out},
               {"final_state", a.final_state},
               {"chunk_states", a.chunk_states},
               {"tracked_states", a.tracked_states}},
              {{"q", a.q},
               {"k", a.k},
               {"v", a.v},
               {"g", a.g},
               {"beta", a.beta},
               {"A_log", a.A_log},
               {"dt_bias", a.dt_bias},
               {"cu_seqlens", a.cu_seqlens},
               {"state_indices", a.state_indices},
               {"track_chunk_idx", a.track_chunk_idx},
               {"initial_state", in_place ? ConstTensorView() : first}});
}

void check_scalars(const Contract& contract, const KdaPrefillArgs& a) {
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(!a.gate_in_kernel || a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where gate_in_kernel is set and lower_bound is absent",
                   "an absent tensor");
  contract.require(!a.allow_neg_eigval || a.beta_sigmoid, "allow_neg_eigval", "needs beta_sigmoid",
                   "beta_sigmoid = false");
}

void check_host_values(const Contract& contract, const KdaPrefillProblem& p) {
  if (p.packed) {
    contract.require(p.seq_begin(0) == 0, "cu_seqlens", "must start at 0",
                     fmt::format("cu_seqlens[0] = {}", p.seq_begin(0)));
    for (int n = 0; n < p.N; ++n)
      if (p.seq_begin(n + 1) < p.seq_begin(n))
        contract.fail(
            "cu_seqlens", "must never decrease",
            fmt::format("cu_seqlens[{}] = {} after {}", n + 1, p.seq_begin(n + 1), p.seq_begin(n)));
    contract.require(p.seq_begin(p.N) == p.T, "cu_seqlens", "must end at the number of tokens",
                     fmt::format("cu_seqlens[{}] = {}, T = {}", p.N, p.seq_begin(p.N), p.T));
  }
  std::int64_t chunk_rows = 0;
  for (int n = 0; n < p.N; ++n) {
    const std::int64_t length = p.seq_length(n);
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
                     fmt::format("{} rows, {} chunks", p.chunk_rows, chunk_rows));
}

TokenStrides token_strides(const ConstTensorView& t) {
  return {t.strides[0], t.strides[1], t.rank == 4 ? t.strides[2] : kD};
}

}  // namespace

KdaPrefillProblem check(const KdaPrefillArgs& a) {
  const Contract contract("kda_prefill");
  check_types(contract, a);
  const Sizes s = check_sizes(contract, a);
  for (const NamedTensor& t :
       std::initializer_list<NamedTensor>{{"k", a.k},
                                          {"v", a.v},
                                          {"g", a.g},
                                          {"beta", a.beta},
                                          {"A_log", a.A_log},
                                          {"dt_bias", a.dt_bias},
                                          {"cu_seqlens", a.cu_seqlens},
                                          {"initial_state", a.initial_state},
                                          {"state_indices", a.state_indices},
                                          {"track_chunk_idx", a.track_chunk_idx},
                                          {"out", a.out},
                                          {"final_state", a.final_state},
                                          {"chunk_states", a.chunk_states},
                                          {"tracked_states", a.tracked_states}})
    contract.same_device(t.name, t.tensor, a.q.device);
  check_states(contract, a, s);
  check_layouts(contract, a);
  check_scalars(contract, a);

  KdaPrefillProblem p;
  p.N = contract.small(a.cu_seqlens.defined() ? "cu_seqlens" : "q", "N", s.N);
  p.H = contract.small("q", "H", s.H);
  p.HV = contract.small("v", "HV", s.HV);
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
  if (p.device.kind == DeviceKind::kCpu) check_host_values(contract, p);
  return p;
}

}  // namespace k3
