// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "harness/inputs.h"
#include "harness/ops/kda_layer.h"
#include "k3/error.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

/// Calls of kda_prefill with everything that one can have, and the variants that run them.
namespace k3::harness {

inline constexpr const char* kPrefill = "kda_prefill";
inline constexpr std::int64_t kChannels = 128;
inline constexpr std::int64_t kChunkRows = 64;
/// Heads of five sequences that take the CUDA kernels for few CTAs, and for many.
inline constexpr std::int64_t kFewHeads = 3;
inline constexpr std::int64_t kManyHeads = 24;

/// Why a variant cannot be tried on this machine; empty where it can.
inline std::string why_skipped(const Machine& machine) {
  if (machine.on == RunOn::kCuda)
    if (const char* why = cuda_unusable()) return why;
  try {
    run_on(machine.on, kPrefill, prefill_layer({.lengths = {1}, .H = 1}), machine.variant);
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "";
}

class PrefillOn : public testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (const std::string why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static Bundle run(const Bundle& bundle) {
    return run_on(GetParam().on, kPrefill, bundle, GetParam().variant);
  }
};

inline std::string machine_test_name(const testing::TestParamInfo<Machine>& info) {
  return name_of(info.param);
}

inline std::vector<Machine> cuda_machines() {
  return {{RunOn::kCuda, "wgmma"}, {RunOn::kCuda, "mma_sync"}};
}

struct PrefillCall {
  std::vector<std::int64_t> lengths;
  std::int64_t H = kFewHeads;
  DType cu = DType::kI32;
  std::vector<std::int64_t> slots;  ///< of a pool of kPoolSlots; empty: no pool
  std::vector<std::int64_t> track;  ///< empty: nothing tracked
  std::uint64_t seed = 1;
  std::string lower_bound = "-5";
};
/// With this one a block of rows decays by more than CUDA's common way takes (wide_range.cuh).
inline constexpr const char* kStrongGates = "-40";
inline constexpr std::int64_t kPoolSlots = 9;

/// The call of a layer with states at all chunks, as many rows as any lengths of these tokens and
/// sequences could need. Outputs hold 0xFF.
inline Bundle prefill_call(const PrefillCall& c) {
  Bundle b = prefill_layer({.lengths = c.lengths, .H = c.H, .seed = c.seed});
  b.scalars["lower_bound"] = c.lower_bound;
  std::vector<std::int64_t> cu = {0};
  for (const std::int64_t length : c.lengths) cu.push_back(cu.back() + length);
  const auto N = static_cast<std::int64_t>(c.lengths.size());
  b.tensors["cu_seqlens"] = integers(c.cu, cu);
  b.tensors["chunk_states"] =
      poisoned(DType::kF32, {cu.back() / kChunkRows + N, c.H, kChannels, kChannels});
  if (!c.track.empty()) {
    b.tensors["track_chunk_idx"] = integers(DType::kI32, c.track);
    b.tensors["tracked_states"] = poisoned(DType::kF32, {N, c.H, kChannels, kChannels});
  }
  if (c.slots.empty()) return b;
  Random random(c.seed + 1000);
  const std::vector<std::int64_t> pool = {kPoolSlots, c.H, kChannels, kChannels};
  b.tensors["state_indices"] = integers(DType::kI32, c.slots);
  b.tensors["initial_state"] = normal(random, DType::kF32, pool);
  b.tensors["final_state"] = poisoned(DType::kF32, pool);
  return b;
}

inline std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

inline std::int64_t chunks_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t chunks = 0;
  for (const std::int64_t length : lengths) chunks += (length + kChunkRows - 1) / kChunkRows;
  return chunks;
}

/// The bytes of rows [begin, end) of a dense tensor of `rows` rows.
inline std::span<const std::byte> rows_of(const Tensor& tensor, std::int64_t rows,
                                          std::int64_t begin, std::int64_t end) {
  const auto row = tensor.storage_bytes() / static_cast<std::size_t>(rows);
  return {tensor.storage() + static_cast<std::size_t>(begin) * row,
          static_cast<std::size_t>(end - begin) * row};
}

}  // namespace k3::harness
