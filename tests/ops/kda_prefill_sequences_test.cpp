// SPDX-License-Identifier: Apache-2.0
// A sequence of kda_prefill has the bits that it has alone, whatever stands beside it and whatever
// memory held before, on every backend.
#include <cmath>
#include <limits>

#include "tests/ops/kda_prefill_calls.h"

namespace k3::harness {
namespace {

using Sizes = std::vector<std::int64_t>;
constexpr const char* kTokens[] = {"q", "k", "v", "g", "beta", "out"};

/// What a call made of one of its sequences.
struct Results {
  std::vector<std::byte> out, final_state, chunk_states;
};

/// Of a packed call with a row of chunk_states for each chunk and no pool.
Results results_of(const Bundle& b, const Sizes& lengths, std::size_t n) {
  const Sizes before(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(n));
  const std::int64_t token = sum_of(before);
  const std::int64_t chunk = chunks_of(before);
  const auto row = static_cast<std::int64_t>(n);
  const auto copy = [&](const char* name, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    const auto bytes = rows_of(b.tensors.at(name), rows, begin, end);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  return {copy("out", sum_of(lengths), token, token + lengths[n]),
          copy("final_state", static_cast<std::int64_t>(lengths.size()), row, row + 1),
          copy("chunk_states", b.tensors.at("chunk_states").shape()[0], chunk,
               chunk + chunks_of({lengths[n]}))};
}

void expect_same(const Results& expected, const Results& seen) {
  EXPECT_TRUE(same_bytes(expected.out, seen.out)) << "out";
  EXPECT_TRUE(same_bytes(expected.final_state, seen.final_state)) << "final_state";
  EXPECT_TRUE(same_bytes(expected.chunk_states, seen.chunk_states)) << "chunk_states";
}

/// The sequence of a call of one among others.
Bundle in_company(const Bundle& alone, const Sizes& lengths, std::size_t n) {
  const std::int64_t H = alone.tensors.at("v").shape()[2];
  Bundle b = prefill_layer({.lengths = lengths, .H = H, .seed = 77, .period = 1});
  b.scalars = alone.scalars;
  b.tensors["chunk_states"] = poisoned(DType::kF32, {chunks_of(lengths), H, kChannels, kChannels});
  for (const char* name : {"A_log", "dt_bias"}) b.tensors[name] = alone.tensors.at(name).clone();
  const std::int64_t token =
      sum_of(Sizes(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(n)));
  const auto put = [&](const char* name, std::int64_t rows, std::int64_t at) {
    const Tensor& from = alone.tensors.at(name);
    const auto to = rows_of(b.tensors.at(name), rows, at, at);
    std::memcpy(b.tensors.at(name).storage() + (to.data() - b.tensors.at(name).storage()),
                from.storage(), from.storage_bytes());
  };
  for (const char* name : kTokens) put(name, sum_of(lengths), token);
  put("initial_state", static_cast<std::int64_t>(lengths.size()), static_cast<std::int64_t>(n));
  return b;
}

class PrefillCompany : public PrefillOn {};

TEST_P(PrefillCompany, ChangesNoBitOfASequence) {
  constexpr std::int64_t kMostSorted = 1024;  // sequences that CUDA orders by length
  const auto check = [&](std::int64_t length, const char* lower_bound, std::int64_t H = 1) {
    std::vector<std::pair<Sizes, std::size_t>> companies = {{{length, 65}, 0},
                                                            {{3, length}, 1},
                                                            {{0, 64, 0, length, 0}, 3},
                                                            {{300, length, 300}, 1},
                                                            {Sizes(70, length), 69}};
    if (H == 1)
      companies.emplace_back(Sizes(kMostSorted + 50, length > kChunkRows ? kChunkRows : length),
                             500);
    const Bundle alone =
        prefill_call({.lengths = {length}, .H = H, .seed = 5, .lower_bound = lower_bound});
    const Results expected = results_of(run(alone), {length}, 0);
    for (auto [lengths, n] : companies) {
      lengths[n] = length;
      SCOPED_TRACE(testing::Message() << "length " << length << ", sequence " << n << " of "
                                      << lengths.size() << ", lower bound " << lower_bound);
      expect_same(expected, results_of(run(in_company(alone, lengths, n)), lengths, n));
    }
  };
  for (const std::int64_t length : {1, 2, 15, 17, 63, 64, 65, 100, 200}) check(length, "-5");
  for (const std::int64_t length : {16, 64, 100}) check(length, kStrongGates);
  for (const std::int64_t length : {64, 100}) check(length, "-5", kManyHeads);
}

TEST_P(PrefillCompany, OrNoneAtAllAreRowsOfABatchToo) {
  for (const std::int64_t length : {130, 64, 9}) {
    SCOPED_TRACE(testing::Message() << "length " << length);
    const Sizes lengths(3, length);
    const Bundle packed = prefill_call({.lengths = lengths, .H = 2, .seed = 6});
    const Bundle expected = run(packed);
    Bundle rows = packed.clone();
    rows.tensors.erase("cu_seqlens");
    for (const char* name : kTokens) {
      const Tensor& from = packed.tensors.at(name);
      Sizes shape = from.shape();
      shape[0] = 3;
      shape[1] = length;
      rows.tensors[name] = Tensor::dense(from.dtype(), shape);
      std::memcpy(rows.tensors[name].storage(), from.storage(), from.storage_bytes());
    }
    rows.tensors["chunk_states"] = poisoned(DType::kF32, packed.tensors.at("chunk_states").shape());
    const Bundle seen = run(rows);
    for (const char* name : {"out", "final_state", "chunk_states"})
      EXPECT_TRUE(
          same_bytes(piece(expected.tensors.at(name), 0, 1), piece(seen.tensors.at(name), 0, 1)))
          << name;
  }
}

TEST_P(PrefillCompany, OfNaNAndInfinityIsNotSeen) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Sizes lengths = {70, 25, 70, 3, 130};
  const std::int64_t T = sum_of(lengths);
  for (const std::int64_t H : {kFewHeads, kManyHeads}) {
    const Bundle clean = prefill_call({.lengths = lengths, .H = H, .seed = 7});
    const Bundle expected = run(clean);
    for (const char* name : {"q", "k", "v", "g", "beta", "initial_state"})
      for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
        SCOPED_TRACE(testing::Message() << H << " heads, " << name << " " << value);
        Bundle poisonous = clean.clone();
        Tensor& t = poisonous.tensors.at(name);
        const bool of_tokens = std::string(name) != "initial_state";
        const std::int64_t row = t.numel() / (of_tokens ? T : t.shape()[0]);
        for (const auto& [n, token] : {std::pair<std::int64_t, std::int64_t>{1, 70}, {3, 165}}) {
          const std::int64_t begin = of_tokens ? token : n;
          const std::int64_t end = begin + (of_tokens ? lengths[static_cast<std::size_t>(n)] : 1);
          for (std::int64_t i = begin * row; i < end * row; ++i) t.set(i, value);
        }
        const Bundle seen = run(poisonous);
        for (const std::size_t n : {0, 2, 4})
          expect_same(results_of(expected, lengths, n), results_of(seen, lengths, n));
        EXPECT_NE(difference(expected, seen), "");
      }
  }
}

/// The outputs and the workspace of a call hold `outputs` and `workspace` in every byte before it.
Bundle run_over(const Machine& machine, const Bundle& bundle, std::byte outputs,
                std::byte workspace) {
  Bundle b = bundle.clone();
  for (const char* name : {"out", "final_state", "chunk_states", "tracked_states"})
    b.tensors.at(name).fill_bytes(outputs);
  const Driver& driver = *find_driver(kPrefill);
  if (machine.on == RunOn::kCpu) {
    run_call(driver, host_call(driver, b), 0, workspace);
    return b;
  }
  const DeviceBundle tensors(b);
  const DeviceCall call = {&driver, tensors.call(), machine.variant};
  run_on_device({&call, 1}, {.fill = workspace});
  tensors.download(b);
  return b;
}

bool holds_only(std::span<const std::byte> bytes, std::byte byte) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == byte; });
}

