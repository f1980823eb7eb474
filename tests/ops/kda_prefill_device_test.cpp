// SPDX-License-Identifier: Apache-2.0
// What kda_prefill promises of a device alone: graphs that follow their tensors, launches that
// overlap, and values of cu_seqlens and of indices that no host check has seen.
#include <limits>

#include "tests/ops/kda_prefill_calls.h"

namespace k3::harness {
namespace {

using Sizes = std::vector<std::int64_t>;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

/// Two calls with the same shapes and other values in every tensor.
PrefillCall first_call(std::int64_t H, DType cu) {
  return {.lengths = {130, 0, 70, 64, 136},
          .H = H,
          .cu = cu,
          .slots = {7, 0, 4, -1, 8},
          .track = {1, 0, -1, 1, 2},
          .seed = 11};
}
PrefillCall second_call(std::int64_t H, DType cu) {
  return {.lengths = {1, 199, 0, 65, 135},
          .H = H,
          .cu = cu,
          .slots = {-1, 5, 0, 8, 2},
          .track = {-1, 3, 0, -1, 1},
          .seed = 12};
}

class PrefillOnDevice : public PrefillOn {};

TEST_P(PrefillOnDevice, GraphFollowsWhatItsTensorsHold) {
  for (const std::int64_t H : {kFewHeads, kManyHeads})
    for (const DType cu : {DType::kI32, DType::kI64}) {
      SCOPED_TRACE(testing::Message() << H << " heads, cu_seqlens " << name_of(cu));
      const Bundle first = prefill_call(first_call(H, cu));
      const Bundle second = prefill_call(second_call(H, cu));
      const Bundle of_first = run(first);
      const Bundle of_second = run(second);
      ASSERT_NE(difference(of_first, of_second), "");
      DeviceBundle tensors(first);
      const DeviceCall call = {find_driver(kPrefill), tensors.call(), GetParam().variant};
      DeviceGraph graph({&call, 1});
      Bundle seen = first.clone();
      tensors.download(seen);
      EXPECT_EQ(difference(first, seen), "") << "ran while it was captured";
      for (const auto& [before, after] :
           {std::pair{&first, &of_first}, {&second, &of_second}, {&first, &of_first}}) {
        tensors.upload(*before);
        graph.replay();
        tensors.download(seen);
        EXPECT_EQ(difference(*after, seen), "");
      }
    }
}

TEST_P(PrefillOnDevice, GivesTheSameBitsEveryTime) {
  for (const std::int64_t H : {kFewHeads, kManyHeads}) {
    const Bundle input = prefill_call(first_call(H, DType::kI32));
    const Bundle expected = run(input);
    DeviceBundle tensors(input);
    const DeviceCall call = {find_driver(kPrefill), tensors.call(), GetParam().variant};
    DeviceGraph graph({&call, 1});
    Bundle seen = input.clone();
    for (int replay = 0; replay < 20; ++replay) {
      tensors.upload(input);
      graph.replay();
      tensors.download(seen);
      ASSERT_EQ(difference(expected, seen), "") << H << " heads, replay " << replay;
    }
  }
}

/// Twenty calls one behind the other, each of which updates the pool that the last one left, with
/// chunks enough and with one token a sequence: a launch that does not wait for its turn, or that
/// gives up its workspace too early, is seen.
TEST_P(PrefillOnDevice, CallsThatOverlapChangeNoBit) {
  constexpr int kRounds = 10;
  for (const std::int64_t H : {kFewHeads, kManyHeads}) {
    const Bundle prompts = prefill_call(first_call(H, DType::kI32));
    const Bundle tokens =
        prefill_call({.lengths = {1, 1, 0, 1, 1}, .H = H, .slots = {4, 7, 1, 0, 8}, .seed = 13});
    enum Mode { kOneByOne, kInAStream, kInAStreamWithOneWorkspace, kInAGraphWithOneWorkspace };
    std::vector<Bundle> results[4];
    for (const Mode mode :
         {kOneByOne, kInAStream, kInAStreamWithOneWorkspace, kInAGraphWithOneWorkspace}) {
      const DeviceBundle on_device[] = {DeviceBundle(prompts), DeviceBundle(tokens)};
      std::vector<DeviceCall> calls;
      for (int i = 0; i < 2 * kRounds; ++i) {
        Call call = on_device[i % 2].call();
        const TensorView pool = on_device[0].call().tensor("initial_state");
        call.tensors["initial_state"] = pool;
        call.tensors["final_state"] = pool;
        calls.push_back({find_driver(kPrefill), call, GetParam().variant});
      }
      if (mode == kOneByOne)
        for (const DeviceCall& call : calls) run_on_device({&call, 1});
      if (mode == kInAStream) run_on_device(calls);
      if (mode == kInAStreamWithOneWorkspace) run_on_device(calls, {.shared = true});
      if (mode == kInAGraphWithOneWorkspace) DeviceGraph(calls, {.shared = true}).replay();
      for (int i = 0; i < 2; ++i) {
        results[mode].push_back((i == 0 ? prompts : tokens).clone());
        on_device[i].download(results[mode].back());
      }
    }
    EXPECT_NE(difference(prompts, results[kOneByOne][0]), "");
    for (const Mode mode : {kInAStream, kInAStreamWithOneWorkspace, kInAGraphWithOneWorkspace})
      for (int i = 0; i < 2; ++i)
        EXPECT_EQ(difference(results[kOneByOne][i], results[mode][i]), "")
            << H << " heads, mode " << mode;
  }
}

constexpr std::int64_t kTokens = 165;

/// The call that values are spoiled in.
Bundle sound_call(std::int64_t H, DType cu = DType::kI32) {
  return prefill_call({.lengths = {70, 60, 35},
                       .H = H,
                       .cu = cu,
                       .slots = {7, 0, 4},
                       .track = {1, -1, 0},
                       .seed = 14});
}

/// Values of one list that a host refuses, and those that a device must take them for.
struct WrongValues {
  const char* list;
  Sizes wrong;
  Sizes meant;
};

TEST_P(PrefillOnDevice, TakesWrongValuesForWhatTheContractSays) {
  const WrongValues all[] = {
      {"cu_seqlens", {0, 70, 130, kTokens + 1}, {0, 70, 130, kTokens}},
      {"cu_seqlens", {0, 70, 1000, kTokens}, {0, 70, kTokens, kTokens}},
      {"cu_seqlens", {0, 70, kMost, kMost}, {0, 70, kTokens, kTokens}},
      {"cu_seqlens", {-1, 70, 130, kTokens}, {0, 70, 130, kTokens}},
      {"cu_seqlens", {-kMost, -64, 130, kTokens}, {0, 0, 130, kTokens}},
      {"state_indices", {7, kPoolSlots, 4}, {7, -1, 4}},
      {"state_indices", {7, 0, kMost}, {7, 0, -1}},
      {"state_indices", {-kMost, 0, 4}, {-1, 0, 4}},
      {"track_chunk_idx", {2, -1, 0}, {-1, -1, 0}},
      {"track_chunk_idx", {1, 1, kMost}, {1, -1, -1}},
      {"track_chunk_idx", {1, -kMost, 0}, {1, -1, 0}},
  };
  const std::pair<std::int64_t, DType> calls[] = {
      {kFewHeads, DType::kI32}, {kFewHeads, DType::kI64}, {kManyHeads, DType::kI32}};
  for (const auto& [H, cu] : calls)
    for (const auto& [list, wrong, meant] : all) {
      SCOPED_TRACE(testing::Message()
                   << H << " heads, " << list << " " << testing::PrintToString(wrong));
      Bundle bad = sound_call(H, cu);
      Bundle good = bad.clone();
      // A tracked chunk must be one of the sequences that are meant.
      if (std::string(list) == "cu_seqlens")
        for (Bundle* b : {&bad, &good}) b->tensors.at("track_chunk_idx").fill(0.0);
      bad.tensors.at(list) = integers(bad.tensors.at(list).dtype(), wrong);
      good.tensors.at(list) = integers(bad.tensors.at(list).dtype(), meant);
      Bundle seen = run(bad);
      seen.tensors[list] = good.tensors.at(list).clone();
      EXPECT_EQ(difference(run(good), seen), "");
    }
}

TEST_P(PrefillOnDevice, ClampsBoundariesOfSixtyFourBits) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;  // 0 in its lower half
  for (const auto& [wrong, meant] :
       {std::pair<Sizes, Sizes>{{0, 70, kFar + 130, kFar}, {0, 70, kTokens, kTokens}},
        {{-kFar, 70, 130, kTokens}, {0, 70, 130, kTokens}}}) {
    Bundle bad = sound_call(kFewHeads, DType::kI64);
    bad.tensors.at("track_chunk_idx").fill(0.0);
    Bundle good = bad.clone();
    bad.tensors.at("cu_seqlens") = integers(DType::kI64, wrong);
    good.tensors.at("cu_seqlens") = integers(DType::kI64, meant);
    Bundle seen = run(bad);
    seen.tensors["cu_seqlens"] = good.tensors.at("cu_seqlens").clone();
    EXPECT_EQ(difference(run(good), seen), "") << testing::PrintToString(wrong);
  }
}

/// Sequences that overlap have results that mean nothing, more chunks than there are rows among
/// them; but their own slots, the rows of their tokens and nothing else may change.
TEST_P(PrefillOnDevice, WritesNothingStrayWhereBoundariesDecrease) {
  for (const std::int64_t H : {kFewHeads, kManyHeads})
    for (const DType cu : {DType::kI32, DType::kI64})
      for (const Sizes& boundaries :
           {Sizes{0, 70, 40, kTokens}, Sizes{0, kTokens, 0, kTokens}, Sizes{kTokens, 70, 40, 0},
            Sizes{kTokens, 0, kTokens, 0}, Sizes{100, 100, 30, 90}}) {
        SCOPED_TRACE(testing::Message() << H << " heads, " << testing::PrintToString(boundaries));
        Bundle before = sound_call(H, cu);
        before.tensors["cu_seqlens"] = integers(cu, boundaries);
        Bundle after = run(before);  // guard bytes are looked at here
        const auto slots = before.tensors.at("state_indices").values();
        for (std::int64_t slot = 0; slot < kPoolSlots; ++slot) {
          if (std::find(slots.begin(), slots.end(), static_cast<double>(slot)) != slots.end())
            continue;
          EXPECT_TRUE(same_bytes(piece(before.tensors.at("final_state"), slot, kPoolSlots),
                                 piece(after.tensors.at("final_state"), slot, kPoolSlots)))
              << "slot " << slot;
        }
        for (const char* output : {"out", "final_state", "chunk_states", "tracked_states"}) {
          before.tensors.erase(output);
          after.tensors.erase(output);
        }
        EXPECT_EQ(difference(before, after), "");
      }
}

TEST_P(PrefillOnDevice, LeavesTokensBehindTheLastBoundary) {
  constexpr std::int64_t kEnd = 150;
  const Bundle whole = sound_call(kFewHeads);
  Bundle shorter = whole.clone();
  for (const char* name : {"q", "k", "v", "g", "beta", "out"})
    shorter.tensors[name] = slice(whole.tensors.at(name), 1, 0, kEnd);
  Bundle ends_early = whole.clone();
  for (Bundle* b : {&shorter, &ends_early})
    b->tensors["cu_seqlens"] = integers(DType::kI32, {0, 70, 130, kEnd});
  const Bundle expected = run(shorter);
  const Bundle seen = run(ends_early);
  for (const char* name : {"final_state", "chunk_states", "tracked_states"})
    EXPECT_TRUE(
        same_bytes(piece(expected.tensors.at(name), 0, 1), piece(seen.tensors.at(name), 0, 1)))
        << name;
  const Tensor& out = seen.tensors.at("out");
  EXPECT_TRUE(same_bytes(piece(expected.tensors.at("out"), 0, 1), rows_of(out, kTokens, 0, kEnd)));
  EXPECT_TRUE(same_bytes(rows_of(whole.tensors.at("out"), kTokens, kEnd, kTokens),
                         rows_of(out, kTokens, kEnd, kTokens)));
}

/// Rows that are not there are not written; DeviceBundle looks at the bytes behind the last one.
TEST_P(PrefillOnDevice, WritesNoChunkStateBehindTheLastRow) {
  for (const std::int64_t H : {kFewHeads, kManyHeads}) {
    const Bundle whole = sound_call(H);
    const Bundle expected = run(whole);
    for (const std::int64_t rows : {1, 3}) {
      Bundle few = whole.clone();
      few.tensors["chunk_states"] = poisoned(DType::kF32, {rows, H, kChannels, kChannels});
      Bundle seen = run(few);
      const Tensor& all = expected.tensors.at("chunk_states");
      EXPECT_TRUE(same_bytes(rows_of(all, all.shape()[0], 0, rows),
                             piece(seen.tensors.at("chunk_states"), 0, 1)))
          << rows << " rows";
      seen.tensors["chunk_states"] = all.clone();
      EXPECT_EQ(difference(expected, seen), "") << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PrefillOnDevice, testing::ValuesIn(cuda_machines()),
                         machine_test_name);

}  // namespace
}  // namespace k3::harness
