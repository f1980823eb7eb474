// SPDX-License-Identifier: Apache-2.0
// The contract of kda_recompute_wu, and what must hold between calls.
#include "k3/ops/kda_recompute_wu.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/bf16.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_recompute_wu";
constexpr std::int64_t kD = 128;
constexpr std::int64_t kC = 64;

Bundle packed_bundle(const std::vector<std::int64_t>& cu, std::int64_t H, std::int64_t HV) {
  Random random(1);
  const std::int64_t T = cu.back();
  Bundle b;
  b.tensors["k"] = normal(random, DType::kBF16, {1, T, H, kD});
  b.tensors["v"] = normal(random, DType::kBF16, {1, T, HV, kD});
  b.tensors["g"] = uniform(random, DType::kF32, {1, T, HV, kD}, -3.0, 0.0);
  b.tensors["beta"] = uniform(random, DType::kF32, {1, T, HV}, 0.0, 1.0);
  b.tensors["A"] = normal(random, DType::kF32, {1, T, HV, kC});
  b.tensors["cu_seqlens"] = integers(DType::kI32, cu);
  b.tensors["w"] = poisoned(DType::kBF16, {1, T, HV, kD});
  b.tensors["u"] = poisoned(DType::kBF16, {1, T, HV, kD});
  return b;
}
Bundle valid_bundle() { return packed_bundle({0, 66, 70}, 2, 4); }

std::function<void(Call&)> with_values(std::vector<std::int32_t> values) {
  return [=](Call& call) {
    std::memcpy(call.tensors.at("cu_seqlens").data, values.data(),
                values.size() * sizeof(values[0]));
  };
}

class KdaRecomputeWuContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaRecomputeWuContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kStrides = "must have strides of multiples of 16 bytes";
constexpr const char* kBase = "must start at a multiple of 16 bytes";
constexpr const char* kWide = "must have shape [B, T, HV, 128]";

/// Each tensor whose rows are read or written 16 bytes at a time.
std::vector<Violation> layout_rules() {
  std::vector<Violation> rules;
  for (const char* name : {"k", "v", "g", "A", "w", "u"}) {
    const std::string n = name;
    rules.push_back({n + "_strided", n, kUnitStride, with_stride(name, 3, 2)});
    rules.push_back({n + "_head_stride_odd", n, kStrides, with_stride(name, 2, 130)});
    rules.push_back({n + "_token_stride_odd", n, kStrides, with_stride(name, 1, 2050)});
    rules.push_back({n + "_base_odd", n, kBase, shifted(n, 8)});
  }
  for (const char* name : {"g", "w", "u"}) {
    const std::string n = name;
    rules.push_back({n + "_fewer_heads", n, kWide, with_size(name, 2, 2)});
    rules.push_back({n + "_narrow", n, kWide, with_size(name, 3, 64)});
    rules.push_back({n + "_fewer_tokens", n, kWide, with_size(name, 1, 69)});
  }
  for (const char* name : {"w", "u"})
    rules.push_back({std::string(name) + "_tokens_overlap", name,
                     "no two of its elements may share", with_stride(name, 1, 128)});
  return rules;
}

INSTANTIATE_TEST_SUITE_P(Layouts, KdaRecomputeWuContract, testing::ValuesIn(layout_rules()),
                         violation_name);

