// SPDX-License-Identifier: Apache-2.0

// KDA prefill in chunks, one task per (sequence, value head). docs/kda_prefill_cpu.md explains.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kda_prefill.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/kda_prefill.h"
#include "cpu/kda_prefill_chunk-inl.h"
#include "cpu/kda_prefill_factors-inl.h"
#include "cpu/kda_prefill_scratch.h"
#include "cpu/kda_prefill_state-inl.h"
#include "cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace prefill {

/// The states of one task: what is read before the first token, and written on the way.
class TaskStates {
 public:
  TaskStates(const KdaPrefillProblem& p, const PrefillTask& task, float* panels)
      : p_(p),
        task_(task),
        panels_(panels),
        slot_(p.state_indices != nullptr ? p.state_indices[task.seq] : task.seq),
        chunk_row_(task.chunk_row),
        tracked_(p.tracked_states != nullptr ? p.track_chunk_idx[task.seq] : -1) {}

  void load_initial() const {
    if (p_.initial_state != nullptr && slot_ >= 0) {
      load_state(p_.initial_state, p_.state_dtype, slot_ * p_.initial_slot_stride + head_offset(),
                 p_.state_layout, task_.v0, task_.v1, panels_);
      return;
    }
    for (int at = task_.v0 * kD; at < task_.v1 * kD; at += kLanes)
      hn::Store(hn::Zero(D()), D(), panels_ + at);
  }

  /// The state after `token` tokens, a multiple of kKdaChunkTokens.
  void store_border(std::int64_t token, std::int64_t length) const {
    const std::int64_t index = token / kKdaChunkTokens;
    if (p_.chunk_states != nullptr && token < length)
      store(p_.chunk_states, p_.chunk_dtype, (chunk_row_ + index) * p_.chunk_row_stride);
    if (index == tracked_) store(p_.tracked_states, DType::kF32, task_.seq * p_.tracked_row_stride);
  }

  void store_final() const {
    if (p_.final_state != nullptr && slot_ >= 0)
      store(p_.final_state, p_.state_dtype, slot_ * p_.final_slot_stride);
  }

 private:
  [[nodiscard]] std::int64_t head_offset() const { return std::int64_t{task_.head} * kD * kD; }

  void store(void* to, DType dtype, std::int64_t row_offset) const {
    store_state(panels_, task_.v0, task_.v1, p_.state_layout, to, dtype,
                row_offset + head_offset());
  }

  const KdaPrefillProblem& p_;
  const PrefillTask& task_;
  float* panels_;
  std::int64_t slot_;
  std::int64_t chunk_row_;
  std::int64_t tracked_;
};

}  // namespace prefill

void kda_prefill_task(const KdaPrefillProblem& p, const PrefillTask& task, PrefillScratch& s) {
  using namespace prefill;
  const std::int64_t begin = p.begin(task.seq);
  const std::int64_t length = p.length(task.seq);
  const std::int64_t batch = p.batch_row(task.seq);
  const auto first_token = [&](const TokenStrides& strides) {
    return batch * strides.batch + begin * strides.token + task.head * strides.head;
  };
  const bf16* v = p.v + first_token(p.v_strides);
  bf16* out = p.out + first_token(p.out_strides);
  const TaskStates states(p, task, s.state);

  states.load_initial();
  for (std::int64_t t = 0; t < length; t += kC) {
    if (t % kKdaChunkTokens == 0) states.store_border(t, length);
    const int rows = static_cast<int>(std::min<std::int64_t>(kC, length - t));
    chunk_factors(p, batch, begin + t, task.head, rows, s);
    for (int column = task.v0; column < task.v1; column += kPanel)
      advance_panel(v + t * p.v_strides.token + column, p.v_strides.token,
                    out + t * p.out_strides.token + column, p.out_strides.token, rows, s,
                    s.state + column * kD);
  }
  if (length % kKdaChunkTokens == 0) states.store_border(length, length);
  states.store_final();
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(kda_prefill_task);

/// Microseconds of one thread, roughly: a token of a head, and a head's state in and out.
constexpr double kTokenTime = 1.5;
constexpr double kStateTime = 5.0;

/// Parts of V per (sequence, head). Each part computes the chunk's factors anew, so V is split only
/// where threads would idle.
int value_parts(std::int64_t heads, int threads) {
  int parts = 1;
  while (parts < kPrefillMaxParts && heads * parts < threads) parts *= 2;
  return parts;
}

/// Writes each sequence's first row of chunk_states.
void index_chunk_rows(const KdaPrefillProblem& p, std::int64_t* first_rows) {
  std::int64_t row = 0;
  for (int n = 0; n < p.N; ++n) {
    first_rows[n] = row;
    row += (p.length(n) + kKdaChunkTokens - 1) / kKdaChunkTokens;
  }
}

}  // namespace

/// A PrefillScratch per thread, then the first row of chunk_states of each sequence.
std::size_t kda_prefill_workspace_size(const KdaPrefillProblem& problem, const Target& target) {
  const std::size_t rows = problem.chunk_rows > 0 ? static_cast<std::size_t>(problem.N) : 0;
  return sizeof(PrefillScratch) * static_cast<std::size_t>(target.threads) +
         sizeof(std::int64_t) * rows;
}

void kda_prefill(const KdaPrefillProblem& problem, const Target& target) {
  if (problem.writes_nothing()) return;
  const std::int64_t heads = std::int64_t{problem.N} * problem.HV;
  const std::int64_t tokens = problem.packed ? problem.T : problem.N * problem.T;
  const int threads =
      useful_threads(target.threads, kTokenTime * static_cast<double>(tokens) * problem.HV +
                                         kStateTime * static_cast<double>(heads));
  const int parts = value_parts(heads, threads);
  const int columns = kKdaHeadDim / parts;
  auto* scratch = static_cast<PrefillScratch*>(target.workspace.data);
  std::int64_t* const first_chunk_rows =
      problem.chunk_rows > 0 ? reinterpret_cast<std::int64_t*>(scratch + target.threads) : nullptr;
  if (first_chunk_rows != nullptr) index_chunk_rows(problem, first_chunk_rows);
  const auto run_task = HWY_DYNAMIC_DISPATCH(kda_prefill_task);
  parallel_for(heads * parts, threads, [&](std::int64_t index, int thread) {
    const std::int64_t head = index / parts;
    const int v0 = static_cast<int>(index % parts) * columns;
    const auto seq = static_cast<int>(head / problem.HV);
    const PrefillTask task{.seq = seq,
                           .head = static_cast<int>(head % problem.HV),
                           .v0 = v0,
                           .v1 = v0 + columns,
                           .chunk_row = first_chunk_rows != nullptr ? first_chunk_rows[seq] : 0};
    run_task(problem, task, scratch[thread]);
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
