// SPDX-License-Identifier: Apache-2.0
// Ids and weights of the router, each by itself, against a sort that stands here; and what must
// hold between calls and between variants.
#include "k3/ops/moe_route_topk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/files.h"
#include "harness/ops/moe_router.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_route_topk";

Bundle router(const RouterShape& shape, const RouterEdit* edit = nullptr) {
  Bundle b;
  if (edit != nullptr) {
    draw_router(b, shape, 5, *edit);
  } else {
    draw_router(b, shape, 5);
    separate_scores(b, shape);
  }
  set_router_scalars(b, shape);
  b.scalars["sorted"] = shape.sorted ? "1" : "0";
  return b;
}

/// 0 where fp32 has no exp(-x).
double activation_of(double x) { return x < -88.72284 ? 0.0 : 1.0 / (1.0 + std::exp(-x)); }

/// The ids of one token by a stable sort of the biased scores.
std::vector<int> expected_ids(const Bundle& b, const RouterShape& shape, std::int64_t t) {
  std::vector<float> biased;
  for (std::int64_t e = 0; e < shape.E; ++e) {
    const double x = b.tensors.at("scores").get(t * shape.E + e);
    const float score =
        static_cast<float>(activation_of(x)) + static_cast<float>(b.tensors.at("bias").get(e));
    biased.push_back(std::isnan(score) ? -1e30F : score);
  }
  std::vector<int> ids(biased.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int i, int j) { return biased[i] > biased[j]; });
  ids.resize(static_cast<std::size_t>(shape.k));
  if (!shape.sorted) std::sort(ids.begin(), ids.end());
  return ids;
}

void expect_ids(const Bundle& b, const RouterShape& shape, const std::string& what) {
  for (std::int64_t t = 0; t < shape.T; ++t) {
    const std::vector<int> expected = expected_ids(b, shape, t);
    for (std::int64_t i = 0; i < shape.k; ++i)
      ASSERT_EQ(b.tensors.at("topk_ids").get(t * shape.k + i), expected[i])
          << what << ", token " << t << ", place " << i;
  }
}

/// The weights that belong to the ids the call gave, whatever these are.
void expect_weights(const Bundle& b, const RouterShape& shape, const std::string& what) {
  for (std::int64_t t = 0; t < shape.T; ++t) {
    std::vector<double> activation;
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const double id = b.tensors.at("topk_ids").get(t * shape.k + i);
      ASSERT_TRUE(id >= 0 && id < static_cast<double>(shape.E)) << what << ", token " << t;
      const double x = b.tensors.at("scores").get(t * shape.E + static_cast<std::int64_t>(id));
      activation.push_back(activation_of(x));
    }
    double n = std::accumulate(activation.begin(), activation.end(), 0.0);
    if (!shape.renormalize || !(n > 0.0)) n = 1.0;
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const double expected = activation[i] / n * std::strtod(shape.scale, nullptr);
      const double seen = b.tensors.at("topk_weights").get(t * shape.k + i);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(seen)) << what << ", token " << t << ", place " << i;
      else
        ASSERT_NEAR(seen, expected, 1e-6 + 1e-5 * std::fabs(expected))
            << what << ", token " << t << ", place " << i;
    }
  }
}

class MoeRouteTopkOn : public MachineTest {
 protected:
  static void expect_right(const RouterShape& shape, const RouterEdit* edit,
                           const std::string& what) {
    const Bundle seen = run_tested(kOp, router(shape, edit));
    expect_ids(seen, shape, what);
    expect_weights(seen, shape, what);
  }
};

TEST_P(MoeRouteTopkOn, IdsAndWeightsAreRight) {
  for (const std::int64_t T : {1, 3, 8, 512})
    for (const DType dtype : {DType::kBF16, DType::kF32})
      for (const bool sorted : {false, true})
        for (const auto& [renormalize, scale] : {std::pair{true, "2.5"}, {false, "1"}, {true, "1"}})
          expect_right({.T = T,
                        .scores = dtype,
                        .renormalize = renormalize,
                        .scale = scale,
                        .sorted = sorted},
                       nullptr, std::to_string(T) + " tokens");
}

TEST_P(MoeRouteTopkOn, ConstructedTiesAndNaN) {
  for (const RouterEdit& edit : router_edits())
    for (const DType dtype : {DType::kBF16, DType::kF32})
      for (const bool sorted : {false, true})
        expect_right({.T = 4, .scores = dtype, .sorted = sorted}, &edit, edit.name);
}

TEST_P(MoeRouteTopkOn, RecordedIdsAreEqual) {
  const char* moved = std::getenv("K3_TEST_DATA");
  const std::string folder = moved != nullptr ? moved : K3_TEST_DATA;
  RunFile file = load_run_file(*find_driver(kOp), folder + "/moe_route_topk.safetensors");
  const Bundle seen = run_on(GetParam().on, kOp, file.bundle, GetParam().variant);
  EXPECT_TRUE(same_bits(seen.tensors.at("topk_ids"), file.expected.at("topk_ids")));
  EXPECT_TRUE(compare("topk_weights", file.expected.at("topk_weights"),
                      seen.tensors.at("topk_weights"), {.atol = 1e-6, .rtol = 1e-5})
                  .passed);
}

