// SPDX-License-Identifier: Apache-2.0
// What must hold of attn_res_mix beyond agreement with the oracle, on every variant.
#include "k3/ops/attn_res_mix.h"

#include <cstring>

#include "harness/device.h"
#include "k3/error.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "attn_res_mix";
constexpr std::int64_t kH = 7168;

struct Sizes {
  std::int64_t T = 5;
  std::int64_t rows = 5;
  std::int64_t NB = 8;
  std::int64_t H = kH;
  bool write_prefix = true;
  std::uint64_t seed = 1;
};

Bundle call_of(const Sizes& s) {
  Random random(s.seed);
  Bundle b;
  b.tensors["bank"] = normal(random, DType::kBF16, {s.T, s.NB, s.H});
  b.tensors["prefix"] = normal(random, DType::kBF16, {s.T, s.H});
  b.tensors["score_norm_weight"] = normal(random, DType::kBF16, {s.H}, 0.1, 1.0);
  b.tensors["score_proj"] = normal(random, DType::kBF16, {s.H}, 0.02);
  b.tensors["out_norm_weight"] = normal(random, DType::kBF16, {s.H}, 0.1, 1.0);
  b.tensors["out"] = poisoned(DType::kBF16, {s.T, s.H});
  b.scalars = {{"num_bank_rows", std::to_string(s.rows)},
               {"eps", "1e-5"},
               {"write_prefix", s.write_prefix ? "1" : "0"}};
  return b;
}

class AttnResMixOn : public testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (GetParam().on == RunOn::kCuda)
      if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
  static Bundle run(const Bundle& bundle) {
    return run_on(GetParam().on, kOp, bundle, GetParam().variant);
  }
};

TEST_P(AttnResMixOn, ATokenDoesNotKnowOfTheOthers) {
  for (const std::int64_t rows : {0, 1, 8})
    for (const std::int64_t T : {9, 301}) {
      const Bundle all = call_of({.T = T, .rows = rows, .NB = 8, .write_prefix = false});
      const Bundle results = run(all);
      for (const std::int64_t t : {std::int64_t{0}, T / 2, T - 1}) {
        Bundle company = call_of({.T = T, .rows = rows, .NB = 8, .write_prefix = false, .seed = 2});
        for (const char* name : {"bank", "prefix"}) {
          const Tensor& from = all.tensors.at(name);
          const std::size_t bytes = from.storage_bytes() / static_cast<std::size_t>(T);
          std::memcpy(company.tensors.at(name).storage() + t * bytes, from.storage() + t * bytes,
                      bytes);
        }
        for (const char* name : {"score_norm_weight", "score_proj", "out_norm_weight"})
          company.tensors[name] = all.tensors.at(name).clone();
        EXPECT_TRUE(same_bytes(piece(results.tensors.at("out"), t, T),
                               piece(run(company).tensors.at("out"), t, T)))
            << "token " << t << " of " << T << ", bank rows " << rows;
      }
    }
}

/// Every bit pattern, NaN payloads among them.
TEST_P(AttnResMixOn, WritesThePrefixBitForBit) {
  for (const auto& [T, rows] : {std::pair<std::int64_t, std::int64_t>{10, 5}, {140, 5}, {140, 1}}) {
    Bundle call = call_of({.T = T, .rows = rows});
    Tensor& prefix = call.tensors.at("prefix");
    auto* const bits = reinterpret_cast<std::uint16_t*>(prefix.storage());
    for (std::int64_t i = 0; i < prefix.numel(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Bundle result = run(call);
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t j = 0; j < 8; ++j)
        EXPECT_TRUE(same_bytes(
            piece(result.tensors.at("bank"), t * 8 + j, 8 * T),
            j == rows ? piece(prefix, t, T) : piece(call.tensors.at("bank"), t * 8 + j, 8 * T)))
            << "token " << t << " of " << T << ", row " << j << " of " << rows;
  }
}

TEST_P(AttnResMixOn, TheFoldedProductIsTheProductWhereItIsExact) {
  for (const auto& [T, rows] : {std::pair<std::int64_t, std::int64_t>{5, 5}, {140, 5}, {140, 1}}) {
    Bundle call = call_of({.T = T, .rows = rows, .write_prefix = false});
    call.tensors.at("score_norm_weight").fill(0.5);
    Bundle folded = call.clone();
    folded.tensors.erase("score_norm_weight");
    folded.tensors.erase("score_proj");
    Tensor& weight = folded.tensors["score_weight"] = call.tensors.at("score_proj").clone();
    for (std::int64_t h = 0; h < kH; ++h) weight.set(h, 0.5 * weight.get(h));
    EXPECT_TRUE(same_bits(run(call).tensors.at("out"), run(folded).tensors.at("out")))
        << T << " tokens, " << rows << " rows";
  }
}

std::string machine_test_name(const testing::TestParamInfo<Machine>& info) {
  return name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, AttnResMixOn, testing::ValuesIn(machines_of(kOp)), machine_test_name);

TEST(AttnResMix, BitsDoNotDependOnThreads) {
  const Bundle input = call_of({.T = 40, .H = 1000});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")))
        << threads;
}

/// A model may keep the running sum where it will become a bank row.
TEST(AttnResMix, PrefixMayBeABankRow) {
  const Bundle apart = call_of({.NB = 6, .H = 64, .write_prefix = true});
  const Bundle expected = run_cpu(kOp, apart);  // its bank has the prefix in row 5
  Bundle together = expected.clone();
  together.scalars["write_prefix"] = "0";
  Call call = host_call(*find_driver(kOp), together);
  TensorView& prefix = call.tensors.at("prefix");
  prefix.data = together.tensors.at("bank").storage() + std::size_t{5 * 64 * 2};
  prefix.strides[0] = 6 * 64;
  together.tensors.at("out").fill(0.0);
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(expected.tensors.at("out"), together.tensors.at("out")));
}

