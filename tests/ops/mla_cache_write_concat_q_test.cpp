// SPDX-License-Identifier: Apache-2.0
// What must hold of mla_cache_write_concat_q beyond agreement with the oracle.
#include "k3/ops/mla_cache_write_concat_q.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "harness/device.h"
#include "harness/ops/mla_cache.h"
#include "k3/error.h"
#include "tests/environment.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_cache_write_concat_q";
constexpr DType kForms[] = {DType::kBF16, DType::kF8E4M3};

class MlaCacheWrite : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, MlaCacheWrite, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(name_of(info.param)); });

void expect_same(const Bundle& expected, const Bundle& seen) {
  for (const char* name : {"kv_buffer", "q_out"})
    EXPECT_TRUE(same_bits(expected.tensors.at(name), seen.tensors.at(name))) << name;
}

TEST_P(MlaCacheWrite, BitsDoNotDependOnThreads) {
  const Bundle input = mla_cache({.B = 130, .H = 12, .cache = GetParam(), .pool = 150});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16}) expect_same(one, run_cpu(kOp, input, threads));
}

/// Large calls store past the caches, from the first aligned vector on.
TEST_P(MlaCacheWrite, LargeCallsEqualTheirParts) {
  Bundle whole = mla_cache({.B = 140, .H = 96, .cache = GetParam(), .pool = 150});
  Tensor& out = whole.tensors.at("q_out");
  out = Tensor::strided(out.dtype(), out.shape(), {96 * 577, 577, 1}, 3);
  const Bundle result = run_cpu(kOp, whole);
  Bundle parts = whole.clone();
  for (std::int64_t begin = 0; begin < 140; begin += 10) {
    Bundle part;
    for (const char* name : {"slot_mapping", "k_nope", "k_rope", "q_nope", "q_rope", "q_out"})
      part.tensors[name] = slice(whole.tensors.at(name), 0, begin, begin + 10);
    part.tensors["kv_buffer"] = parts.tensors.at("kv_buffer");
    const Bundle done = run_cpu(kOp, part);
    parts.tensors["kv_buffer"] = done.tensors.at("kv_buffer");
    EXPECT_TRUE(same_bits(slice(result.tensors.at("q_out"), 0, begin, begin + 10),
                          done.tensors.at("q_out")))
        << begin;
  }
  EXPECT_TRUE(same_bits(parts.tensors.at("kv_buffer"), result.tensors.at("kv_buffer")));
}

/// The caches of all ranks together hold what one cache of all slots would.
TEST_P(MlaCacheWrite, RanksShareOneCache) {
  constexpr std::int64_t kWorld = 4;
  constexpr std::int64_t kRows = 8;
  Bundle whole = mla_cache({.B = 20, .H = 2, .cache = GetParam(), .pool = kRows * kWorld});
  const Bundle one = run_cpu(kOp, whole);
  for (std::int64_t rank = 0; rank < kWorld; ++rank) {
    Bundle share = whole.clone();
    Tensor pool = Tensor::dense(GetParam(), {kRows, 576});
    const Tensor& all = whole.tensors.at("kv_buffer");
    const auto copy_row = [&](const Tensor& from, std::int64_t row, Tensor& to, std::int64_t at) {
      const std::size_t bytes = 576 * size_of(GetParam());
      std::memcpy(to.storage() + static_cast<std::size_t>(at) * bytes,
                  from.storage() + static_cast<std::size_t>(row) * bytes, bytes);
    };
    for (std::int64_t row = 0; row < kRows; ++row) copy_row(all, row * kWorld + rank, pool, row);
    share.tensors["kv_buffer"] = pool;
    share.scalars["dcp_world_size"] = std::to_string(kWorld);
    share.scalars["dcp_rank"] = std::to_string(rank);
    const Bundle result = run_cpu(kOp, share);
    EXPECT_TRUE(same_bits(one.tensors.at("q_out"), result.tensors.at("q_out")));
    Tensor expected = pool.clone();
    for (std::int64_t row = 0; row < kRows; ++row)
      copy_row(one.tensors.at("kv_buffer"), row * kWorld + rank, expected, row);
    EXPECT_TRUE(same_bits(expected, result.tensors.at("kv_buffer"))) << rank;
  }
}

TEST(MlaCacheWriteValues, SaturateAndKeepOneNaN) {
  Bundle b = mla_cache({.B = 1, .H = 1, .nope = 8, .rope = 8, .cache = DType::kF8E4M3});
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {448, -448, 464, -480, inf, -inf, std::nan(""), -std::nan("")};
  const int codes[] = {0x7E, 0xFE, 0x7E, 0xFE, 0x7E, 0xFE, 0x7F, 0x7F};
  for (const char* name : {"q_nope", "q_rope", "k_nope", "k_rope"})
    for (int i = 0; i < 8; ++i) b.tensors.at(name).set(i, values[i]);
  const std::int64_t row = static_cast<std::int64_t>(b.tensors.at("slot_mapping").get(0));
  const Bundle result = run_cpu(kOp, b);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(std::to_integer<int>(result.tensors.at("q_out").element(i)[0]), codes[i % 8]) << i;
    EXPECT_EQ(std::to_integer<int>(result.tensors.at("kv_buffer").element(row * 16 + i)[0]),
              codes[i % 8])
        << i;
  }
}

