// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "harness/driver.h"
#include "harness/inputs.h"
#include "k3/k3.h"
#include "tests/environment.h"

namespace k3 {
namespace {

class Dispatch : public testing::Test {
 protected:
  harness::Tensor input_ = harness::constant(DType::kBF16, {2, 32}, 1.0);
  harness::Tensor out_ = harness::poisoned(DType::kBF16, {2, 16});
  SituAndMulArgs args() {
    SituAndMulArgs a;
    a.input = input_.view();
    a.out = out_.view();
    return a;
  }
};

TEST_F(Dispatch, ForcedVariantRuns) {
  const Environment force("K3_FORCE", "kda_prefill:other,situ_and_mul:simd");
  EXPECT_NO_THROW(situ_and_mul(args()));
}

TEST_F(Dispatch, ForcedNamesMustExist) {
  for (const char* text : {"situ_and_mul:nonsense", "situ_and_mul", "situ_and_mul: simd",
                           "situ_and_mull:simd", "kda_prefill:other, situ_and_mul:simd"}) {
    const Environment force("K3_FORCE", text);
    try {
      situ_and_mul(args());
      FAIL() << text;
    } catch (const ContractError& e) {
      EXPECT_NE(std::string(e.what()).find("K3_FORCE"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Dispatch, UnknownVariantOfAContextIsNamed) {
  ExecContext ctx;
  ctx.variant = "nonsense";
  try {
    situ_and_mul(args(), ctx);
    FAIL();
  } catch (const ContractError& e) {
    EXPECT_NE(std::string(e.what()).find("got nonsense"), std::string::npos) << e.what();
  }
}

TEST_F(Dispatch, VerboseNamesTheChoice) {
  const Environment verbose("K3_VERBOSE", "1");
  testing::internal::CaptureStderr();
  situ_and_mul(args());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("k3: situ_and_mul: cpu:simd runs"),
            std::string::npos);
}

TEST_F(Dispatch, QuietByDefault) {
  testing::internal::CaptureStderr();
  situ_and_mul(args());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Dispatch, BackendMustBeWhereTheTensorsAre) {
  ExecContext ctx;
  ctx.backend = Backend::kCuda;
  EXPECT_THROW(situ_and_mul(args(), ctx), ContractError);
  ctx.backend = Backend::kCpu;
  EXPECT_NO_THROW(situ_and_mul(args(), ctx));
}

TEST_F(Dispatch, NegativeThreadsAreRefused) {
  ExecContext ctx;
  ctx.threads = -1;
  EXPECT_THROW(situ_and_mul(args(), ctx), ContractError);
}

TEST(Capabilities, EveryOpHasACpuRowAndADriver) {
  std::set<std::string> cpu_ops;
  std::set<std::string> keys;
  for (const Capability& row : capabilities()) {
    if (row.backend == Backend::kCpu) cpu_ops.insert(row.op);
    EXPECT_NE(harness::find_driver(row.op), nullptr) << row.op;
    EXPECT_FALSE(row.conditions.empty());
    EXPECT_TRUE(keys.insert(row.op + row.variant + row.arch).second)
        << "two rows for " << row.op << ":" << row.variant << " on " << row.arch;
  }
  for (const auto* driver : harness::drivers()) EXPECT_TRUE(cpu_ops.contains(driver->name));
}

}  // namespace
}  // namespace k3
