// SPDX-License-Identifier: Apache-2.0
// What the decode ops promise of a device alone: graphs that follow their tensors, launches that
// overlap, and index values that no host check has seen.
#include <functional>
#include <limits>

#include "tests/environment.h"
#include "tests/ops/kda_decode_family.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kH = 3;
constexpr std::int64_t kT = 8;
constexpr double kHuge = std::numeric_limits<std::int32_t>::max();

/// Every list is given, and every number in it is fine; 0 is no padding.
Bundle call_of(const std::string& op, std::uint64_t seed) {
  const DecodeLayer decode = {.B = 5, .H = kH, .slots = 9, .seed = seed};
  Bundle b;
  if (op == "kda_fused_decode") b = decode_layer(decode);
  if (op == "kda_packed_decode") b = packed_layer(decode);
  if (op == "kda_verify") {
    b = verify_layer({.N = 3, .T = kT, .H = kH, .slots = 9, .indices = {7, 0, 4}, .seed = seed});
    b.tensors["ring_indices"] = integers(DType::kI32, {2, 8, 0});
    b.tensors["scratch_indices"] = integers(DType::kI32, {1, 2, 0});
    b.scalars["max_query_len"] = std::to_string(kT);
  }
  if (op == "kda_replay_commit") {
    b = commit_layers({.layers = 2, .B = 9, .H = kH, .L = kT, .seed = seed});
    b.tensors["state_indices"] = integers(DType::kI32, {7, 0, 4});
    b.tensors["accept_lens"] = integers(DType::kI32, {8, 3, 5});
    b.tensors["ring_indices"] = integers(DType::kI32, {2, 8, 0});
    b.tensors["scratch_indices"] = integers(DType::kI32, {1, 8, 4});
    b.tensors["track_indices"] = integers(DType::kI32, {1, 2, 3});
    b.tensors["track_steps"] = integers(DType::kI32, {2, -1, 4});
    Random random(seed + 100);
    b.tensors["conv_scratch"] = normal(random, DType::kBF16, b.tensors.at("conv_scratch").shape());
  }
  if (op == "kda_output_norm") {
    Random random(seed);
    for (const char* name : {"raw", "gate"})
      b.tensors[name] = normal(random, DType::kBF16, {5, kH * kHeadDim});
    b.tensors["weight"] = normal(random, DType::kF32, {kHeadDim});
    b.tensors["out"] = poisoned(DType::kBF16, {5, kH * kHeadDim});
    return b;
  }
  draw_pools(b, DType::kF32, seed + 200);
  return b;
}

/// The same tensors with other values in all of them, and other requests.
Bundle changed_call(const std::string& op) {
  Bundle b = call_of(op, 2);
  const auto list = [&](const char* name, const std::vector<std::int64_t>& values) {
    b.tensors.at(name) = integers(DType::kI32, values);
  };
  if (op == "kda_fused_decode" || op == "kda_packed_decode")
    list("state_indices", {2, -1, 0, 8, -1});
  if (op == "kda_verify") {
    list("state_indices", {1, -1, 5});
    list("query_start_loc", {1, 6, 9, 17});
    list("ring_indices", {0, 3, 7});
    list("scratch_indices", {2, 1, 0});
  }
  if (op == "kda_replay_commit") {
    list("state_indices", {-1, 6, 2});
    list("accept_lens", {4, 8, 0});
    list("ring_indices", {1, 5, 3});
    list("scratch_indices", {3, 7, 2});
    list("track_indices", {0, 4, 5});
    list("track_steps", {1, 6, 1});
  }
  return b;
}

class GraphReplay : public FamilyOnDevice {};

TEST_P(GraphReplay, FollowsWhatItsTensorsHold) {
  const char* const op = GetParam();
  const Bundle first = call_of(op, 1);
  const Bundle second = changed_call(op);
  for (const std::string& variant : variants_of(op, RunOn::kCuda)) {
    const Bundle of_first = run_on(RunOn::kCuda, op, first, variant);
    const Bundle of_second = run_on(RunOn::kCuda, op, second, variant);
    ASSERT_NE(difference(first, of_first), "");
    DeviceBundle tensors(first);
    const DeviceCall call = {find_driver(op), tensors.call(), variant};
    DeviceGraph graph({&call, 1});
    Bundle seen = first.clone();
    tensors.download(seen);
    EXPECT_EQ(difference(first, seen), "") << variant << " ran while it was captured";
    for (const auto& [before, after] :
         {std::pair{&first, &of_first}, {&second, &of_second}, {&first, &of_first}}) {
      tensors.upload(*before);
      graph.replay();
      tensors.download(seen);
      EXPECT_EQ(difference(*after, seen), "") << variant;
    }
  }
}

