// SPDX-License-Identifier: Apache-2.0
// Tokens past 2^31 and 2^32 elements, and a workspace past 2^32 bytes, in device memory.
#include <algorithm>

#include "tests/ops/kda_prefill_calls.h"

namespace k3::harness {
namespace {

class PrefillFar : public PrefillOn {};

/// The tokens of a dense call, `pitch` elements from one to the next, q, k, v and g side by side.
class FarTokens {
 public:
  FarTokens(const Bundle& dense, std::int64_t pitch)
      : pitch_(pitch),
        tokens_(dense.tensors.at("q").shape()[1]),
        inputs_(static_cast<std::size_t>(pitch * tokens_) * sizeof(std::uint16_t)),
        out_(static_cast<std::size_t>(pitch * tokens_) * sizeof(std::uint16_t)) {}

  [[nodiscard]] bool valid() const { return inputs_.valid() && out_.valid(); }

  void place(const Bundle& dense, Call& call) {
    inputs_.fill(std::byte{0xFF});
    out_.fill(std::byte{0xFF});
    std::size_t offset = 0;
    for (const char* name : {"q", "k", "v", "g"}) {
      const Tensor& tensor = dense.tensors.at(name);
      for (std::int64_t t = 0; t < tokens_; ++t)
        inputs_.write(at(t) + offset, rows_of(tensor, tokens_, t, t + 1));
      move(call.tensors.at(name), inputs_.data() + offset);
      offset += rows_of(tensor, tokens_, 0, 1).size();
    }
    move(call.tensors.at("out"), out_.data());
  }

  void expect_out(const Tensor& expected) const {
    std::vector<std::byte> row(rows_of(expected, tokens_, 0, 1).size());
    for (std::int64_t t = 0; t < tokens_; ++t) {
      out_.read(at(t), row);
      ASSERT_TRUE(same_bytes(rows_of(expected, tokens_, t, t + 1), row)) << "token " << t;
    }
  }

 private:
  [[nodiscard]] std::size_t at(std::int64_t token) const {
    return static_cast<std::size_t>(token * pitch_) * sizeof(std::uint16_t);
  }
  void move(TensorView& view, std::byte* data) const {
    view.data = data;
    view.strides[1] = pitch_;
    view.strides[0] = tokens_ * pitch_;
  }

  std::int64_t pitch_;
  std::int64_t tokens_;
  DeviceMemory inputs_;
  DeviceMemory out_;
};

TEST_P(PrefillFar, TokensGiveTheBitsOfNearOnes) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 25) + 64;
  constexpr std::int64_t kTokens = 190;  // 2^31 elements stand before the second chunk
  static_assert(kTokens * kPitch > std::int64_t{1} << 32);
  const Bundle dense = prefill_call({.lengths = {kTokens}, .H = 2, .seed = 21});
  FarTokens far(dense, kPitch);
  if (!far.valid()) GTEST_SKIP() << "no device memory of " << 4 * kTokens * kPitch << " bytes";
  const Bundle expected = run(dense);
  const DeviceBundle tensors(dense);
  DeviceCall call = {find_driver(kPrefill), tensors.call(), GetParam().variant};
  far.place(dense, call.call);
  run_on_device({&call, 1});
  far.expect_out(expected.tensors.at("out"));
  Bundle seen = dense.clone();
  tensors.download(seen);
  for (const char* name : {"final_state", "chunk_states"})
    EXPECT_TRUE(
        same_bytes(piece(expected.tensors.at(name), 0, 1), piece(seen.tensors.at(name), 0, 1)))
        << name;
}

/// Every token is the same one, by a stride of 0: only out has rows. A short sequence behind a very
/// long one has factors far into the workspace.
TEST_P(PrefillFar, ChunksGiveTheBitsOfNearOnes) {
  constexpr std::int64_t kLength = 130;
  constexpr std::int64_t kBefore = std::int64_t{1} << 22;
  constexpr std::int64_t kTokens = kBefore + kLength;
  constexpr std::size_t kRowBytes = kChannels * sizeof(std::uint16_t);
  constexpr std::size_t kChunkBytes = 74'240;  // what a chunk and head have in the workspace
  static_assert(kTokens / kChunkRows * kChunkBytes > std::size_t{1} << 32);
  const auto repeated_call = [&](const std::vector<std::int64_t>& lengths) {
    Bundle b = prefill_layer({.lengths = {1}, .H = 1, .seed = 22});
    const auto N = static_cast<std::int64_t>(lengths.size());
    std::vector<std::int64_t> cu = {0};
    for (const std::int64_t length : lengths) cu.push_back(cu.back() + length);
    b.tensors["cu_seqlens"] = integers(DType::kI32, cu);
    b.tensors["initial_state"] = constant(DType::kF32, {N, 1, kChannels, kChannels}, 0.25);
    b.tensors["final_state"] = poisoned(DType::kF32, {N, 1, kChannels, kChannels});
    return b;
  };
  DeviceMemory out(static_cast<std::size_t>(kTokens) * kRowBytes);
  if (!out.valid()) GTEST_SKIP() << "no device memory of " << kTokens * kRowBytes << " bytes";
  const auto results = [&](const std::vector<std::int64_t>& lengths) {
    const std::int64_t T = sum_of(lengths);
    Bundle b = repeated_call(lengths);
    const DeviceBundle tensors(b);
    DeviceCall call = {find_driver(kPrefill), tensors.call(), GetParam().variant};
    for (const char* name : {"q", "k", "v", "g", "beta", "out"}) {
      TensorView& view = call.call.tensors.at(name);
      view.shape[1] = T;
      view.strides[1] = 0;
    }
    TensorView& rows = call.call.tensors.at("out");
    rows.data = out.data();
    rows.strides[1] = kChannels;
    out.fill(std::byte{0xFF});
    run_on_device({&call, 1});
    std::vector<std::byte> last_rows(static_cast<std::size_t>(kLength) * kRowBytes);
    out.read(static_cast<std::size_t>(T - kLength) * kRowBytes, last_rows);
    tensors.download(b);
    const auto state =
        piece(b.tensors.at("final_state"), static_cast<std::int64_t>(lengths.size()) - 1,
              static_cast<std::int64_t>(lengths.size()));
    return std::pair(last_rows, std::vector<std::byte>(state.begin(), state.end()));
  };
  const auto near = results({kLength});
  const auto far = results({kBefore, kLength});
  EXPECT_FALSE(std::all_of(near.first.begin(), near.first.end(),
                           [](std::byte b) { return b == std::byte{0xFF}; }));
  EXPECT_TRUE(same_bytes(near.first, far.first)) << "out";
  EXPECT_TRUE(same_bytes(near.second, far.second)) << "final_state";
}

INSTANTIATE_TEST_SUITE_P(All, PrefillFar, testing::ValuesIn(cuda_machines()), machine_test_name);

}  // namespace
}  // namespace k3::harness
