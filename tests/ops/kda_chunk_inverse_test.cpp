// SPDX-License-Identifier: Apache-2.0
// The contract of kda_chunk_inverse, and what must hold between calls.
#include "k3/ops/kda_chunk_inverse.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "harness/ops/kda_pieces.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_chunk_inverse";
constexpr std::int64_t kC = 64;

struct Options {
  std::int64_t M = 3;
  DType L = DType::kF32;
  DType out = DType::kF32;
  double beta = 0.9;
  ChunkKeys keys = {};
};

Bundle bundle_of(const Options& o) {
  Random random(1);
  Bundle b;
  b.tensors["beta"] = constant(DType::kF32, {o.M, kC}, o.beta);
  b.tensors["L"] = Tensor::dense(o.L, {o.M, kC, kC});
  set_chunk_matrices(random, o.keys, b.tensors.at("beta"), b.tensors["L"]);
  b.tensors["out"] = poisoned(o.out, {o.M, kC, kC});
  return b;
}
Bundle valid_bundle() { return bundle_of({}); }

class KdaChunkInverseContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaChunkInverseContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kMatrices = "must hold matrices of 64 x 64";

INSTANTIATE_TEST_SUITE_P(
    All, KdaChunkInverseContract,
    testing::Values(
        Violation{"L_i32", "L", "must be bf16 or f32", with_dtype("L", DType::kI32)},
        Violation{"L_rank_2", "L", "must have rank 3 or 4 or 5", with_rank("L", 2)},
        Violation{"L_63_rows", "L", kMatrices, with_size("L", 1, 63)},
        Violation{"L_65_columns", "L", kMatrices, with_size("L", 2, 65)},
        Violation{"beta_other_matrices", "beta", "must have shape [M, 64]",
                  with_size("beta", 0, 2)},
        Violation{"beta_short", "beta", "must have shape [M, 64]", with_size("beta", 1, 63)},
        Violation{"beta_rank_3", "beta", "must have shape [M, 64]",
                  [](Call& c) {
                    TensorView& beta = c.tensors.at("beta");
                    beta = TensorView(beta.data, beta.dtype, {1, 3, 64});
                  }},
        Violation{"out_other_matrices", "out", "must have shape [M, 64, 64]",
                  with_size("out", 0, 2)},
        Violation{"out_63_rows", "out", "must have shape [M, 64, 64]", with_size("out", 1, 63)},
        Violation{"out_rank_4", "out", "must have shape [M, 64, 64]",
                  [](Call& c) {
                    TensorView& out = c.tensors.at("out");
                    out = TensorView(out.data, out.dtype, {1, 3, 64, 64});
                  }},
        Violation{"L_strided", "L", kUnitStride, with_stride("L", 2, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 2, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 1, 63)},
        Violation{"out_matrices_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 100)},
        Violation{"L_more_matrices_than_an_int", "L", "must fit 31 bits",
                  [](Call& c) {
                    for (const char* name : {"L", "out", "beta"}) {
                      c.tensors.at(name).shape[0] = std::int64_t{1} << 31;
                      c.tensors.at(name).strides[0] = 0;
                    }
                  }},
        Violation{"out_is_L_with_other_rows", "out", "must not overlap L",
                  [](Call& c) {
                    aliasing("out", "L")(c);
                    for (const char* name : {"L", "out", "beta"}) with_size(name, 0, 1)(c);
                    with_stride("out", 1, 80)(c);
                  }},
        Violation{"out_is_L_one_matrix_on", "out", "must not overlap L",
                  [](Call& c) {
                    aliasing("out", "L")(c);
                    shifted("out", kC * kC * 4)(c);
                    for (const char* name : {"L", "out", "beta"}) with_size(name, 0, 2)(c);
                  }},
        Violation{"out_is_L_in_bf16", "out", "must not overlap L",
                  [](Call& c) {
                    aliasing("out", "L")(c);
                    with_dtype("out", DType::kBF16)(c);
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaChunkInverseContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp), valid_bundle(),
                                                                 {{"out", "L"}})),
                         violation_name);

/// The valid call as one of rank 4, but for `out`.
TEST(KdaChunkInverse, LeadingAxesAreNamedInErrors) {
  Bundle bundle = valid_bundle();
  Call call = host_call(*find_driver(kOp), bundle);
  const auto reshape = [&](const char* name, std::initializer_list<std::int64_t> shape) {
    TensorView& view = call.tensors.at(name);
    view = TensorView(view.data, view.dtype, shape);
  };
  reshape("L", {1, 3, kC, kC});
  reshape("beta", {1, 3, kC});
  reshape("out", {1, 2, kC, kC});
  expect_refused([&] { find_driver(kOp)->run(call, {}); }, "out",
                 "must have shape [NT, M, 64, 64] = [1, 3, 64, 64]");
}

TEST(KdaChunkInverse, OutMayBeL) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Options o = {.L = dtype, .out = dtype};
    const Bundle apart = run_cpu(kOp, bundle_of(o));
    Bundle bundle = bundle_of(o);
    Call call = host_call(*find_driver(kOp), bundle);
    aliasing("out", "L")(call);
    run_call(*find_driver(kOp), call);
    EXPECT_TRUE(same_bits(apart.tensors.at("out"), bundle.tensors.at("L"))) << name_of(dtype);
  }
}

