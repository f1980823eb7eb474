// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_chunk_inverse.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_pieces.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_chunk_inverse";
constexpr const char* kScalars[] = {"output_dtype"};
constexpr std::int64_t kC = kKdaChunkTokens;

KdaChunkInverseArgs to_args(const Call& call) {
  KdaChunkInverseArgs args;
  set_tensors(kda_chunk_inverse_args(), call, args);
  return args;
}

/// An inverse in L's dtype, or that of `output_dtype`.
void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("L")) return;
  const Tensor& L = bundle.tensors.at("L");
  bundle.tensors["out"] = poisoned(scalar_dtype(kOp, bundle, "output_dtype", L.dtype()), L.shape());
}

void run(const Call& call, const ExecContext& ctx) { kda_chunk_inverse(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_chunk_inverse(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_chunk_inverse_workspace_size(to_args(call), ctx);
}

/// The part of L below its diagonal, beta and the whole of out; a triangular inverse takes n^3 / 3
/// operations.
Cost cost(const Bundle& bundle) {
  const Tensor& out = bundle.tensors.at("out");
  const auto matrices = static_cast<double>(out.numel() / (kC * kC));
  const auto element_bytes = [](const Tensor& t) {
    return static_cast<double>(size_of(t.dtype()));
  };
  double bytes =
      kC * (kC - 1) / 2 * element_bytes(bundle.tensors.at("L")) + kC * kC * element_bytes(out);
  const auto beta = bundle.tensors.find("beta");
  if (beta != bundle.tensors.end()) bytes += kC * element_bytes(beta->second);
  return {.bytes = bytes * matrices, .flops = kC * kC * kC / 3.0 * matrices};
}

constexpr std::int64_t kDistinct = 8;  ///< matrices of a bench; a divisor of their number

/// The chunks of T tokens and H heads, as a layer makes them: L f32, beta f32, out bf16.
BenchShape bench_shape(std::int64_t T, std::int64_t H) {
  return {{{"T", T}, {"H", H}}, [=] {
            const std::int64_t M = T / kC * H;
            Bundle b;
            Random random(7);
            const Tensor beta = uniform(random, DType::kF32, {kDistinct, kC}, 0.0, 1.0);
            Tensor L = Tensor::dense(DType::kF32, {kDistinct, kC, kC});
            set_chunk_matrices(random, {}, beta, L);
            b.tensors["L"] = repeated(L, {M, kC, kC});
            b.tensors["beta"] = repeated(beta, {M, kC});
            b.tensors["out"] = poisoned(DType::kBF16, {M, kC, kC});
            return b;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) { return chunk_bench_shapes(level, bench_shape); }

}  // namespace

const Driver& kda_chunk_inverse_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_chunk_inverse_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_chunk_inverse_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
