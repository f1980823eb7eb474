// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cpu/parallel.h"
#include "dispatch/archs.h"
#include "dispatch/kernel.h"
#include "k3/error.h"

namespace k3::dispatch {
namespace {

const char* where(Device device) { return device.kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string target_text(const Target& target) {
  if (target.backend == Backend::kCpu)
    return fmt::format("cpu, {}, {} threads", cpu_target(), target.threads);
  return fmt::format("cuda:{}, {}", target.device.index, cuda_arch_name(target.arch));
}

}  // namespace

Target resolve(const char* op, const ExecContext& ctx, Device device) {
  const Backend home = device.kind == DeviceKind::kCpu ? Backend::kCpu : Backend::kCuda;
  if (ctx.backend != Backend::kAuto && ctx.backend != home)
    throw ContractError(op, "backend",
                        fmt::format("must be auto or {}, where the tensors are", where(device)),
                        name_of(ctx.backend));
  if (ctx.threads < 0 || ctx.threads > cpu::kMaxThreads)
    throw ContractError(op, "threads", fmt::format("must be in [0, {}]", cpu::kMaxThreads),
                        std::to_string(ctx.threads));
  Target target;
  target.backend = home;
  target.device = device;
  target.stream = ctx.stream;
  target.workspace = ctx.workspace;
  if (home == Backend::kCpu) {
    target.threads = ctx.threads > 0 ? ctx.threads : cpu::max_threads();
  } else {
    target.arch = cuda_arch_of(op, device.index);
    target.pdl = ctx.pdl && target.arch >= 90;
  }
  return target;
}

std::optional<std::string> forced_variant(const char* op, const ExecContext& ctx) {
  if (ctx.variant != nullptr) return ctx.variant;
  const char* text = std::getenv("K3_FORCE");
  if (text == nullptr) return std::nullopt;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos)
      throw ContractError(op, "K3_FORCE", "must be op:variant[,op:variant]", text);
    if (item.substr(0, colon) == op) return std::string(item.substr(colon + 1));
  }
  return std::nullopt;
}

bool flag_is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' && std::strcmp(text, "0") != 0;
}

bool verbose() { return flag_is_set("K3_VERBOSE"); }

void report(const char* op, const char* text) {
  if (verbose()) std::fputs(fmt::format("k3: {}: {}\n", op, text).c_str(), stderr);
}

void report_refusal(const char* op, Backend backend, const char* variant, const char* reason) {
  if (verbose())
    std::fputs(
        fmt::format("k3: {}: {}:{} refused: {}\n", op, name_of(backend), variant, reason).c_str(),
        stderr);
}

void report_choice(const char* op, const Target& target, const char* variant) {
  if (verbose())
    std::fputs(fmt::format("k3: {}: {}:{} runs ({})\n", op, name_of(target.backend), variant,
                           target_text(target))
                   .c_str(),
               stderr);
}

void throw_unsupported(const char* op, const Target& target, const std::string& refusals) {
  throw UnsupportedError(
      fmt::format("{}: no kernel for this call on {}{}", op, target_text(target), refusals));
}

void check_workspace(const char* op, const Target& target, std::size_t needed) {
  if (needed == 0) return;
  const Workspace& ws = target.workspace;
  if (ws.data == nullptr || ws.bytes < needed)
    throw ContractError(op, "workspace", fmt::format("must hold {} bytes", needed),
                        ws.data == nullptr ? "a null pointer" : fmt::format("{} bytes", ws.bytes));
  const std::size_t alignment = target.backend == Backend::kCpu ? 64 : 256;
  const auto address = reinterpret_cast<std::uintptr_t>(ws.data);
  if (address % alignment != 0)
    throw ContractError(op, "workspace", fmt::format("must be aligned to {} bytes", alignment),
                        fmt::format("address {:#x}", address));
}

}  // namespace k3::dispatch
