// SPDX-License-Identifier: Apache-2.0
#include "examples/k3_layer/layer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

#include "harness/device.h"

namespace k3::layer {
namespace {

using harness::RunOn;
using harness::Timing;

using Choice = std::function<bool(const Op&)>;
struct Group {
  const char* name;
  Choice holds;
};
const Group kGroups[] = {
    {"KDA attention, own ops", [](const Op& op) { return op.part == Part::kKda; }},
    {"own ops of the step", [](const Op& op) { return op.part != Part::kDense; }},
    {"dense projections", [](const Op& op) { return op.part == Part::kDense; }},
    {"step", [](const Op&) { return true; }},
};

bool same_call(const Op& a, const Op& b) { return a.driver == b.driver && a.label == b.label; }
bool holds(const Ops& ops, const Op& op) {
  return std::any_of(ops.begin(), ops.end(), [&](const Op& other) { return same_call(op, other); });
}

Timing timing_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double q) {
    return samples[static_cast<std::size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

/// Times of a step's calls and of groups of them.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Timing op(std::size_t index) = 0;
  virtual Timing group(const Choice& holds) = 0;
  virtual int launches(const Choice& holds) = 0;
};

/// Has run every step and kept the times.
class CpuClock final : public Clock {
 public:
  CpuClock(const Request& request, const Ops& ops, harness::Bundle& tensors, int threads)
      : ops_(ops) {
    CpuRunner runner(ops, threads);
    for (std::int64_t step = 0; step < request.steps; ++step) {
      draw_inputs(request, step, tensors);
      runner.step();
      samples_.emplace_back(runner.microseconds().begin(), runner.microseconds().end());
    }
  }
  Timing op(std::size_t index) override {
    return summed([&](std::size_t i) { return i == index; });
  }
  Timing group(const Choice& holds) override {
    return summed([&](std::size_t i) { return holds(ops_[i]); });
  }
  int launches(const Choice& holds) override {
    return static_cast<int>(std::count_if(ops_.begin(), ops_.end(), holds));
  }

 private:
  template <class Chosen>
  Timing summed(const Chosen& chosen) {
    std::vector<double> sums;
    for (const auto& sample : samples_) {
      double sum = 0.0;
      for (std::size_t i = 0; i < sample.size(); ++i)
        if (chosen(i)) sum += sample[i];
      sums.push_back(sum);
    }
    return timing_of(std::move(sums));
  }

  const Ops& ops_;
  std::vector<std::vector<double>> samples_;
};

/// Measures when asked: each op, and each group, in graphs of its own.
class CudaClock final : public Clock {
 public:
  explicit CudaClock(const Ops& ops) : ops_(ops) {}
  Timing op(std::size_t index) override { return time_chain_on_cuda({ops_[index]}); }
  Timing group(const Choice& holds) override { return time_chain_on_cuda(chosen(holds)); }
  int launches(const Choice& holds) override { return count_launches_on_cuda(chosen(holds)); }

 private:
  [[nodiscard]] Ops chosen(const Choice& holds) const {
    Ops ops;
    std::copy_if(ops_.begin(), ops_.end(), std::back_inserter(ops), holds);
    return ops;
  }
  const Ops& ops_;
};

void add_result(const harness::Tensor& out, Bill& bill) {
  double squares = 0.0;
  for (const double value : out.values()) squares += value * value;
  bill.out_rms = std::sqrt(squares / static_cast<double>(out.numel()));
  bill.out_hash = fnv1a({out.storage(), out.storage_bytes()});
}

/// The steps one after the other, as an engine runs them. Leaves the last `out` in `tensors`.
void run_on_cuda(const Request& request, const Ops& ops, harness::Bundle& tensors) {
  const auto runner = make_cuda_runner(ops);
  for (std::int64_t step = 0; step < request.steps; ++step) {
    draw_inputs(request, step, tensors);
    for (const char* name : kStepInputs) runner->put(tensors.tensors.at(name));
    runner->step();
  }
  runner->get(tensors.tensors.at("out"));
}

std::vector<OpBill> bill_ops(const Ops& ops, const Ops& without, Clock& clock,
                             const harness::Ceilings& ceilings) {
  std::vector<OpBill> rows;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (holds(without, ops[i])) continue;
    OpBill row = {&ops[i], clock.op(i), ops[i].driver->cost(ops[i].bundle)};
    row.timing.floor_us = harness::floor_us(row.cost, ceilings);
    row.launches = clock.launches([&](const Op& op) { return &op == &ops[i]; });
    rows.push_back(std::move(row));
  }
  return rows;
}

void bill_sums(const Ops& ops, const char* suffix, const std::vector<OpBill>& known, Clock& clock,
               Bill& bill) {
  for (const Group& group : kGroups) {
    const bool has_own = std::any_of(ops.begin(), ops.end(), [&](const Op& op) {
      return group.holds(op) && (&ops == &bill.fused || !holds(bill.fused, op));
    });
    if (!has_own) continue;
    SumBill sum;
    sum.name = std::string(group.name) + suffix;
    sum.chain = clock.group(group.holds);
    for (const Op& op : ops) {
      if (!group.holds(op)) continue;
      const OpBill& row = *std::find_if(known.begin(), known.end(), [&](const OpBill& other) {
        return same_call(*other.op, op);
      });
      sum.sum_us += row.timing.median_us;
      sum.chain.floor_us += row.timing.floor_us;
      sum.cost.bytes += row.cost.bytes;
      sum.cost.flops += row.cost.flops;
    }
    sum.launches = clock.launches(group.holds);
    bill.sums.push_back(std::move(sum));
  }
}

}  // namespace

Bill run(const Request& request, RunOn on, int threads) {
  harness::Bundle tensors = make_tensors(request);
  Bill bill;
  bill.fused = step_ops(request, tensors, true);
  bill.unfused = step_ops(request, tensors, false);
  harness::Limits limits(on, threads);
  limits.read();
  std::unique_ptr<Clock> clock;
  std::unique_ptr<Clock> unfused_clock;
  if (on == RunOn::kCuda) {
    run_on_cuda(request, bill.fused, tensors);
    add_result(tensors.tensors.at("out"), bill);
    clock = std::make_unique<CudaClock>(bill.fused);
    unfused_clock = std::make_unique<CudaClock>(bill.unfused);
  } else {
    clock = std::make_unique<CpuClock>(request, bill.fused, tensors, threads);
    add_result(tensors.tensors.at("out"), bill);
    limits.read();
    unfused_clock = std::make_unique<CpuClock>(request, bill.unfused, tensors, threads);
    limits.read();
  }
  bill.ceilings = limits.overall();
  bill.ops = bill_ops(bill.fused, {}, *clock, bill.ceilings);
  bill.unfused_ops = bill_ops(bill.unfused, bill.fused, *unfused_clock, bill.ceilings);
  bill_sums(bill.fused, "", bill.ops, *clock, bill);
  std::vector<OpBill> known = bill.unfused_ops;
  known.insert(known.end(), bill.ops.begin(), bill.ops.end());
  bill_sums(bill.unfused, ", unfused", known, *unfused_clock, bill);
  return bill;
}

Memory memory_of(const Request& request, RunOn on) {
  constexpr double kShare = 0.85;  // the rest is for workspaces and others
  const double bytes = bytes_of(tensor_specs(request));
  const Memory host = {bytes, kShare * free_host_bytes()};
  if (on != RunOn::kCuda) return host;
  // Two sets to time with.
  const Memory device = {2.0 * bytes, kShare * free_cuda_bytes()};
  return device.needed - device.free > host.needed - host.free ? device : host;
}

}  // namespace k3::layer