TEST_P(GraphReplay, GivesTheSameBitsEveryTime) {
  const char* const op = GetParam();
  const Bundle input = call_of(op, 1);
  for (const std::string& variant : variants_of(op, RunOn::kCuda)) {
    const Bundle expected = run_on(RunOn::kCuda, op, input, variant);
    DeviceBundle tensors(input);
    const DeviceCall call = {find_driver(op), tensors.call(), variant};
    DeviceGraph graph({&call, 1});
    Bundle seen = input.clone();
    for (int replay = 0; replay < 100; ++replay) {
      tensors.upload(input);
      graph.replay();
      tensors.download(seen);
      ASSERT_EQ(difference(expected, seen), "") << variant << ", replay " << replay;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GraphReplay, testing::ValuesIn(kFamily), device_test_name);

/// Calls of all ops on one set of tensors, one behind the other, each of which reads what the last
/// one wrote: with nothing between them, a launch that does not wait for its turn is seen.
class Overlap : public testing::TestWithParam<std::int64_t> {};

std::vector<DeviceCall> rounds_of(const DeviceBundle& verify, const DeviceBundle& commit,
                                  const DeviceBundle& decode, const DeviceBundle& norm) {
  const auto with = [](Call call, const Call& from, std::initializer_list<const char*> names) {
    for (const char* name : names) call.tensors[name] = from.tensor(name);
    return call;
  };
  const Call pools = verify.call();
  Call normed = norm.call();
  normed.tensors["raw"] = decode.call().tensor("out");
  std::vector<DeviceCall> calls;
  for (int round = 0; round < 4; ++round) {
    calls.push_back({find_driver("kda_verify"), verify.call(), ""});
    calls.push_back({find_driver("kda_replay_commit"),
                     with(commit.call(), pools,
                          {"state", "conv_states", "ring_k", "ring_v", "ring_g", "ring_beta",
                           "conv_scratch", "state_indices"}),
                     ""});
    for (int step = 0; step < 3; ++step)
      calls.push_back({find_driver("kda_fused_decode"),
                       with(decode.call(), pools, {"state", "conv_states", "state_indices"}), ""});
    calls.push_back({find_driver("kda_output_norm"), normed, ""});
  }
  return calls;
}

TEST_P(Overlap, ChangesNoBit) {
  if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  const std::int64_t N = GetParam();
  Bundle verify = verify_layer({.N = N, .T = kT, .H = kH, .slots = N + 1});
  draw_pools(verify, DType::kF32, 61);
  Bundle commit;
  std::vector<std::int64_t> accepted;
  for (std::int64_t n = 0; n < N; ++n) accepted.push_back(n % (kT + 1));
  commit.tensors["accept_lens"] = integers(DType::kI32, accepted);
  const Bundle decode = decode_layer({.B = N, .H = kH, .slots = N + 1});
  Bundle norm;
  norm.tensors["gate"] = decode.tensors.at("onorm_gate");
  norm.tensors["weight"] = decode.tensors.at("onorm_weight");
  norm.tensors["out"] = decode.tensors.at("out");

  enum Mode { kOneByOne, kInAStream, kInAGraph };
  std::vector<Bundle> results[3];
  for (const Mode mode : {kOneByOne, kInAStream, kInAGraph}) {
    const DeviceBundle tensors[] = {DeviceBundle(verify), DeviceBundle(commit),
                                    DeviceBundle(decode), DeviceBundle(norm)};
    const auto calls = rounds_of(tensors[0], tensors[1], tensors[2], tensors[3]);
    if (mode == kOneByOne)
      for (const DeviceCall& call : calls) run_on_device({&call, 1});
    if (mode == kInAStream) run_on_device(calls);
    if (mode == kInAGraph) DeviceGraph(calls).replay();
    const Bundle* const inputs[] = {&verify, &commit, &decode, &norm};
    for (int i = 0; i < 4; ++i) {
      results[mode].push_back(inputs[i]->clone());
      tensors[i].download(results[mode].back());
    }
  }
  EXPECT_NE(difference(verify, results[kOneByOne][0]), "");
  for (const Mode mode : {kInAStream, kInAGraph})
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(difference(results[kOneByOne][i], results[mode][i]), "") << "mode " << mode;
}

/// As many requests as take every branch of the policies.
INSTANTIATE_TEST_SUITE_P(All, Overlap, testing::Values(2, 30, 64, 200), [](const auto& info) {
  return "on_cuda_requests_" + std::to_string(info.param);
});

using Edit = std::function<void(Bundle&)>;

Edit with_value(const char* list, std::int64_t n, double value) {
  return [=](Bundle& b) { b.tensors.at(list).set(n, value); };
}

/// Something that the host refuses and a device must live with.
struct BadValue {
  const char* op;
  const char* name;
  const char* argument;  ///< that the debug check names
  Edit edit;
  Edit same_as;  ///< the good call that writes the same
  /// What of its result nothing was written to, after all: rows of these tensors stay.
  std::vector<std::pair<const char*, std::int64_t>> kept;
};

void PrintTo(const BadValue& v, std::ostream* os) { *os << v.op << " " << v.name; }

Edit nothing() {
  return [](Bundle&) {};
}

std::vector<BadValue> bad_values() {
  std::vector<BadValue> all;
  for (const char* op : {"kda_fused_decode", "kda_packed_decode", "kda_verify"}) {
    all.push_back({op, "slot_past_the_pool", "state_indices", with_value("state_indices", 1, 9),
                   with_value("state_indices", 1, -1)});
    all.push_back({op, "slot_huge", "state_indices", with_value("state_indices", 2, kHuge),
                   with_value("state_indices", 2, -1)});
  }
  const auto starts = [](const std::vector<std::int64_t>& values) {
    return [=](Bundle& b) { b.tensors.at("query_start_loc") = integers(DType::kI32, values); };
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto verify = [&](const char* name, const std::vector<std::int64_t>& bad,
                          const std::vector<std::int64_t>& good) {
    all.push_back({"kda_verify", name, "query_start_loc", starts(bad), starts(good)});
  };
  verify("start_decreases", {0, 8, 16, 9}, {0, 8, 16, 16});
  verify("start_falls_below_0", {0, 8, 16, -kMost}, {0, 8, 16, 16});
  verify("start_below_0", {-kMost, 8, 16, 24}, {0, 8, 16, 24});
  verify("start_past_the_tokens", {4, 12, 20, 25}, {4, 12, 20, 24});
  verify("start_huge", {0, 8, kMost, kMost}, {0, 8, 16, 16});
  verify("request_too_long", {0, 4, 8, 24}, {0, 4, 8, 16});
  const std::vector<std::pair<const char*, std::int64_t>> ring_1 = {
      {"ring_k", 8}, {"ring_v", 8}, {"ring_g", 8}, {"ring_beta", 8}};
  for (const auto& [name, value] : {std::pair{"ring_row_below_0", -1.0},
                                    {"ring_row_past_the_rings", 9.0},
                                    {"ring_row_huge", kHuge}})
    all.push_back({"kda_verify", name, "ring_indices", with_value("ring_indices", 1, value),
                   nothing(), ring_1});
  for (const auto& [name, value] : {std::pair{"scratch_row_below_0", -1.0},
                                    {"scratch_row_past_the_scratch", 3.0},
                                    {"scratch_row_huge", kHuge}}) {
    all.push_back({"kda_verify",
                   name,
                   "scratch_indices",
                   with_value("scratch_indices", 1, value),
                   nothing(),
                   {{"conv_scratch", 2}}});
  }
  const auto commit = [&](const char* name, const char* list, std::int64_t n, double value,
                          const char* same_list, double same_value) {
    all.push_back({"kda_replay_commit", name, list, with_value(list, n, value),
                   with_value(same_list, n, same_value)});
  };
  commit("slot_past_the_pool", "state_indices", 1, 9, "state_indices", -1);
  commit("slot_huge", "state_indices", 0, kHuge, "state_indices", -1);
  commit("ring_row_past_the_rings", "ring_indices", 1, 9, "state_indices", -1);
  commit("ring_row_below_0", "ring_indices", 2, -1, "state_indices", -1);
  commit("accepts_too_many", "accept_lens", 1, 9, "accept_lens", 8);
  commit("accepts_huge", "accept_lens", 2, kHuge, "accept_lens", 8);
  commit("track_slot_past_the_pool", "track_indices", 0, 9, "track_indices", -1);
  commit("track_slot_huge", "track_indices", 2, kHuge, "track_indices", -1);
  commit("track_step_past_the_chain", "track_steps", 0, 8, "track_steps", -1);
  // Request 1 has slot 0 and tracks nothing: its window alone stays.
  for (const auto& [name, value] :
       {std::pair{"scratch_row_below_0", -1.0}, {"scratch_row_past_the_scratch", 9.0}})
    all.push_back({"kda_replay_commit",
                   name,
                   "scratch_indices",
                   with_value("scratch_indices", 1, value),
                   nothing(),
                   {{"conv_states", 0}}});
  return all;
}

class BadValueOnDevice : public testing::TestWithParam<BadValue> {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

/// Row `row` of the slots or rows of `to` becomes that of `from`, in every layer where there are
/// any.
void restore_row(const char* name, std::int64_t row, const Bundle& from, Bundle& to) {
  const Tensor& before = from.tensors.at(name);
  Tensor& after = to.tensors.at(name);
  const bool layered = from.tensors.contains("accept_lens");
  const std::int64_t layers = layered ? before.shape()[0] : 1;
  const std::int64_t rows = before.shape()[layered ? 1 : 0];
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto bytes = piece(before, layer * rows + row, layers * rows);
    std::memcpy(after.storage() + (bytes.data() - before.storage()), bytes.data(), bytes.size());
  }
}

TEST_P(BadValueOnDevice, WritesNothingStray) {
  const BadValue& p = GetParam();
  Bundle bad = call_of(p.op, 3);
  Bundle good = bad.clone();
  p.edit(bad);
  p.same_as(good);
  for (const std::string& variant : variants_of(p.op, RunOn::kCuda)) {
    Bundle expected = run_on(RunOn::kCuda, p.op, good, variant);
    for (const auto& [name, row] : p.kept) restore_row(name, row, good, expected);
    for (const auto& [name, tensor] : bad.tensors)
      if (tensor.dtype() == DType::kI32) expected.tensors[name] = tensor.clone();
    EXPECT_EQ(difference(expected, run_on(RunOn::kCuda, p.op, bad, variant)), "") << variant;
  }
}

TEST_P(BadValueOnDevice, IsReportedByTheDebugChecks) {
  const BadValue& p = GetParam();
  Bundle bad = call_of(p.op, 3);
  const Environment checks("K3_DEBUG_CHECKS", "1");
  EXPECT_NO_THROW(run_on(RunOn::kCuda, p.op, bad));
  p.edit(bad);
  try {
    run_on(RunOn::kCuda, p.op, bad);
    FAIL() << "not reported";
  } catch (const ContractError& error) {
    EXPECT_EQ(error.argument(), p.argument) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadValueOnDevice, testing::ValuesIn(bad_values()),
                         [](const auto& info) {
                           return "on_cuda_" + std::string(info.param.op) + "_" + info.param.name;
                         });

class DuplicateOnDevice : public FamilyOnDevice {};

TEST_P(DuplicateOnDevice, IsReportedByTheDebugChecks) {
  const std::string op = GetParam();
  std::vector<std::pair<const char*, double>> lists = {{"state_indices", 7}};  // as request 0
  if (op == "kda_verify") lists = {{"ring_indices", 2}, {"scratch_indices", 1}};
  if (op == "kda_replay_commit") lists.emplace_back("track_indices", 7);
  const Environment checks("K3_DEBUG_CHECKS", "1");
  for (const auto& [list, value] : lists) {
    Bundle call = call_of(op, 3);
    if (op.ends_with("decode")) call.tensors.at(list).set(0, value);
    call.tensors.at(list).set(2, value);
    try {
      run_on(RunOn::kCuda, GetParam(), call);
      ADD_FAILURE() << list << " not reported";
    } catch (const ContractError& error) {
      EXPECT_EQ(error.argument(), list) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DuplicateOnDevice,
                         testing::Values("kda_fused_decode", "kda_packed_decode", "kda_verify",
                                         "kda_replay_commit"),
                         device_test_name);

class CommitOnDevice : public FamilyOnDevice {};

/// More tokens accepted than the scratch has windows: the last of these counts.
TEST_P(CommitOnDevice, RollsToTheLastWindowThereIs) {
  const char* const op = GetParam();
  Bundle past = call_of(op, 5);
  past.tensors.at("accept_lens").set(0, 7);
  const Bundle with_windows = past.clone();
  past.tensors["conv_scratch"] = slice(past.tensors.at("conv_scratch"), 2, 0, 5);
  Bundle shorter = past.clone();
  shorter.tensors.at("accept_lens").set(0, 5);
  for (const std::string& variant : variants_of(op, RunOn::kCuda)) {
    Bundle expected = past.clone();
    expected.tensors["state"] = run_on(RunOn::kCuda, op, with_windows, variant).tensors.at("state");
    expected.tensors["conv_states"] =
        run_on(RunOn::kCuda, op, shorter, variant).tensors.at("conv_states");
    EXPECT_EQ(difference(expected, run_on(RunOn::kCuda, op, past, variant)), "") << variant;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CommitOnDevice, testing::Values("kda_replay_commit"),
                         device_test_name);

}  // namespace
}  // namespace k3::harness