/// One bank for all tokens.
TEST(AttnResMix, ABankOnlyReadMayHaveTokensInCommon) {
  Bundle call = call_of({.T = 1, .H = 64, .write_prefix = false});
  const Bundle one = run_cpu(kOp, call);
  Call repeated = host_call(*find_driver(kOp), call);
  call.tensors["out"] = poisoned(DType::kBF16, {7, 64});
  repeated.tensors.at("out") = call.tensors.at("out").view();
  for (const char* name : {"bank", "prefix"}) {
    repeated.tensors.at(name).shape[0] = 7;
    repeated.tensors.at(name).strides[0] = 0;
  }
  run_call(*find_driver(kOp), repeated);
  for (std::int64_t t = 0; t < 7; ++t)
    EXPECT_TRUE(same_bytes(piece(one.tensors.at("out"), 0, 1), piece(call.tensors.at("out"), t, 7)))
        << t;
}

TEST(AttnResMix, RowsPastTwoToThe32Elements) {
  constexpr std::int64_t kPitch = 2'200'000'001;
  const Bundle dense = call_of({.T = 3, .rows = 1, .NB = 2, .H = 40});
  const Bundle reference = run_cpu(kOp, dense);
  constexpr std::size_t kRow = 40 * sizeof(std::uint16_t);
  for (const bool far_tokens : {true, false}) {
    // Rows of bank far apart within a token, or tokens far apart.
    const SparseBuffer bank(kPitch * 3 * sizeof(std::uint16_t));
    const SparseBuffer prefix(kPitch * 3 * sizeof(std::uint16_t));
    const SparseBuffer out(kPitch * 3 * sizeof(std::uint16_t));
    if (!bank.valid() || !prefix.valid() || !out.valid())
      GTEST_SKIP() << "no address space of 40 GB";
    Bundle far = dense.clone();
    Call call = host_call(*find_driver(kOp), far);
    TensorView& bank_view = call.tensors.at("bank");
    bank_view.data = bank.data();
    bank_view.strides[0] = far_tokens ? kPitch : 40;
    bank_view.strides[1] = far_tokens ? 40 : kPitch;
    const auto bank_row = [&](std::int64_t t, std::int64_t j) {
      return bank.at((t * bank_view.strides[0] + j * bank_view.strides[1]) *
                     std::int64_t{sizeof(std::uint16_t)});
    };
    const auto at = [&](const SparseBuffer& buffer, std::int64_t t) {
      return buffer.at(t * kPitch * std::int64_t{sizeof(std::uint16_t)});
    };
    for (const auto& [name, buffer] : {std::pair{"prefix", &prefix}, {"out", &out}}) {
      call.tensors.at(name).data = buffer->data();
      call.tensors.at(name).strides[0] = kPitch;
    }
    for (std::int64_t t = 0; t < 3; ++t) {
      std::memcpy(bank_row(t, 0), piece(dense.tensors.at("bank"), 2 * t, 6).data(), kRow);
      std::memcpy(at(prefix, t), piece(dense.tensors.at("prefix"), t, 3).data(), kRow);
    }
    run_call(*find_driver(kOp), call);
    for (std::int64_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(same_bytes({at(out, t), kRow}, piece(reference.tensors.at("out"), t, 3))) << t;
      EXPECT_TRUE(same_bytes({bank_row(t, 1), kRow}, piece(dense.tensors.at("prefix"), t, 3))) << t;
    }
  }
}

#if K3_WITH_CUDA
class AttnResMixOnDevice : public AttnResMixOn {
 protected:
  static DeviceCall call_on(const DeviceBundle& tensors) {
    return {find_driver(kOp), tensors.call(), GetParam().variant};
  }
};

