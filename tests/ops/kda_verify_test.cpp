// SPDX-License-Identifier: Apache-2.0
// What must hold between calls of kda_verify, and between it and kda_fused_decode.
#include "k3/ops/kda_verify.h"

#include <cstring>
#include <memory>
#include <vector>

#include "cpu/targets.h"
#include "harness/ops/kda_layer.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_verify";
constexpr std::int64_t kD = 128;
constexpr const char* kTokenTensors[] = {"mixed_qkv", "g", "beta", "onorm_gate"};
constexpr const char* kRings[] = {"ring_k", "ring_v", "ring_g", "ring_beta"};

/// The slice of one element of an axis.
Tensor at(const Tensor& tensor, int axis, std::int64_t index) {
  return slice(tensor, axis, index, index + 1);
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.numel() != b.numel()) return false;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    if (!std::ranges::equal(a.element(i), b.element(i))) return false;
  return true;
}

Tensor as_bf16(const Tensor& tensor) {
  Tensor result = Tensor::dense(DType::kBF16, tensor.shape());
  for (std::int64_t i = 0; i < tensor.numel(); ++i) result.set(i, tensor.get(i));
  return result;
}

Bundle with_bf16_state(Bundle b) {
  b.tensors["state"] = as_bf16(b.tensors.at("state"));
  if (b.tensors.contains("snapshots"))
    b.tensors["snapshots"] = poisoned(DType::kBF16, b.tensors.at("snapshots").shape());
  return b;
}

/// The decode call of token t of every request, on the pools of the verify call.
Bundle decode_of(const Bundle& verify, std::int64_t N, std::int64_t T, std::int64_t t) {
  Bundle b;
  for (const char* name : {"conv_states", "conv_weight", "conv_bias", "A_log", "dt_bias",
                           "onorm_weight", "state", "state_indices"})
    if (verify.tensors.contains(name)) b.tensors[name] = verify.tensors.at(name).clone();
  for (const char* name : kTokenTensors) {
    if (!verify.tensors.contains(name)) continue;
    const Tensor& all = verify.tensors.at(name);
    const std::int64_t row = all.shape()[1];
    Tensor mine = Tensor::dense(all.dtype(), {N, row});
    for (std::int64_t i = 0; i < N * row; ++i)
      mine.set(i, all.get((i / row * T + t) * row + i % row));
    b.tensors[name] = mine;
  }
  b.tensors["out"] = poisoned(DType::kBF16, b.tensors.at("g").shape());
  b.scalars = verify.scalars;
  b.scalars.erase("max_query_len");
  return b;
}

/// A chain of T tokens against T decode steps: outputs, windows and states of every token.
void expect_equal_to_decodes(const Bundle& input, std::int64_t N, std::int64_t T) {
  const Bundle chain = run_cpu(kOp, input);
  Bundle pools = input.clone();
  for (std::int64_t t = 0; t < T; ++t) {
    Bundle step = decode_of(input, N, T, t);
    step.tensors["state"] = pools.tensors.at("state");
    step.tensors["conv_states"] = pools.tensors.at("conv_states");
    step = run_cpu("kda_fused_decode", step);
    pools.tensors["state"] = step.tensors.at("state");
    pools.tensors["conv_states"] = step.tensors.at("conv_states");
    for (std::int64_t n = 0; n < N; ++n) {
      const auto slot = static_cast<std::int64_t>(input.tensors.at("state_indices").get(n));
      EXPECT_TRUE(
          same_values(at(step.tensors.at("out"), 0, n), at(chain.tensors.at("out"), 0, n * T + t)))
          << "out of request " << n << ", token " << t;
      EXPECT_TRUE(same_values(at(step.tensors.at("conv_states"), 0, slot),
                              at(at(chain.tensors.at("conv_scratch"), 0, n), 1, t)))
          << "window of request " << n << ", token " << t;
      EXPECT_TRUE(same_values(at(step.tensors.at("state"), 0, slot),
                              at(at(chain.tensors.at("snapshots"), 0, n), 1, t)))
          << "state of request " << n << ", token " << t;
    }
  }
}

class KdaVerifyChain : public testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { cpu::use_target(""); }
};

