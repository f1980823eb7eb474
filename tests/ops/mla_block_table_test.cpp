// SPDX-License-Identifier: Apache-2.0
// What must hold of mla_block_table beyond agreement with the oracle.
#include "k3/ops/mla_block_table.h"

#include <cstring>

#include "harness/device.h"
#include "harness/ops/mla_pages.h"
#include "k3/error.h"
#include "tests/environment.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_block_table";

TEST(MlaBlockTable, ValuesDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(
      kOp, mla_pages({.lengths = {5000, 1 << 19, 0, 70000}, .v2p = true}));
}

TEST(MlaBlockTable, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;
  const Bundle near = mla_pages({.lengths = {130, 64, 1, 200}, .starts = {64, 5, 0, 0}});
  const Bundle reference = run_cpu(kOp, near);
  Bundle bundle = near.clone();
  Call call = host_call(*find_driver(kOp), bundle);
  const SparseBuffer tokens(static_cast<std::size_t>(4 * kPitch) * 4);
  const SparseBuffer table(static_cast<std::size_t>(4 * kPitch) * 4);
  if (!tokens.valid() || !table.valid()) GTEST_SKIP() << "no address space of 32 GiB";
  for (const auto& [name, buffer] : {std::pair{"req_to_token", &tokens}, {"block_table", &table}}) {
    TensorView& view = call.tensors.at(name);
    const std::int64_t row = view.shape[1];
    for (std::int64_t r = 0; r < 4; ++r)
      std::memcpy(buffer->at(4 * r * kPitch), near.tensors.at(name).element(r * row).data(),
                  static_cast<std::size_t>(4 * row));
    view.data = buffer->data();
    view.strides[0] = kPitch;
  }
  run_call(*find_driver(kOp), call);
  const Tensor& expected = reference.tensors.at("block_table");
  const std::int64_t row = expected.shape()[1];
  for (std::int64_t r = 0; r < 4; ++r)
    EXPECT_EQ(std::memcmp(table.at(4 * r * kPitch), expected.element(r * row).data(),
                          static_cast<std::size_t>(4 * row)),
              0)
        << r;
}

class MlaBlockTableOnDevice : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }

  static Bundle run(const Bundle& bundle) {
    Bundle result = bundle.clone();
    RunOptions options;
    options.on = RunOn::kCuda;
    run_once(*find_driver(kOp), result, options);
    return result;
  }

  /// 4 rows of 640 tokens, pages of 64, 13 columns.
  static Bundle call() {
    return mla_pages({.lengths = {100, 640, 576},
                      .starts = {3, 0, 64},
                      .rows = 4,
                      .page_mult = 3,
                      .v2p = true,
                      .lists = GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(All, MlaBlockTableOnDevice, testing::Values(DType::kI32, DType::kI64),
                         [](const auto& info) {
                           return std::string("on_cuda_") + name_of(info.param);
                         });

/// No host check has seen them.
TEST_P(MlaBlockTableOnDevice, WhatIsOutOfRangeBecomesMinusOne) {
  const Bundle good = call();
  const Tensor fine = run_cpu(kOp, good).tensors.at("block_table");
  const std::int64_t columns = fine.shape()[1];
  const auto expect = [&](const char* what, const std::function<void(Bundle&)>& spoil,
                          const std::function<void(Tensor&)>& change) {
    Bundle bad = good.clone();
    spoil(bad);
    Tensor expected = fine.clone();
    change(expected);
    EXPECT_TRUE(same_bits(expected, run(bad).tensors.at("block_table"))) << what;
  };
  const auto set = [](const char* name, std::int64_t at, double value) {
    return [=](Bundle& b) { b.tensors.at(name).set(at, value); };
  };
  const auto entries = [&](std::int64_t b, std::int64_t begin, std::int64_t end, double value) {
    return [=](Tensor& t) {
      for (std::int64_t j = begin; j < end; ++j) t.set(b * columns + j, value);
    };
  };
  const double large = GetParam() == DType::kI32 ? 0x7FFFFFFF : 0x1p62;
  const double untouched = 0x5A5A5A5A;
  for (double row : {-1.0, 4.0, large, -large})
    expect("row", set("req_pool", 1, row), entries(1, 0, 10, -1));
  for (double start : {-1.0, 640.0, large, -large})
    expect("start", set("start", 1, start), entries(1, 0, 10, -1));
  expect("start near the end", set("start", 2, 192), [&](Tensor& t) {
    for (std::int64_t j = 0; j < 7; ++j) t.set(2 * columns + j, fine.get(2 * columns + j + 2));
    entries(2, 7, 9, -1)(t);
  });
  for (double length : {-1.0, -large})
    expect("length below 0", set("seq_lens", 0, length), entries(0, 0, 2, untouched));
  expect("length past the table", set("seq_lens", 1, large), entries(1, 10, columns, -1));

  const auto row = static_cast<std::int64_t>(good.tensors.at("req_pool").get(1));
  const auto at_page_2 = row * 640 + 128;
  for (double token : {-1.0, 41.0 * 64, 2147483647.0})
    expect("token", set("req_to_token", at_page_2, token), entries(1, 2, 3, -1));
  const auto page = static_cast<std::int64_t>(good.tensors.at("req_to_token").get(at_page_2)) / 64;
  for (double physical : {-1.0, double{0x7FFFFFFF / 3 + 1}, large, -large})
    expect("page", set("v2p", page, physical), entries(1, 2, 3, -1));
}

TEST_P(MlaBlockTableOnDevice, BadListsAreReportedByTheDebugChecks) {
  const Environment checks("K3_DEBUG_CHECKS", "1");
  const Bundle good = call();
  EXPECT_NO_THROW(run(good));
  for (const auto& [name, value] : {std::pair{"req_pool", 4}, {"seq_lens", -1}, {"start", 640}}) {
    Bundle bad = good.clone();
    bad.tensors.at(name).set(1, value);
    try {
      run(bad);
      ADD_FAILURE() << name << " not reported";
    } catch (const ContractError& error) {
      EXPECT_EQ(error.argument(), name) << error.what();
    }
  }
}

}  // namespace
}  // namespace k3::harness