TEST(KdaChunkInverse, BitsDoNotDependOnThreadsOrOnTheBatch) {
  const Bundle input = bundle_of({.M = 50});
  const Tensor one = run_cpu(kOp, input, 1).tensors.at("out");
  for (int threads : {2, 3, 7})
    EXPECT_TRUE(same_bits(one, run_cpu(kOp, input, threads).tensors.at("out"))) << threads;
  Bundle last;
  for (const auto& [name, tensor] : input.tensors) last.tensors[name] = slice(tensor, 0, 49, 50);
  EXPECT_TRUE(same_bits(slice(one, 0, 49, 50), run_cpu(kOp, last).tensors.at("out")));
}

/// Without any reference: a solution X of (I + L) X = I by substitution in fp32 leaves a residual
/// of at most gamma |I + L| |X| in each element, gamma = 64 u / (1 - 64 u), however large X grows.
TEST(KdaChunkInverse, ResidualIsThatOfASubstitution) {
  constexpr double kGamma = kC * 0x1p-24 / (1.0 - kC * 0x1p-24);
  for (const Keys keys : {Keys::kRandom, Keys::kPositive, Keys::kNearEqual, Keys::kEqual})
    for (const double beta : {0.5, 0.99, 2.0})
      for (const double norm : {1.0, 1.1}) {
        Bundle b = bundle_of({.beta = beta, .keys = {.keys = keys, .norm = norm, .log_gate = 0.0}});
        b.tensors.erase("beta");
        const Tensor X = run_cpu(kOp, b).tensors.at("out");
        const Tensor& L = b.tensors.at("L");
        double worst = 0.0;
        for (std::int64_t m = 0; m < 3; ++m)
          for (std::int64_t i = 0; i < kC; ++i)
            for (std::int64_t c = 0; c < kC; ++c) {
              const auto x = [&](std::int64_t row) { return X.get((m * kC + row) * kC + c); };
              double residual = x(i) - (i == c ? 1.0 : 0.0);
              double size = std::fabs(x(i));
              for (std::int64_t j = 0; j < i; ++j) {
                const double term = L.get((m * kC + i) * kC + j) * x(j);
                residual += term;
                size += std::fabs(term);
              }
              if (size == 0.0)
                ASSERT_EQ(residual, 0.0);
              else
                worst = std::max(worst, std::fabs(residual) / size);
            }
        EXPECT_LE(worst, kGamma) << static_cast<int>(keys) << " beta " << beta << " norm " << norm;
      }
}