TEST_P(KdaVerifyChain, EqualsSingleDecodesBitForBit) {
  if (!cpu::use_target(GetParam())) GTEST_SKIP() << "this CPU has no " << GetParam();
  constexpr std::int64_t kN = 2;
  for (std::int64_t T : {1, 3, 16}) {
    Bundle input =
        verify_layer({.N = kN, .T = T, .H = 2, .slots = 4, .outputs = VerifyOutputs::kSnapshots});
    expect_equal_to_decodes(input, kN, T);
    expect_equal_to_decodes(with_bf16_state(input), kN, T);
    input.scalars["round_conv"] = "f32";
    input.scalars["round_o"] = "bf16";
    expect_equal_to_decodes(input, kN, T);
    expect_equal_to_decodes(with_bf16_state(input), kN, T);
    input.scalars["lower_bound"] = "";
    input.tensors.erase("onorm_gate");
    input.tensors.erase("onorm_weight");
    expect_equal_to_decodes(input, kN, T);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KdaVerifyChain, testing::ValuesIn(cpu::compiled_targets()),
                         [](const auto& info) { return info.param; });

TEST(KdaVerify, OutputDoesNotDependOnSideOutputs) {
  const Bundle rings = verify_layer({.N = 2, .T = 5, .H = 3});
  Bundle snapshots = verify_layer({.N = 2, .T = 5, .H = 3, .outputs = VerifyOutputs::kSnapshots});
  Bundle alone = rings.clone();
  for (const char* name : kRings) alone.tensors.erase(name);
  alone.tensors.erase("conv_scratch");
  for (const bool bf16_state : {false, true}) {
    const auto run = [&](const Bundle& b) {
      return run_cpu(kOp, bf16_state ? with_bf16_state(b.clone()) : b);
    };
    const Bundle a = run(rings);
    const Bundle b = run(snapshots);
    const Bundle c = run(alone);
    EXPECT_TRUE(same_bits(a.tensors.at("out"), b.tensors.at("out")));
    EXPECT_TRUE(same_bits(a.tensors.at("out"), c.tensors.at("out")));
    EXPECT_TRUE(same_bits(a.tensors.at("conv_scratch"), b.tensors.at("conv_scratch")));
  }
}

TEST(KdaVerify, BitsDoNotDependOnThreads) {
  for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots}) {
    const Bundle input = verify_layer({.N = 3, .T = 4, .H = 3, .slots = 5, .outputs = outputs});
    const Bundle one = run_cpu(kOp, input, 1);
    for (int threads : {2, 3, 7}) {
      const Bundle many = run_cpu(kOp, input, threads);
      for (const auto& [name, tensor] : one.tensors)
        EXPECT_TRUE(same_bits(tensor, many.tensors.at(name))) << name << threads;
    }
  }
}

TEST(KdaVerify, BitsOfARequestDoNotDependOnItsBatch) {
  const std::int64_t T = 3;
  const Bundle batch =
      verify_layer({.N = 3, .T = T, .H = 2, .slots = 6, .outputs = VerifyOutputs::kSnapshots});
  const Bundle all = run_cpu(kOp, batch);
  Bundle alone = batch.clone();
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
    alone.tensors[name] = slice(batch.tensors.at(name), 0, T, 2 * T);
  alone.tensors["state_indices"] = at(batch.tensors.at("state_indices"), 0, 1);
  alone.tensors["query_start_loc"] = integers(DType::kI32, {0, T});
  const Bundle one = run_cpu(kOp, alone);
  EXPECT_TRUE(same_bits(slice(all.tensors.at("out"), 0, T, 2 * T), one.tensors.at("out")));
  for (const char* name : {"snapshots", "conv_scratch"})
    EXPECT_TRUE(same_bits(at(all.tensors.at(name), 0, 1), at(one.tensors.at(name), 0, 0))) << name;
}

/// Equal strides for tokens and taps hold the same windows.
TEST(KdaVerify, SharedWindowsHoldWhatDenseOnesHold) {
  const Bundle dense = verify_layer({.N = 2, .T = 6, .H = 2});
  Bundle shared = dense.clone();
  const std::int64_t channels = 3 * 2 * kD;
  shared.tensors["conv_scratch"] =
      Tensor::strided(DType::kBF16, {2, 6, 3, channels}, {8 * channels, channels, channels, 1});
  const Bundle a = run_cpu(kOp, dense);
  const Bundle b = run_cpu(kOp, shared);
  EXPECT_TRUE(same_bits(a.tensors.at("conv_scratch"), b.tensors.at("conv_scratch")));
}

/// Every byte of an output that belongs to no token of a live request stays.
TEST(KdaVerify, WritesNothingButTheTokensOfLiveRequests) {
  const std::int64_t T = 4;
  const std::int64_t lengths[] = {1, 4, 3, 0};  // the second one is padding
  for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots}) {
    Bundle input = verify_layer(
        {.N = 4, .T = T, .H = 2, .slots = 6, .indices = {5, -1, 1, 2}, .outputs = outputs});
    input.tensors["query_start_loc"] = integers(DType::kI32, {2, 3, 7, 10, 10});
    input.tensors["scratch_indices"] = integers(DType::kI32, {3, 2, 0, 1});
    input.scalars["max_query_len"] = "4";
    const Bundle result = run_cpu(kOp, input);

    const auto expect_rows = [&](const char* name, int token_axis, const std::int64_t* rows) {
      const Tensor& before = input.tensors.at(name);
      const Tensor& after = result.tensors.at(name);
      for (std::int64_t row = 0; row < before.shape()[0]; ++row)
        for (std::int64_t t = 0; t < T; ++t) {
          const bool kept = same_bits(at(at(before, 0, row), token_axis, t),
                                      at(at(after, 0, row), token_axis, t));
          EXPECT_EQ(kept, t >= rows[row]) << name << " " << row << " " << t;
        }
    };
    const std::int64_t scratch_rows[] = {lengths[2], 0, 0, lengths[0]};
    const std::int64_t ring_rows[] = {0, lengths[2], 0, 0, 0, lengths[0]};
    expect_rows("conv_scratch", 1, scratch_rows);
    if (outputs == VerifyOutputs::kSnapshots)
      expect_rows("snapshots", 1, scratch_rows);
    else
      for (const char* name : kRings) expect_rows(name, 2, ring_rows);
    for (std::int64_t token = 0; token < 16; ++token) {
      const Tensor row = at(result.tensors.at("out"), 0, token);
      const bool owned = token >= 2 && token < 10;
      const bool padding = token >= 3 && token < 7;
      EXPECT_EQ(same_bits(row, at(input.tensors.at("out"), 0, token)), !owned) << token;
      if (!padding) continue;
      for (double value : row.values()) ASSERT_EQ(value, 0.0) << token;
    }
  }
}