/// Numbers of rows that do not fill a warp's lanes.
TEST_P(AttnResMixOnDevice, GivesTheSameBitsEveryTime) {
  for (const std::int64_t rows : {1, 5, 8}) {
    const Bundle input = call_of({.T = 140, .rows = rows, .NB = 9});
    const Bundle expected = run(input);
    const DeviceBundle tensors(input);
    const DeviceCall call = call_on(tensors);
    DeviceGraph graph({&call, 1});
    Bundle seen = input.clone();
    for (int replay = 0; replay < 200; ++replay) graph.replay();
    tensors.download(seen);
    EXPECT_EQ(difference(expected, seen), "") << rows << " rows";
  }
}

TEST_P(AttnResMixOnDevice, GraphFollowsWhatItsTensorsHold) {
  for (const std::int64_t T : {3, 200}) {
    const Bundle first = call_of({.T = T, .seed = 11});
    const Bundle second = call_of({.T = T, .seed = 12});
    DeviceBundle tensors(first);
    const DeviceCall call = call_on(tensors);
    DeviceGraph graph({&call, 1});
    Bundle seen = first.clone();
    for (const Bundle* before : {&first, &second, &first}) {
      tensors.upload(*before);
      graph.replay();
      tensors.download(seen);
      EXPECT_EQ(difference(run(*before), seen), "") << T << " tokens";
    }
  }
}

/// A model's sublayers: each takes the output of the one before as its prefix, and the row that
/// that one wrote as its last bank row. A launch that does not wait for its turn is seen.
TEST_P(AttnResMixOnDevice, CallsThatOverlapChangeNoBit) {
  for (const std::int64_t T : {2, 150}) {
    const Bundle input = call_of({.T = T, .rows = 0, .NB = 9});
    Bundle results[3];
    for (int mode = 0; mode < 3; ++mode) {
      const DeviceBundle tensors(input);
      std::vector<DeviceCall> calls;
      for (int rows = 0; rows <= 8; ++rows) {
        DeviceCall call = call_on(tensors);
        call.call.scalars["num_bank_rows"] = std::to_string(rows);
        if (rows % 2 != 0) std::swap(call.call.tensors["prefix"], call.call.tensors["out"]);
        calls.push_back(call);
      }
      if (mode == 0)
        for (const DeviceCall& call : calls) run_on_device({&call, 1});
      if (mode == 1) run_on_device(calls);
      if (mode == 2) DeviceGraph(calls).replay();
      results[mode] = input.clone();
      tensors.download(results[mode]);
    }
    EXPECT_NE(difference(input, results[0]), "");
    for (const int mode : {1, 2})
      EXPECT_EQ(difference(results[0], results[mode]), "") << T << " tokens, mode " << mode;
  }
}

TEST_P(AttnResMixOnDevice, TokensPastTwoToThe32Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 31) + 64;
  constexpr std::size_t kBytes = sizeof(std::uint16_t);
  constexpr std::size_t kRow = kH * kBytes;
  const Bundle dense = call_of({.T = 3, .rows = 1, .NB = 2});
  const Bundle expected = run(dense);
  for (const bool far_tokens : {true, false}) {
    DeviceMemory memory(3 * kPitch * kBytes);
    if (!memory.valid()) GTEST_SKIP() << "no device memory of 13 GB";
    const DeviceBundle tensors(dense);
    DeviceCall call = call_on(tensors);
    TensorView& bank = call.call.tensors.at("bank");
    bank.data = memory.data();
    bank.strides[0] = far_tokens ? kPitch : kH;
    bank.strides[1] = far_tokens ? kH : kPitch;
    const auto at = [&](std::int64_t t, std::int64_t j) {
      return static_cast<std::size_t>(t * bank.strides[0] + j * bank.strides[1]) * kBytes;
    };
    for (std::int64_t t = 0; t < 3; ++t)
      memory.write(at(t, 0), piece(dense.tensors.at("bank"), 2 * t, 6));
    run_on_device({&call, 1});
    Bundle seen = dense.clone();
    tensors.download(seen);
    EXPECT_TRUE(same_bits(expected.tensors.at("out"), seen.tensors.at("out")));
    std::vector<std::byte> row(kRow);
    for (std::int64_t t = 0; t < 3; ++t) {
      memory.read(at(t, 1), row);
      EXPECT_TRUE(same_bytes(row, piece(dense.tensors.at("prefix"), t, 3))) << t;
    }
  }
}

std::vector<Machine> cuda_machines() {
  std::vector<Machine> machines;
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda))
    machines.push_back({RunOn::kCuda, variant});
  return machines;
}

INSTANTIATE_TEST_SUITE_P(All, AttnResMixOnDevice, testing::ValuesIn(cuda_machines()),
                         machine_test_name);
#endif

}  // namespace
}  // namespace k3::harness