INSTANTIATE_TEST_SUITE_P(
    All, KdaRecomputeWuContract,
    testing::Values(
        Violation{"k_f32", "k", "must be bf16", with_dtype("k", DType::kF32)},
        Violation{"v_f32", "v", "must be bf16", with_dtype("v", DType::kF32)},
        Violation{"g_bf16", "g", "must be f32", with_dtype("g", DType::kBF16)},
        Violation{"beta_i32", "beta", "must be bf16 or f32", with_dtype("beta", DType::kI32)},
        Violation{"A_f16", "A", "must be bf16 or f32", with_dtype("A", DType::kF16)},
        Violation{"w_f32", "w", "must be bf16", with_dtype("w", DType::kF32)},
        Violation{"u_f32", "u", "must be bf16", with_dtype("u", DType::kF32)},
        Violation{"cu_seqlens_f32", "cu_seqlens", "must be i32 or i64",
                  with_dtype("cu_seqlens", DType::kF32)},
        Violation{"k_narrow", "k", "must have shape [B, T, H, 128]", with_size("k", 3, 64)},
        Violation{"k_without_heads", "k", "must have at least one head", with_size("k", 2, 0)},
        Violation{"v_narrow", "v", kWide, with_size("v", 3, 64)},
        Violation{"v_without_heads", "v", "HV % H == 0", with_size("v", 2, 0)},
        Violation{"v_heads_not_a_multiple", "v", "HV % H == 0", with_size("v", 2, 3)},
        Violation{"beta_other_heads", "beta", "must have shape [B, T, HV]",
                  with_size("beta", 2, 2)},
        Violation{"beta_strided", "beta", kUnitStride, with_stride("beta", 2, 2)},
        Violation{"A_of_128", "A", "must have shape [B, T, HV, 64]", with_size("A", 3, 128)},
        Violation{"A_other_heads", "A", "must have shape [B, T, HV, 64]", with_size("A", 2, 2)},
        Violation{"packed_batch_of_two", "k", "must have B = 1 where cu_seqlens is given",
                  [](Call& c) {
                    for (const char* name : {"k", "v", "g", "beta", "A", "w", "u"}) {
                      with_size(name, 0, 2)(c);
                      with_size(name, 1, 35)(c);
                    }
                  }},
        Violation{"cu_seqlens_of_one", "cu_seqlens", "must have N + 1 >= 2 entries",
                  with_size("cu_seqlens", 0, 1)},
        Violation{"cu_seqlens_strided", "cu_seqlens", "must be dense from axis 0",
                  with_stride("cu_seqlens", 0, 2)},
        Violation{"cu_seqlens_starts_late", "cu_seqlens", "must start at 0",
                  with_values({1, 66, 70})},
        Violation{"cu_seqlens_decreases", "cu_seqlens", "must never decrease",
                  with_values({0, 71, 70})},
        Violation{"cu_seqlens_ends_early", "cu_seqlens", "must end at the number of tokens",
                  with_values({0, 66, 69})},
        Violation{"w_is_u", "w", "must not overlap u", aliasing("w", "u")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaRecomputeWuContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

TEST(KdaRecomputeWu, BitsDoNotDependOnThreads) {
  const Bundle input = packed_bundle({0, 130, 137, 201}, 2, 4);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 7}) {
    const Bundle many = run_cpu(kOp, input, threads);
    for (const char* name : {"w", "u"})
      EXPECT_TRUE(same_bits(one.tensors.at(name), many.tensors.at(name))) << name << threads;
  }
}

TEST(KdaRecomputeWu, BitsOfASequenceDependOnThatSequenceAlone) {
  const Bundle batch = packed_bundle({0, 33, 233, 238}, 1, 2);
  const Bundle all = run_cpu(kOp, batch);
  Bundle alone;
  for (const char* name : {"k", "v", "g", "beta", "A", "w", "u"})
    alone.tensors[name] = slice(batch.tensors.at(name), 1, 33, 233);
  const Bundle result = run_cpu(kOp, alone);
  for (const char* name : {"w", "u"})
    EXPECT_TRUE(same_bits(slice(all.tensors.at(name), 1, 33, 233), result.tensors.at(name)))
        << name;
}

/// One entry of A a row, on the diagonal or `back` tokens before it; NaN past the diagonal.
TEST(KdaRecomputeWu, ARowOfAUnitMatrixPicksOneToken) {
  constexpr std::int64_t kLengths[] = {70, 5};
  for (const std::int64_t back : {0, 1, 17}) {
    Bundle b = packed_bundle({0, 70, 75}, 1, 1);
    b.tensors["beta"] = constant(DType::kF32, {1, 75, 1}, 0.5);
    std::vector<std::int64_t> source;  // of each token; -1: none
    for (const std::int64_t length : kLengths)
      for (std::int64_t i = 0; i < length; ++i)
        source.push_back(i % kC >= back ? static_cast<std::int64_t>(source.size()) - back : -1);
    std::int64_t token = 0;
    for (const std::int64_t length : kLengths)
      for (std::int64_t i = 0; i < length; ++i, ++token)
        for (std::int64_t j = 0; j < kC; ++j)
          b.tensors.at("A").set(token * kC + j,
                                j > i % kC ? std::nan("") : (j == i % kC - back ? 1.0 : 0.0));
    const Bundle result = run_cpu(kOp, b);
    for (std::int64_t at = 0; at < 75 * kD; ++at) {
      const std::int64_t from = source[at / kD] < 0 ? -1 : source[at / kD] * kD + at % kD;
      const double u = from < 0 ? 0.0 : 0.5 * b.tensors.at("v").get(from);
      const double w =
          from < 0 ? 0.0
                   : 0.5 * b.tensors.at("k").get(from) * std::exp(b.tensors.at("g").get(from));
      ASSERT_EQ(result.tensors.at("u").get(at), u) << back << " token " << at / kD;
      ASSERT_NEAR(result.tensors.at("w").get(at), w, std::fabs(w) * 0x1p-8)
          << back << " token " << at / kD;
    }
  }
}

TEST(KdaRecomputeWu, ATokenOfNaNStaysInItsChunkAndHead) {
  const Bundle clean = packed_bundle({0, 128, 140}, 1, 2);
  Bundle b = clean.clone();
  const std::int64_t bad = 64 * 2 + 1;  // token 64, the first of the second chunk, head 1
  for (std::int64_t d = 0; d < kD; ++d) b.tensors.at("v").set(bad * kD + d, std::nan(""));
  const Tensor u = run_cpu(kOp, b).tensors.at("u");
  const Tensor reference = run_cpu(kOp, clean).tensors.at("u");
  for (std::int64_t row = 0; row < 140 * 2; ++row) {
    const bool poisoned_row = row % 2 == 1 && row / 2 >= 64 && row / 2 < 128;
    for (std::int64_t d = 0; d < kD; ++d) {
      if (poisoned_row)
        ASSERT_TRUE(std::isnan(u.get(row * kD + d))) << row;
      else
        ASSERT_EQ(u.get(row * kD + d), reference.get(row * kD + d)) << row;
    }
  }
}

TEST(KdaRecomputeWu, StridesPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between tokens
  constexpr std::int64_t kTokens = 4;                           // the last one is past 3 * 2^30
  const Bundle dense = packed_bundle({0, kTokens}, 1, 1);
  const Bundle reference = run_cpu(kOp, dense);
  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  std::vector<std::unique_ptr<SparseBuffer>> buffers;
  for (const char* name : {"k", "v", "g", "A", "w", "u"}) {
    const Tensor& t = dense.tensors.at(name);
    const auto size = static_cast<std::int64_t>(size_of(t.dtype()));
    const std::int64_t row = t.shape().back() * size;
    const auto& buffer =
        buffers.emplace_back(std::make_unique<SparseBuffer>(kPitch * kTokens * size));
    if (!buffer->valid()) GTEST_SKIP() << "no address space of 72 GiB";
    for (std::int64_t token = 0; token < kTokens; ++token)
      std::memcpy(buffer->at(token * kPitch * size), t.storage() + token * row,
                  static_cast<std::size_t>(row));
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[1] = kPitch;
  }
  run_call(*find_driver(kOp), call);
  constexpr std::int64_t kRow = kD * 2;
  for (const auto& [name, buffer] : {std::pair{"w", &buffers[4]}, {"u", &buffers[5]}})
    for (std::int64_t token = 0; token < kTokens; ++token)
      EXPECT_EQ(std::memcmp((*buffer)->at(token * kPitch * 2),
                            reference.tensors.at(name).storage() + token * kRow, kRow),
                0)
          << name << " " << token;
}

}  // namespace
}  // namespace k3::harness