class PrefillMemory : public PrefillOn {};

TEST_P(PrefillMemory, IsWrittenWhereItIsNamedAndReadNowhereBefore) {
  constexpr std::byte kOnes{0xFF};
  constexpr std::byte kZeros{0};
  const Sizes lengths = {130, 0, 70, 64, 136};
  const Sizes slots = {7, 0, -1, 3, -1};
  const Sizes track = {1, -1, 0, 1, -1};
  for (const auto& [H, lower_bound] :
       {std::pair{kFewHeads, "-5"}, {kManyHeads, "-5"}, {kFewHeads, kStrongGates}}) {
    const Bundle call = prefill_call({.lengths = lengths,
                                      .H = H,
                                      .slots = slots,
                                      .track = track,
                                      .seed = 8,
                                      .lower_bound = lower_bound});
    const Bundle reference = run_over(GetParam(), call, kOnes, kOnes);
    for (const std::byte workspace : {kZeros, std::byte{0x7F}}) {
      const Bundle other = run_over(GetParam(), call, kZeros, workspace);
      const auto expect_rows = [&](const char* name, const auto& is_written) {
        const std::int64_t rows =
            std::string(name) == "out" ? sum_of(lengths) : call.tensors.at(name).shape()[0];
        for (std::int64_t row = 0; row < rows; ++row) {
          const auto a = rows_of(reference.tensors.at(name), rows, row, row + 1);
          const auto b = rows_of(other.tensors.at(name), rows, row, row + 1);
          if (is_written(row))
            ASSERT_TRUE(same_bytes(a, b)) << name << " row " << row;
          else
            ASSERT_TRUE(holds_only(a, kOnes) && holds_only(b, kZeros)) << name << " row " << row;
        }
      };
      const auto named = [](const Sizes& list, std::int64_t value) {
        return std::find(list.begin(), list.end(), value) != list.end();
      };
      expect_rows("out", [](std::int64_t) { return true; });
      expect_rows("final_state", [&](std::int64_t slot) { return named(slots, slot); });
      expect_rows("chunk_states", [&](std::int64_t row) { return row < chunks_of(lengths); });
      expect_rows("tracked_states", [&](std::int64_t n) { return track[n] >= 0; });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PrefillCompany, testing::ValuesIn(machines_of(kPrefill)),
                         machine_test_name);
INSTANTIATE_TEST_SUITE_P(All, PrefillMemory, testing::ValuesIn(machines_of(kPrefill)),
                         machine_test_name);

}  // namespace
}  // namespace k3::harness
