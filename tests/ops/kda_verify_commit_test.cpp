// SPDX-License-Identifier: Apache-2.0
// kda_verify, then kda_replay_commit of what it left behind: states and windows are those of as
// many fused decodes, bit for bit.
#include <algorithm>
#include <vector>

#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kH = 2;
constexpr std::int64_t kD = 128;
/// Slot (negative: padding) and draft length of every request; slots 2 and 6 belong to none.
constexpr std::int64_t kSlots[] = {4, -1, 0, 5, 3, -1, 1};
constexpr std::int64_t kLengths[] = {8, 3, 1, 0, 5, 0, 8};
constexpr std::int64_t kRequests = std::size(kSlots);
constexpr std::int64_t kPool = 7;

struct Layer {
  DType state;
  DType ring_g;
  bool own_rows;  ///< ring and scratch rows of their own, else the slot's and the request's
  const char* lower_bound;
};

std::int64_t first_token(std::int64_t n) {
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < n; ++i) first += kLengths[i];
  return first;
}

Bundle verify_call(const Layer& layer) {
  Bundle b = verify_layer({.N = kRequests,
                           .T = kTokens,
                           .H = kH,
                           .slots = kPool,
                           .indices = {std::begin(kSlots), std::end(kSlots)}});
  Random random(23);
  b.tensors["state"] = normal(random, layer.state, {kPool, kH, kD, kD});
  b.tensors["ring_g"] = poisoned(layer.ring_g, {kPool, kH, kTokens, kD});
  std::vector<std::int64_t> starts;
  for (std::int64_t n = 0; n <= kRequests; ++n) starts.push_back(first_token(n));
  b.tensors["query_start_loc"] = integers(DType::kI32, starts);
  if (layer.own_rows) {
    b.tensors["ring_indices"] = integers(DType::kI32, {3, 2, 6, 1, 5, 4, 0});
    b.tensors["scratch_indices"] = integers(DType::kI32, {2, 6, 5, 0, 4, 1, 3});
  }
  b.scalars["max_query_len"] = std::to_string(kTokens);
  b.scalars["lower_bound"] = layer.lower_bound;
  return b;
}

/// Takes over the first `A` tokens of every request, or all where it has fewer.
Bundle commit_call(const Bundle& verified, std::int64_t A) {
  Bundle b;
  for (const char* name : {"state", "conv_states", "ring_k", "ring_v", "ring_g", "ring_beta",
                           "conv_scratch", "state_indices", "ring_indices", "scratch_indices"})
    if (verified.tensors.contains(name)) b.tensors[name] = verified.tensors.at(name);
  if (b.tensors.at("ring_g").dtype() == DType::kBF16) {
    for (const char* name : {"A_log", "dt_bias"}) b.tensors[name] = verified.tensors.at(name);
    b.scalars["lower_bound"] = verified.scalars.at("lower_bound");
  }
  std::vector<std::int64_t> accepted;
  for (const std::int64_t length : kLengths) accepted.push_back(std::min(A, length));
  b.tensors["accept_lens"] = integers(DType::kI32, accepted);
  return b;
}

/// Token t of every request that has one, from the states and windows that `pools` holds.
Bundle decode_call(const Bundle& verify, const Bundle& pools, std::int64_t t) {
  Bundle b;
  for (const char* name : {"conv_weight", "A_log", "dt_bias", "onorm_weight"})
    b.tensors[name] = verify.tensors.at(name);
  for (const char* name : {"state", "conv_states"}) b.tensors[name] = pools.tensors.at(name);
  std::vector<std::int64_t> slots;
  for (std::int64_t n = 0; n < kRequests; ++n) slots.push_back(t < kLengths[n] ? kSlots[n] : -1);
  b.tensors["state_indices"] = integers(DType::kI32, slots);
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate"}) {
    const Tensor& all = verify.tensors.at(name);
    const std::int64_t width = all.shape()[1];
    Tensor tokens = Tensor::dense(all.dtype(), {kRequests, width});
    for (std::int64_t n = 0; n < kRequests; ++n)
      for (std::int64_t i = 0; t < kLengths[n] && i < width; ++i)
        tokens.set(n * width + i, all.get((first_token(n) + t) * width + i));
    b.tensors[name] = tokens;
  }
  b.tensors["out"] = poisoned(DType::kBF16, {kRequests, kH * kD});
  b.scalars["lower_bound"] = verify.scalars.at("lower_bound");
  return b;
}

class VerifyThenCommit : public testing::TestWithParam<std::tuple<DType, DType, bool>> {};

TEST_P(VerifyThenCommit, EqualsFusedDecodes) {
  const auto [state, ring_g, own_rows] = GetParam();
  for (const char* lower_bound : {"-5", ""}) {
    const Bundle verify = verify_call({state, ring_g, own_rows, lower_bound});
    const Bundle verified = run_cpu("kda_verify", verify);
    Bundle decoded = verify;
    for (std::int64_t A = 0; A <= kTokens; ++A) {
      const Bundle committed = run_cpu("kda_replay_commit", commit_call(verified, A));
      for (const char* name : {"state", "conv_states"})
        EXPECT_TRUE(same_bits(decoded.tensors.at(name), committed.tensors.at(name)))
            << name << " after " << A << " tokens, lower_bound " << lower_bound;
      if (A < kTokens) decoded = run_cpu("kda_fused_decode", decode_call(verify, decoded, A));
    }
    for (const char* name : {"state", "conv_states"})
      EXPECT_FALSE(same_bits(decoded.tensors.at(name), verify.tensors.at(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, VerifyThenCommit,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Bool()),
                         [](const auto& info) {
                           const auto name = [](DType dtype) {
                             return std::string(dtype == DType::kF32 ? "F32" : "BF16");
                           };
                           return name(std::get<0>(info.param)) + "StateRingG" +
                                  name(std::get<1>(info.param)) +
                                  (std::get<2>(info.param) ? "OwnRows" : "");
                         });

}  // namespace
}  // namespace k3::harness