/// Equal strides again: past a request's windows the scratch stays, too.
TEST(KdaVerify, SharedWindowsEndWithTheRequest) {
  const std::int64_t channels = 3 * kD;
  Bundle input = verify_layer({.N = 1, .T = 5, .H = 1});
  input.tensors["query_start_loc"] = integers(DType::kI32, {0, 2});
  input.tensors["conv_scratch"] =
      Tensor::strided(DType::kBF16, {1, 5, 3, channels}, {0, channels, channels, 1});
  input.scalars["max_query_len"] = "5";
  const Bundle result = run_cpu(kOp, input);
  const std::byte* const bytes = result.tensors.at("conv_scratch").storage();
  const std::int64_t row = channels * 2;
  for (std::int64_t i = 0; i < 7 * row; ++i) {
    const bool written = std::memcmp(bytes + i / row * row,
                                     input.tensors.at("conv_scratch").storage() + i / row * row,
                                     static_cast<std::size_t>(row)) != 0;
    ASSERT_EQ(written, i / row < 4) << i;
  }
}

/// A view moved into `buffer`, at index `row` of its first axis under a stride of `stride`.
void stretch(Call& call, const char* name, const SparseBuffer& buffer, std::int64_t row,
             std::int64_t stride) {
  TensorView& view = call.tensors.at(name);
  const std::int64_t bytes = view.numel() * static_cast<std::int64_t>(size_of(view.dtype));
  std::byte* const to = buffer.at(row * stride * static_cast<std::int64_t>(size_of(view.dtype)));
  std::memcpy(to, view.data, static_cast<std::size_t>(bytes));
  view.data = buffer.data();
  view.shape[0] = row + 1;
  view.strides[0] = stride;
}

/// Slots, ring rows and scratch rows that stand past 2^31 and past 2^32 elements.
TEST(KdaVerify, OffsetsPastTwoToThe32Elements) {
  constexpr std::int64_t kH = 1;
  constexpr std::int64_t kT = 2;
  constexpr std::int64_t kRow = 3;
  for (const std::int64_t offset : {std::int64_t{1} << 31, std::int64_t{1} << 32}) {
    const std::int64_t stride = offset / kRow + 12345;
    for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots}) {
      const Bundle dense = verify_layer({.N = 1, .T = kT, .H = kH, .outputs = outputs});
      const Bundle reference = run_cpu(kOp, dense);
      Bundle far = dense.clone();
      far.tensors["state_indices"] = integers(DType::kI32, {kRow});
      far.tensors["scratch_indices"] = integers(DType::kI32, {kRow});
      Call call = host_call(*find_driver(kOp), far);
      std::vector<std::pair<const char*, std::unique_ptr<SparseBuffer>>> buffers;
      for (const char* name : {"state", "conv_states", "ring_k", "ring_v", "ring_g", "ring_beta",
                               "conv_scratch", "snapshots"}) {
        if (!call.tensors.contains(name)) continue;
        const auto bytes = static_cast<std::size_t>((kRow + 1) * stride) * sizeof(float);
        buffers.emplace_back(name, std::make_unique<SparseBuffer>(bytes));
        if (!buffers.back().second->valid()) GTEST_SKIP() << "no address space of 23 GB a tensor";
        stretch(call, name, *buffers.back().second, kRow, stride);
      }
      run_call(*find_driver(kOp), call);
      EXPECT_TRUE(same_bits(reference.tensors.at("out"), far.tensors.at("out")));
      for (const auto& [name, buffer] : buffers) {
        const Tensor& expected = reference.tensors.at(name);
        const std::int64_t size = static_cast<std::int64_t>(size_of(expected.dtype()));
        EXPECT_EQ(std::memcmp(buffer->at(kRow * stride * size), expected.storage(),
                              expected.storage_bytes()),
                  0)
            << name << " past " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace k3::harness
