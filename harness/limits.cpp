// SPDX-License-Identifier: Apache-2.0
#include "harness/limits.h"

#include <algorithm>
#include <utility>

#include "harness/device.h"

namespace k3::harness {
namespace {

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

Ceilings mean(const Ceilings& a, const Ceilings& b) {
  return {0.5 * (a.read_write_gbps + b.read_write_gbps), 0.5 * (a.fma_gflops + b.fma_gflops),
          0.5 * (a.tensor_gflops + b.tensor_gflops), 0.5 * (a.empty_launch_us + b.empty_launch_us)};
}

}  // namespace

double floor_us(const Cost& cost, const Ceilings& ceilings) {
  const bool tensor_cores = cost.tensor_cores && ceilings.tensor_gflops > 0;
  const double gflops = tensor_cores ? ceilings.tensor_gflops : ceilings.fma_gflops;
  return 1e-3 * std::max(cost.bytes / ceilings.read_write_gbps, cost.flops / gflops);
}

Limits::Limits(RunOn on, int threads) {
  if (on == RunOn::kCuda)
    readings_.push_back(measure_cuda_ceilings());
  else
    cpu_.emplace(threads);
}

Ceilings Limits::read() {
  if (cpu_) readings_.push_back(cpu_->read());
  return readings_.back();
}

Ceilings Limits::overall() const {
  const auto median = [&](double Ceilings::* rate) {
    std::vector<double> values;
    for (const Ceilings& reading : readings_) values.push_back(reading.*rate);
    return values.empty() ? 0.0 : quantile(std::move(values), 0.5);
  };
  return {median(&Ceilings::read_write_gbps), median(&Ceilings::fma_gflops),
          median(&Ceilings::tensor_gflops), median(&Ceilings::empty_launch_us)};
}

Rounds::Rounds(std::function<Ceilings()> read, const Cost& cost)
    : read_(std::move(read)), cost_(cost), before_(read_()) {}

void Rounds::add(double microseconds) { round_.push_back(microseconds); }

void Rounds::close() {
  if (round_.empty()) return;
  const Ceilings after = read_();
  const double floor = floor_us(cost_, mean(before_, after));
  for (const double sample : round_) {
    samples_.push_back(sample);
    floor_shares_.push_back(floor / sample);
  }
  before_ = after;
  round_.clear();
}

Timing Rounds::timing() const {
  Timing timing = {quantile(samples_, 0.5), quantile(samples_, 0.1), quantile(samples_, 0.9)};
  timing.floor_us = quantile(floor_shares_, 0.5) * timing.median_us;
  return timing;
}

}  // namespace k3::harness
