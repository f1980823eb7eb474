// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "harness/runner.h"

/// What a timing is held against. On a shared machine the memory moves by half its speed within
/// seconds, so on the CPU samples of a call and readings of the machine's rates take turns, and
/// each sample is compared with the readings next to it.
namespace k3::harness {

/// The time that the rates allow for a call's bytes and operations, whichever is longer. A machine
/// without a rate for products of matrices does them by fp32 multiply-adds.
double floor_us(const Cost& cost, const Ceilings& ceilings);

/// Reads the rates of this CPU. The buffer is moved through in windows, each past the last cache of
/// a small machine, so that a window comes again only after the whole buffer.
class CpuCeilings {
 public:
  /// @param threads 0: all
  explicit CpuCeilings(int threads);
  /// Some 10 ms on two cores.
  Ceilings read();

 private:
  double read_write_gbps();
  double fma_gflops();

  int threads_;
  Tensor buffer_;
  std::int64_t window_ = 0;
};

/// The rates of the machine that runs a backend: on CUDA measured once, on the CPU at every call.
class Limits {
 public:
  explicit Limits(RunOn on, int threads = 0);
  Ceilings read();
  /// The median of each rate over all readings.
  [[nodiscard]] Ceilings overall() const;

 private:
  std::optional<CpuCeilings> cpu_;
  std::vector<Ceilings> readings_;
};

/// The samples of one call, in rounds between two readings.
class Rounds {
 public:
  Rounds(std::function<Ceilings()> read, const Cost& cost);
  void add(double microseconds);
  /// Ends the round that the last samples were added to.
  void close();
  /// Over all closed rounds. A sample's own floor comes from the mean of the readings before and
  /// after its round; floor_us / median_us is the median of floor / sample.
  [[nodiscard]] Timing timing() const;

 private:
  std::function<Ceilings()> read_;
  Cost cost_;
  Ceilings before_;
  std::vector<double> round_;
  std::vector<double> samples_;
  std::vector<double> floor_shares_;  ///< floor / sample
};

}  // namespace k3::harness
