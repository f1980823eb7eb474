// SPDX-License-Identifier: Apache-2.0
// The judge must find what it is there to find: an op with faults on demand, doubling a vector.
#include "harness/runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/compare.h"
#include "harness/inputs.h"
#include "harness/limits.h"
#include "k3/error.h"

namespace k3::harness {
namespace {

enum class Fault {
  kNone,
  kWrongValue,
  kWritesInput,
  kWritesUntouchedRow,
  kWritesGap,
  kWritesPastEnd,
  kOtherBitsNextTime,
  kOverrunsWorkspace,
  kRefuses,
  kThrows,
};
Fault fault = Fault::kNone;

constexpr std::size_t kWorkspaceBytes = 100;
constexpr std::int64_t kRows = 3;
constexpr std::int64_t kPitch = 8;  // of out: rows of 4 elements, gaps of 4, and one row more

void double_rows(const Call& call) {
  const TensorView in = call.tensor("in");
  const TensorView out = call.tensor("out");
  const auto* x = static_cast<const float*>(in.data);
  auto* y = static_cast<float*>(out.data);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < 4; ++i) y[row * out.strides[0] + i] = 2.0F * x[row * 4 + i];
}

void faulty_run(const Call& call, const ExecContext& ctx) {
  static int runs = 0;
  if (fault == Fault::kRefuses) throw UnsupportedError("not today");
  if (fault == Fault::kThrows) throw Error("broken");
  double_rows(call);
  auto* y = static_cast<float*>(call.tensor("out").data);
  if (fault == Fault::kWrongValue) y[1] += 1.0F;
  if (fault == Fault::kWritesInput) static_cast<float*>(call.tensor("in").data)[0] = 0.0F;
  if (fault == Fault::kWritesUntouchedRow) y[kRows * kPitch + 1] += 1e-7F;
  if (fault == Fault::kWritesGap) y[5] = 0.0F;
  if (fault == Fault::kWritesPastEnd) y[kRows * kPitch + 4] = 0.0F;
  if (fault == Fault::kOtherBitsNextTime)
    y[0] = std::nextafter(y[0], runs++ % 2 == 0 ? 99.F : -99.F);
  if (fault == Fault::kOverrunsWorkspace)
    static_cast<std::byte*>(ctx.workspace.data)[kWorkspaceBytes] = std::byte{0};
}

Bundle make_bundle() {
  Random random(1);
  Bundle bundle;
  bundle.tensors["in"] = normal(random, DType::kF32, {kRows, 4});
  bundle.tensors["out"] = Tensor::strided(DType::kF32, {kRows + 1, 4}, {kPitch, 1});
  return bundle;
}

constexpr ArgSpec kArgs[] = {{"in", Role::kInput}, {"out", Role::kOutput}};

const Driver kDriver = {
    "double_rows",
    kArgs,
    {},
    [](Bundle&, std::span<const std::string>) {},
    faulty_run,
    [](const Call&, const ExecContext&) { return kWorkspaceBytes; },
    double_rows,
    [] { return std::vector<Case>(); },
    [](Level) { return std::vector<BenchShape>(); },
    [](const Bundle&) { return Cost{.bytes = 96, .flops = 12}; },
};

CaseResult check_with(Fault which, Tolerance tolerance = {.err_ratio = 1e-6}) {
  fault = which;
  CaseResult result = check_case(kDriver, {"case", true, make_bundle, {{"out", tolerance}}}, {});
  fault = Fault::kNone;
  return result;
}

TEST(CheckCase, PassesASoundOp) {
  const CaseResult result = check_with(Fault::kNone);
  EXPECT_TRUE(result.passed) << result.why;
  ASSERT_EQ(result.comparisons.size(), 1U);
  EXPECT_EQ(result.comparisons[0].err_ratio, 0.0);
}

TEST(CheckCase, FindsEachFault) {
  for (const auto& [which, words] : {std::pair{Fault::kWrongValue, "err_ratio"},
                                     {Fault::kWritesInput, "the input in was written"},
                                     {Fault::kWritesUntouchedRow, "out[3] must stay as it was"},
                                     {Fault::kWritesGap, "a gap of out was written"},
                                     {Fault::kWritesPastEnd, "past the end of out"},
                                     {Fault::kOtherBitsNextTime, "other bits"},
                                     {Fault::kOverrunsWorkspace, "behind a workspace"},
                                     {Fault::kRefuses, "not today"},
                                     {Fault::kThrows, "broken"}}) {
    const CaseResult result = check_with(which);
    EXPECT_FALSE(result.passed) << words;
    EXPECT_FALSE(result.skipped) << words;
    EXPECT_NE(result.why.find(words), std::string::npos) << result.why;
  }
}

TEST(TimeOp, OrdersItsQuantiles) {
  Limits limits(RunOn::kCpu);
  const Timing timing = time_op(kDriver, {{}, make_bundle}, {}, limits);
  EXPECT_GT(timing.p10_us, 0.0);
  EXPECT_LE(timing.p10_us, timing.median_us);
  EXPECT_LE(timing.median_us, timing.p90_us);
  EXPECT_GT(timing.floor_us, 0.0);
  EXPECT_GT(limits.overall().read_write_gbps, 0.0);
  EXPECT_GT(limits.overall().fma_gflops, 0.0);
}

TEST(Floor, HoldsProductsAgainstTensorCoresWhereThereAreAny) {
  const Cost vectors = {.bytes = 1000, .flops = 6e6};
  const Cost products = {.bytes = 1000, .flops = 6e6, .tensor_cores = true};
  const Ceilings gpu = {.read_write_gbps = 1, .fma_gflops = 1e3, .tensor_gflops = 3e3};
  const Ceilings cpu = {.read_write_gbps = 1, .fma_gflops = 1e3};
  EXPECT_DOUBLE_EQ(floor_us(vectors, gpu), 6.0);
  EXPECT_DOUBLE_EQ(floor_us(products, gpu), 2.0);
  EXPECT_DOUBLE_EQ(floor_us(products, cpu), 6.0);
}

TEST(Rounds, HoldEachSampleAgainstItsOwnMoment) {
  // 1000 bytes: 20 us at 0.05 GB/s, 50 us at 0.02 GB/s. The machine slows down after three rounds.
  double rate = 0.05;
  Rounds rounds([&] { return Ceilings{.read_write_gbps = rate, .fma_gflops = 1e9}; },
                {.bytes = 1000, .flops = 1});
  const auto round = [&](std::initializer_list<double> samples) {
    for (const double sample : samples) rounds.add(sample);
    rounds.close();
  };
  for (int i = 0; i < 3; ++i) round({25.0, 25.0, 400.0});
  rate = 0.02;
  round({40.0});  // between a fast reading and a slow one
  for (int i = 0; i < 5; ++i) round({62.5});
  const Timing timing = rounds.timing();
  EXPECT_EQ(timing.median_us, 62.5);
  EXPECT_DOUBLE_EQ(timing.floor_us, 50.0);
  EXPECT_EQ(timing.p10_us, 25.0);
  EXPECT_EQ(timing.p90_us, 400.0);
}

TEST(Rounds, HoldShortOnesAgainstBothReadings) {
  double rate = 0.03;
  Rounds rounds([&] { return Ceilings{.read_write_gbps = rate, .fma_gflops = 1e9}; },
                {.bytes = 1000, .flops = 1});
  rounds.add(40.0);
  rate = 0.02;
  rounds.close();
  EXPECT_DOUBLE_EQ(rounds.timing().floor_us, 40.0);
}

Tensor vector_of(std::initializer_list<double> values, DType dtype = DType::kF32) {
  Tensor tensor = Tensor::dense(dtype, {static_cast<std::int64_t>(values.size())});
  std::int64_t i = 0;
  for (const double value : values) tensor.set(i++, value);
  return tensor;
}

TEST(Compare, MeasuresAcrossDtypes) {
  const Comparison c = compare("x", vector_of({3.0, 4.0, 1.0}),
                               vector_of({3.0, 4.5, 1.0}, DType::kBF16), {.err_ratio = 0.1});
  EXPECT_TRUE(c.passed) << c.why;
  EXPECT_DOUBLE_EQ(c.err_ratio, std::sqrt(0.25 / 26.0));
  EXPECT_EQ(c.max_abs, 0.5);
  EXPECT_EQ(c.worst, 1);
}

TEST(Compare, FindsTheWorstRow) {
  Tensor reference = constant(DType::kF32, {10, 2, 4}, 1.0);
  Tensor result = reference.clone();
  for (std::int64_t i = 0; i < 4; ++i) result.set(7 * 8 + 4 + i, 1.1);
  const Comparison c = compare("x", reference, result, {.err_ratio = 0.05, .row_err_ratio = 0.05});
  EXPECT_NEAR(c.err_ratio, 0.1 / std::sqrt(20.0), 1e-7);
  EXPECT_NEAR(c.row_err_ratio, 0.1, 1e-7);
  EXPECT_FALSE(c.passed);
  EXPECT_NE(c.why.find("in row [7, 1]"), std::string::npos) << c.why;
  EXPECT_TRUE(compare("x", reference, result, {.row_err_ratio = 0.11}).passed);

  // A row near zero is held against the size of the whole.
  for (std::int64_t i = 0; i < 4; ++i) {
    reference.set(i, 1e-9);
    result.set(i, 2e-9);
  }
  EXPECT_NEAR(compare("x", reference, result, {}).row_err_ratio, 0.1, 1e-7);
}

TEST(Compare, ExactMeansEveryBit) {
  EXPECT_FALSE(compare("x", vector_of({0.0}), vector_of({-0.0}), {.exact = true}).passed);
  EXPECT_TRUE(compare("x", vector_of({-0.0}), vector_of({-0.0}), {.exact = true}).passed);
  Tensor nan = vector_of({std::nan("")}, DType::kBF16);
  Tensor other_nan = nan.clone();
  other_nan.storage()[0] ^= std::byte{1};
  EXPECT_FALSE(compare("x", nan, other_nan, {.exact = true}).passed);
  EXPECT_TRUE(compare("x", vector_of({1.5, 2.0}), vector_of({1.5, 2.0}, DType::kBF16), {}).passed)
      << "values, where the dtypes differ";
}

TEST(Compare, WantsNanAndInfInTheirPlaces) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const Tensor reference = vector_of({1.0, nan, inf, -inf});
  EXPECT_TRUE(compare("x", reference, vector_of({1.0, nan, inf, -inf}), {.exact = true}).passed);
  for (const Tensor& wrong : {vector_of({1.0, 0.0, inf, -inf}), vector_of({nan, nan, inf, -inf}),
                              vector_of({1.0, nan, inf, inf}), vector_of({1.0, nan, 9.0, -inf}),
                              vector_of({1.0, inf, inf, -inf})}) {
    const Comparison c = compare("x", reference, wrong, {.err_ratio = 1e9});
    EXPECT_FALSE(c.passed);
    EXPECT_FALSE(c.finite_match);
  }
}

TEST(Compare, HoldsEveryBound) {
  const Tensor reference = vector_of({100.0, 1.0});
  const Tensor result = vector_of({101.0, 1.5});
  EXPECT_TRUE(compare("x", reference, result, {.atol = 0.5, .rtol = 0.01}).passed);
  EXPECT_FALSE(compare("x", reference, result, {.atol = 0.4, .rtol = 0.01}).passed);
  EXPECT_FALSE(compare("x", reference, result, {.err_ratio = 0.001, .atol = 2.0}).passed);
  EXPECT_FALSE(compare("x", reference, result, {}).passed) << "no bound asks for equality";
  EXPECT_TRUE(compare("x", reference, reference.clone(), {}).passed);
  EXPECT_FALSE(compare("x", vector_of({0.0}), vector_of({1e-9}), {.err_ratio = 1.0}).passed);
  const Comparison shapes = compare("x", reference, vector_of({1.0}), {.err_ratio = 1e9});
  EXPECT_FALSE(shapes.passed);
  EXPECT_NE(shapes.why.find("shape"), std::string::npos);
}

}  // namespace
}  // namespace k3::harness
