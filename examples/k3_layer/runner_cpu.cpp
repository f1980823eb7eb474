// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "examples/k3_layer/runner.h"
#include "k3/error.h"

namespace k3::layer {

CpuRunner::CpuRunner(const Ops& ops, int threads) : microseconds_(ops.size()) {
  std::size_t bytes = 0;
  for (const Op& op : ops) {
    harness::Bundle handles = op.bundle;
    calls_.push_back({op.driver,
                      harness::host_call(*op.driver, handles),
                      {.backend = Backend::kCpu, .threads = threads}});
    bytes = std::max(bytes, op.driver->workspace_size(calls_.back().call, calls_.back().ctx));
  }
  workspace_ = harness::Tensor::dense(DType::kU8, {static_cast<std::int64_t>(bytes)});
  for (Prepared& call : calls_) call.ctx.workspace = {workspace_.storage(), bytes};
}

void CpuRunner::step() {
  using Clock = std::chrono::steady_clock;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const auto begin = Clock::now();
    calls_[i].driver->run(calls_[i].call, calls_[i].ctx);
    microseconds_[i] = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
}

double free_host_bytes() {
  double bytes = static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) *
                 static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, rest; meminfo >> name && std::getline(meminfo, rest);)
    if (name == "MemAvailable:") bytes = 1024.0 * std::stod(rest);
  double limit = 0.0;  // of a container
  double used = 0.0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    bytes = std::min(bytes, limit - used);
  return bytes;
}

#if !K3_WITH_CUDA
namespace {
[[noreturn]] void refuse() { throw UnsupportedError("this build of libk3 has no CUDA kernels"); }
}  // namespace

std::unique_ptr<Runner> make_cuda_runner(const Ops&) { refuse(); }
harness::Timing time_chain_on_cuda(const Ops&) { refuse(); }
int count_launches_on_cuda(const Ops&) { refuse(); }
double free_cuda_bytes() { refuse(); }
#endif

}  // namespace k3::layer
