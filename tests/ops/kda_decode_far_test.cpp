// SPDX-License-Identifier: Apache-2.0
// Slots, ring rows and scratch rows past 2^31 and 2^32 elements, in device memory.
#include "tests/ops/kda_decode_family.h"

namespace k3::harness {
namespace {

/// Of the pool: what a slot of all 69 KDA layers of a rank with 12 heads takes, windows included.
constexpr std::int64_t kEnvelopeBytes = 69 * (12 * kHeadDim * kHeadDim * 4 + 3 * 36 * kHeadDim * 2);
constexpr std::int64_t kPastTwoToThe31 = 160;
constexpr std::int64_t kPastTwoToThe32 = 355;
static_assert(kPastTwoToThe31 * kEnvelopeBytes / 4 > std::int64_t{1} << 31);
static_assert(kPastTwoToThe32 * kEnvelopeBytes / 4 > std::int64_t{1} << 32);

constexpr const char* kPools[] = {"state",  "conv_states", "ring_k",       "ring_v",
                                  "ring_g", "ring_beta",   "conv_scratch", "snapshots"};
constexpr const char* kIndices[] = {"state_indices", "ring_indices", "scratch_indices"};

/// Calls for one request whose pools have one row each.
std::vector<Bundle> calls_of(const std::string& op) {
  std::vector<Bundle> calls;
  if (op == "kda_fused_decode") calls.push_back(decode_layer({.B = 1, .H = 12}));
  if (op == "kda_packed_decode") calls.push_back(packed_layer({.B = 1, .H = 12}));
  if (op == "kda_verify")
    for (const VerifyOutputs outputs : {VerifyOutputs::kRings, VerifyOutputs::kSnapshots}) {
      calls.push_back(verify_layer({.N = 1, .T = 8, .H = 12, .outputs = outputs}));
      calls.back().tensors["scratch_indices"] = integers(DType::kI32, {0});
    }
  if (op == "kda_replay_commit") {
    Bundle b = commit_layers({.layers = 1, .B = 1, .H = 12});
    b.tensors["ring_indices"] = integers(DType::kI32, {0});
    b.tensors["scratch_indices"] = integers(DType::kI32, {0});
    calls.push_back(b);
  }
  return calls;
}

/// The axis of a pool that slots or rows are on.
int row_axis(const std::string& op) { return op == "kda_replay_commit" ? 1 : 0; }

class FarRows : public FamilyOnDevice {
 protected:
  /// Where a pool's row begins in its envelope: one behind the other, 256-byte aligned.
  static std::map<std::string, std::int64_t> offsets_of(const Bundle& dense) {
    std::map<std::string, std::int64_t> offsets;
    std::int64_t offset = 0;
    for (const char* name : kPools) {
      if (!dense.tensors.contains(name)) continue;
      offsets[name] = offset;
      offset +=
          static_cast<std::int64_t>((dense.tensors.at(name).storage_bytes() + 255) / 256 * 256);
    }
    EXPECT_LE(offset, kEnvelopeBytes);
    return offsets;
  }

  static void expect_equal_to_dense(const Bundle& dense, const std::string& variant,
                                    DeviceMemory& memory, std::int64_t row) {
    const std::string op = GetParam();
    const Bundle expected = run_on(RunOn::kCuda, GetParam(), dense, variant);
    Bundle far = dense.clone();
    for (const char* name : kIndices)
      if (far.tensors.contains(name)) far.tensors[name] = integers(DType::kI32, {row});
    const DeviceBundle tensors(far);
    DeviceCall call = {find_driver(op), tensors.call(), variant};
    const auto offsets = offsets_of(dense);
    for (const auto& [name, offset] : offsets) {
      const Tensor& tensor = dense.tensors.at(name);
      TensorView& view = call.call.tensors.at(name);
      view.data = memory.data() + offset;
      view.shape[row_axis(op)] = row + 1;
      view.strides[row_axis(op)] = kEnvelopeBytes / static_cast<std::int64_t>(size_of(view.dtype));
      memory.write(static_cast<std::size_t>(row * kEnvelopeBytes + offset), piece(tensor, 0, 1));
    }
    run_on_device({&call, 1});
    for (const auto& [name, offset] : offsets) {
      Bytes seen(dense.tensors.at(name).storage_bytes());
      memory.read(static_cast<std::size_t>(row * kEnvelopeBytes + offset), seen);
      EXPECT_TRUE(same_bytes(seen, piece(expected.tensors.at(name), 0, 1)))
          << name << " in row " << row << ", " << variant;
    }
    Bundle seen = far.clone();
    tensors.download(seen);
    if (!dense.tensors.contains("out")) return;
    EXPECT_TRUE(
        same_bytes(piece(seen.tensors.at("out"), 0, 1), piece(expected.tensors.at("out"), 0, 1)))
        << "out with row " << row << ", " << variant;
  }
};

TEST_P(FarRows, GiveTheBitsOfNearOnes) {
  constexpr std::int64_t kBytes = (kPastTwoToThe32 + 1) * kEnvelopeBytes;
  DeviceMemory memory(kBytes);
  if (!memory.valid()) GTEST_SKIP() << "no device memory of " << kBytes << " bytes";
  memory.fill(std::byte{0xFF});
  for (const Bundle& dense : calls_of(GetParam()))
    for (const std::string& variant : variants_of(GetParam(), RunOn::kCuda))
      for (const std::int64_t row : {kPastTwoToThe31, kPastTwoToThe32})
        expect_equal_to_dense(dense, variant, memory, row);
}

INSTANTIATE_TEST_SUITE_P(All, FarRows,
                         testing::Values("kda_fused_decode", "kda_packed_decode", "kda_verify",
                                         "kda_replay_commit"),
                         device_test_name);

}  // namespace
}  // namespace k3::harness