/// Rows of the cache, tokens and heads each lie 2^30 elements apart.
TEST_P(MlaCacheWrite, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 64;
  const Bundle dense =
      mla_cache({.B = 3, .H = 2, .nope = 40, .rope = 8, .cache = GetParam(), .pool = 4});
  const Bundle reference = run_cpu(kOp, dense);
  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  std::vector<std::unique_ptr<SparseBuffer>> buffers;
  const auto for_each_row = [&](const char* name, const auto& visit) {
    const TensorView& view = call.tensors.at(name);
    const std::size_t bytes =
        static_cast<std::size_t>(view.shape[view.rank - 1]) * size_of(view.dtype);
    const std::int64_t width = view.shape[view.rank - 1];
    for (std::int64_t row = 0; row < view.numel() / width; ++row)
      visit(static_cast<std::byte*>(view.data) +
                static_cast<std::size_t>(row * kPitch) * size_of(view.dtype),
            row * width, bytes);
  };
  for (const char* name : {"kv_buffer", "k_nope", "k_rope", "q_nope", "q_rope", "q_out"}) {
    TensorView& view = call.tensors.at(name);
    buffers.push_back(
        std::make_unique<SparseBuffer>(static_cast<std::size_t>(7 * kPitch) * size_of(view.dtype)));
    if (!buffers.back()->valid()) GTEST_SKIP() << "no address space of 14 GiB";
    view.data = buffers.back()->data();
    view.strides[view.rank - 2] = kPitch;
    if (view.rank == 3) view.strides[0] = 2 * kPitch;
    const Tensor& values = dense.tensors.at(name);
    for_each_row(name, [&](std::byte* at, std::int64_t element, std::size_t bytes) {
      std::memcpy(at, values.element(element).data(), bytes);
    });
  }
  run_call(*find_driver(kOp), call);
  for (const char* name : {"kv_buffer", "q_out"}) {
    const Tensor& expected = reference.tensors.at(name);
    for_each_row(name, [&](const std::byte* at, std::int64_t element, std::size_t bytes) {
      EXPECT_EQ(std::memcmp(at, expected.element(element).data(), bytes), 0) << name << element;
    });
  }
}

std::vector<std::string> cuda_variants() { return {"vector", "scalar"}; }

Bundle run_cuda(const Bundle& bundle, const std::string& variant) {
  Bundle result = bundle.clone();
  RunOptions options;
  options.on = RunOn::kCuda;
  options.variant = variant;
  run_once(*find_driver(kOp), result, options);
  return result;
}

class MlaCacheWriteOnDevice : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(All, MlaCacheWriteOnDevice, testing::ValuesIn(kForms),
                         [](const auto& info) {
                           return std::string("on_cuda_") + name_of(info.param);
                         });

/// No host check has seen them: slots past the pool count as padding.
TEST_P(MlaCacheWriteOnDevice, SlotsPastThePoolAreSkipped) {
  for (DType slots : {DType::kI32, DType::kI64}) {
    Bundle bad = mla_cache({.B = 6, .H = 3, .cache = GetParam(), .slots = slots, .pool = 8});
    Bundle good = bad.clone();
    const double large = slots == DType::kI32 ? 0x7FFFFFFF : 0x1p62;
    const std::pair<std::int64_t, double> spoilt[] = {{0, 8}, {3, large}, {5, -large}};
    for (const auto& [token, slot] : spoilt) {
      bad.tensors.at("slot_mapping").set(token, slot);
      good.tensors.at("slot_mapping").set(token, -1);
    }
    const Bundle expected = run_cpu(kOp, good);
    for (const std::string& variant : cuda_variants())
      expect_same(expected, run_cuda(bad, variant));

    for (Bundle* b : {&bad, &good}) {
      b->scalars["dcp_world_size"] = "2";
      b->scalars["dcp_rank"] = "1";
    }
    bad.tensors.at("slot_mapping").set(0, 17);
    const Bundle shared = run_cpu(kOp, good);
    for (const std::string& variant : cuda_variants()) expect_same(shared, run_cuda(bad, variant));
  }
}

TEST_P(MlaCacheWriteOnDevice, BadSlotsAreReportedByTheDebugChecks) {
  const Environment checks("K3_DEBUG_CHECKS", "1");
  for (DType slots : {DType::kI32, DType::kI64}) {
    const Bundle good = mla_cache({.B = 6, .H = 3, .cache = GetParam(), .slots = slots, .pool = 8});
    EXPECT_NO_THROW(run_cuda(good, ""));
    for (double slot : {8.0, good.tensors.at("slot_mapping").get(1)}) {
      Bundle bad = good.clone();
      bad.tensors.at("slot_mapping").set(4, slot);
      EXPECT_THROW(run_cuda(bad, ""), ContractError) << slot;
    }
  }
}

/// A row that is not 16-byte aligned sends the call to the slower variant.
TEST_P(MlaCacheWriteOnDevice, VectorsRefuseMisalignedRows) {
  const Bundle aligned = mla_cache({.cache = GetParam()});
  EXPECT_NO_THROW(run_cuda(aligned, "vector"));
  for (const char* name : {"kv_buffer", "k_nope", "k_rope", "q_nope", "q_rope", "q_out"}) {
    Bundle off = aligned.clone();
    Tensor& t = off.tensors.at(name);
    std::vector<std::int64_t> strides = t.strides();
    t = restrided(t, strides, 4);
    EXPECT_THROW(run_cuda(off, "vector"), UnsupportedError) << name;
    EXPECT_NO_THROW(run_cuda(off, "")) << name;
  }
  EXPECT_THROW(run_cuda(mla_cache({.nope = 508, .cache = GetParam()}), "vector"), UnsupportedError);
  EXPECT_THROW(run_cuda(mla_cache({.rope = 60, .cache = GetParam()}), "vector"), UnsupportedError);
}

}  // namespace
}  // namespace k3::harness