TEST(KdaChunkInverse, TailRowsAreUnitRowsTimesBeta) {
  constexpr std::int64_t kRows = 23;
  Bundle b = valid_bundle();
  Tensor& L = b.tensors.at("L");
  for (std::int64_t at = 0; at < L.numel(); ++at)
    if (at / kC % kC >= kRows && at % kC < at / kC % kC) L.set(at, 0.0);
  Tensor& beta = b.tensors.at("beta");
  for (std::int64_t at = 0; at < beta.numel(); ++at)
    if (at % kC >= kRows) beta.set(at, 0.0);
  const Bundle with_zeros = run_cpu(kOp, b);
  b.tensors.erase("beta");
  const Bundle without = run_cpu(kOp, b);
  for (std::int64_t at = 0; at < L.numel(); ++at) {
    const std::int64_t row = at / kC % kC;
    if (row < kRows) continue;
    ASSERT_EQ(with_zeros.tensors.at("out").get(at), 0.0) << at;
    ASSERT_EQ(without.tensors.at("out").get(at), at % kC == row ? 1.0 : 0.0) << at;
  }
}

TEST(KdaChunkInverse, ANaNStaysBelowTheDiagonalOfItsMatrix) {
  const Bundle clean = run_cpu(kOp, valid_bundle());
  Bundle b = valid_bundle();
  // Between two rows that share vectors of columns, so that it meets the zeros above the diagonal.
  b.tensors.at("L").set(kC * kC + 20 * kC + 17, std::nan(""));
  const Tensor out = run_cpu(kOp, b).tensors.at("out");
  for (std::int64_t m : {0, 2})
    EXPECT_TRUE(same_bits(slice(clean.tensors.at("out"), 0, m, m + 1), slice(out, 0, m, m + 1)));
  EXPECT_TRUE(std::isnan(out.get(kC * kC + 20 * kC + 17)));
  for (std::int64_t i = 0; i < kC; ++i)
    for (std::int64_t c = i + 1; c < kC; ++c) ASSERT_EQ(out.get(kC * kC + i * kC + c), 0.0);
}

TEST(KdaChunkInverse, StridesPastTwoToThe31Elements) {
  constexpr std::int64_t kMatrixPitch = 2'200'000'001;
  constexpr std::int64_t kRowPitch = 33'000'000;  // row 63 lies close to 2^31 elements in
  constexpr std::int64_t kFloat = sizeof(float);
  const Bundle dense = valid_bundle();
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer L((2 * kMatrixPitch + 63 * kRowPitch + kC) * kFloat);
  const SparseBuffer out((2 * kMatrixPitch + 63 * kRowPitch + kC) * kFloat);
  if (!L.valid() || !out.valid()) GTEST_SKIP() << "no address space of 52 GB";
  constexpr std::size_t kRow = kC * kFloat;
  const auto at = [&](const SparseBuffer& buffer, std::int64_t m, std::int64_t i) {
    return buffer.at((m * kMatrixPitch + i * kRowPitch) * kFloat);
  };
  const auto dense_row = [](const Tensor& t, std::int64_t m, std::int64_t i) {
    return t.storage() + static_cast<std::size_t>(m * kC + i) * kRow;
  };
  for (std::int64_t m = 0; m < 3; ++m)
    for (std::int64_t i = 0; i < kC; ++i)
      std::memcpy(at(L, m, i), dense_row(dense.tensors.at("L"), m, i), kRow);
  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"L", &L}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kMatrixPitch;
    call.tensors.at(name).strides[1] = kRowPitch;
  }
  run_call(*find_driver(kOp), call);
  for (std::int64_t m = 0; m < 3; ++m)
    for (std::int64_t i = 0; i < kC; ++i)
      ASSERT_EQ(std::memcmp(at(out, m, i), dense_row(reference.tensors.at("out"), m, i), kRow), 0)
          << m << " row " << i;
}

}  // namespace
}  // namespace k3::harness