TEST_P(MoeRouteTopkOn, TheSetDoesNotDependOnTheOrder) {
  RouterShape shape = {.T = 40};
  const Machine& machine = GetParam();
  const Bundle by_id = run_on(machine.on, kOp, router(shape), machine.variant);
  shape.sorted = true;
  const Bundle by_rank = run_on(machine.on, kOp, router(shape), machine.variant);
  const auto pairs = [&](const Bundle& b, std::int64_t t) {
    std::vector<std::pair<double, double>> result;
    for (std::int64_t i = t * 16; i < (t + 1) * 16; ++i)
      result.emplace_back(b.tensors.at("topk_ids").get(i), b.tensors.at("topk_weights").get(i));
    std::sort(result.begin(), result.end());
    return result;
  };
  for (std::int64_t t = 0; t < shape.T; ++t) EXPECT_EQ(pairs(by_id, t), pairs(by_rank, t)) << t;
}

INSTANTIATE_TEST_SUITE_P(All, MoeRouteTopkOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

class MoeRouteTopkDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

TEST_F(MoeRouteTopkDevice, on_cuda_VariantsAgreeBitForBit) {
  for (const RouterEdit& edit : router_edits())
    for (const bool sorted : {false, true}) {
      const Bundle input = router({.T = 9, .sorted = sorted}, &edit);
      EXPECT_EQ(difference(run_on(RunOn::kCuda, kOp, input, "choose_16_of_896"),
                           run_on(RunOn::kCuda, kOp, input, "general")),
                "")
          << edit.name;
    }
  const Bundle input = router({.T = 3000, .scores = DType::kF32});
  EXPECT_EQ(difference(run_on(RunOn::kCuda, kOp, input, "choose_16_of_896"),
                       run_on(RunOn::kCuda, kOp, input, "general")),
            "");
}

TEST_F(MoeRouteTopkDevice, on_cuda_GraphFollowsItsTensors) {
  const Bundle first = router({.T = 70});
  const Bundle second = router({.T = 70}, &router_edits()[1]);
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda)) {
    DeviceBundle tensors(first);
    const DeviceCall call = {find_driver(kOp), tensors.call(), variant};
    DeviceGraph graph({&call, 1});
    Bundle seen = first.clone();
    for (const Bundle* input : {&first, &second, &first}) {
      const Bundle expected = run_on(RunOn::kCuda, kOp, *input, variant);
      tensors.upload(*input);
      graph.replay();
      tensors.download(seen);
      EXPECT_EQ(difference(expected, seen), "") << variant;
    }
  }
}

/// Calls of which each reads what the last one wrote, as logits: a launch that does not wait for
/// its turn is seen.
TEST_F(MoeRouteTopkDevice, on_cuda_WaitsForTheKernelBefore) {
  constexpr std::int64_t kTokens = 896;
  constexpr std::int64_t kPitch = 896;
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda)) {
    Bundle a = router({.T = kTokens, .scores = DType::kF32});
    Bundle results[2];
    for (const bool together : {false, true}) {
      const DeviceBundle tensors(a);
      std::vector<DeviceCall> calls;
      Call call = tensors.call();
      // Each half of the rows is routed in turn, and the weights become logits of the other half.
      for (int step = 0; step < 12; ++step) {
        Call next = call;
        TensorView& scores = next.tensors.at("scores");
        TensorView& weights = next.tensors.at("topk_weights");
        scores.shape[0] = kTokens / 2;
        weights.shape[0] = kTokens / 2;
        next.tensors.at("topk_ids").shape[0] = kTokens / 2;
        auto* const base = static_cast<float*>(call.tensors.at("scores").data);
        const bool even = step % 2 == 0;
        scores.data = base + (even ? 0 : kTokens / 2 * kPitch);
        weights.data = base + (even ? kTokens / 2 * kPitch : 0) + 16 * step;
        weights.strides[0] = kPitch;
        calls.push_back({find_driver(kOp), next, variant});
      }
      if (together)
        DeviceGraph(calls).replay();
      else
        for (const DeviceCall& one : calls) run_on_device({&one, 1});
      results[together] = a.clone();
      tensors.download(results[together]);
    }
    EXPECT_EQ(difference(results[0], results[1]), "") << variant;
  }
}

TEST(MoeRouteTopk, BitsDoNotDependOnThreads) {
  const Bundle input = router({.T = 77});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_EQ(difference(one, run_cpu(kOp, input, threads)), "") << threads;
}

TEST(MoeRouteTopk, ATokenDoesNotDependOnTheBatch) {
  const Bundle all = run_cpu(kOp, router({.T = 30}));
  for (const std::int64_t t : {0, 13, 29}) {
    Bundle one = router({.T = 30});
    for (const char* name : {"scores", "topk_weights", "topk_ids"})
      one.tensors[name] = slice(one.tensors.at(name), 0, t, t + 1);
    const Bundle seen = run_cpu(kOp, one);
    for (const char* name : {"topk_weights", "topk_ids"})
      EXPECT_TRUE(same_bits(seen.tensors.at(name), slice(all.tensors.at(name), 0, t, t + 1)));
  }
}

TEST(MoeRouteTopk, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, router({.T = 4}), {"scores", "topk_weights", "topk_ids"},
                          (std::int64_t{1} << 30) + 3);
}

}  // namespace
}  // namespace k3::harness
