// SPDX-License-Identifier: Apache-2.0
#include "cuda/mla_cache_write_concat_q/mla_cache_write_concat_q.h"

#include <algorithm>

#include "cuda/common/alignment.h"
#include "cuda/common/early_ctas.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/mla_cache_write_concat_q/kernel.cuh"

namespace k3::cuda {
namespace {

using Problem = MlaCacheWriteConcatQProblem;

/// The tokens from `token` on.
MlaCacheWriteParams params_from(const Problem& problem, std::int64_t token) {
  const auto out_bytes = static_cast<std::int64_t>(problem.out_bytes());
  MlaCacheWriteParams p;
  p.q_nope = problem.q_nope + token * problem.q_nope_token_stride;
  p.q_rope = problem.q_rope + token * problem.q_rope_token_stride;
  p.k_nope = problem.k_nope + token * problem.k_nope_stride;
  p.k_rope = problem.k_rope + token * problem.k_rope_stride;
  p.q_out = static_cast<char*>(problem.q_out) + token * problem.q_out_token_stride * out_bytes;
  p.kv_buffer = problem.kv_buffer;
  p.q_nope_token_stride = problem.q_nope_token_stride;
  p.q_nope_head_stride = problem.q_nope_head_stride;
  p.q_rope_token_stride = problem.q_rope_token_stride;
  p.q_rope_head_stride = problem.q_rope_head_stride;
  p.k_nope_stride = problem.k_nope_stride;
  p.k_rope_stride = problem.k_rope_stride;
  p.q_out_token_stride = problem.q_out_token_stride;
  p.q_out_head_stride = problem.q_out_head_stride;
  p.kv_stride = problem.kv_stride;
  p.slots = problem.slots.from(token);
  p.num_rows = problem.num_rows;
  p.dcp_world_size = problem.dcp_world_size;
  p.dcp_rank = problem.dcp_rank;
  p.null_index = problem.null_index;
  return p;
}

/// Problems past 2^31 vectors take several launches.
template <int kVec, bool kFp8>
void run(const Problem& problem, const Target& target) {
  constexpr std::int64_t kMaxVectors = (std::int64_t{1} << 31) - 1;
  const std::int64_t row_vectors = (std::int64_t{problem.nope} + problem.rope) / kVec;
  const std::int64_t token_vectors = (std::int64_t{problem.H} + 1) * row_vectors;
  if (row_vectors == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const std::int64_t max_tokens = kMaxVectors / token_vectors;
  for (std::int64_t token = 0; token < problem.B; token += max_tokens) {
    const std::int64_t tokens = std::min(max_tokens, problem.B - token);
    MlaCacheWriteParams p = params_from(problem, token);
    p.heads = static_cast<std::uint32_t>(problem.H);
    p.nope_vectors = static_cast<std::uint32_t>(problem.nope / kVec);
    p.row_vectors = static_cast<std::uint32_t>(row_vectors);
    p.num_vectors = static_cast<std::uint32_t>(tokens * token_vectors);
    p.early_ctas = early_ctas(target, kMlaCacheWriteThreads);
    p.by_row_vectors = Divider(p.row_vectors);
    p.by_token_rows = Divider(p.heads + 1);
    LaunchConfig config = launch_config(target);
    config.grid = dim3((p.num_vectors - 1) / kMlaCacheWriteThreads + 1);
    config.block = dim3(kMlaCacheWriteThreads);
    K3_CUDA_CHECK(launch(mla_cache_write_concat_q_kernel<kVec, kFp8>, config, p));
  }
}

}  // namespace

const char* mla_cache_write_concat_q_vector_refusal(const Problem& p, const Target&) {
  const DType in = DType::kBF16;
  const DType out = p.fp8 ? DType::kU8 : DType::kBF16;
  if (p.nope * p.out_bytes() % 16 != 0) return "nope is not a multiple of 8 (fp8: 16)";
  if (p.rope * p.out_bytes() % 16 != 0) return "rope is not a multiple of 8 (fp8: 16)";
  if (!rows_aligned(p.k_nope, in, 16, p.k_nope_stride))
    return "rows of k_nope not aligned to 16 bytes";
  if (!rows_aligned(p.k_rope, in, 16, p.k_rope_stride))
    return "rows of k_rope not aligned to 16 bytes";
  if (!rows_aligned(p.q_nope, in, 16, p.q_nope_token_stride, p.q_nope_head_stride))
    return "rows of q_nope not aligned to 16 bytes";
  if (!rows_aligned(p.q_rope, in, 16, p.q_rope_token_stride, p.q_rope_head_stride))
    return "rows of q_rope not aligned to 16 bytes";
  if (!rows_aligned(p.kv_buffer, out, 16, p.kv_stride))
    return "rows of kv_buffer not aligned to 16 bytes";
  if (!rows_aligned(p.q_out, out, 16, p.q_out_token_stride, p.q_out_head_stride))
    return "rows of q_out not aligned to 16 bytes";
  return nullptr;
}

void mla_cache_write_concat_q_vector(const Problem& problem, const Target& target) {
  return problem.fp8 ? run<16, true>(problem, target) : run<8, false>(problem, target);
}

void mla_cache_write_concat_q_scalar(const Problem& problem, const Target& target) {
  return problem.fp8 ? run<1, true>(problem, target) : run<1, false>(problem, target);
}

}  // namespace k3::cuda
