// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/parallel.h"
#include "dispatch/archs.h"
#include "dispatch/kernel.h"
#include "k3/capability.h"
#include "k3/error.h"

namespace k3::dispatch {
namespace {

const char* where(Device device) { return device.kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string target_text(const Target& target) {
  if (target.backend == Backend::kCpu)
    return fmt::format("cpu, {}, {} threads", cpu_target(), target.threads);
  return fmt::format("cuda:{}, {}", target.device.index, cuda_arch_name(target.arch));
}

/// The op's variants in this build, each once; empty for an unknown op.
std::vector<std::string> variants_of(std::string_view op) {
  std::vector<std::string> variants;
  for (const Capability& row : capabilities())
    if (row.op == op && std::find(variants.begin(), variants.end(), row.variant) == variants.end())
      variants.push_back(row.variant);
  return variants;
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
    const std::string_view named = item.substr(0, colon);
    const std::vector<std::string> variants = variants_of(named);
    if (variants.empty())
      throw ContractError(op, "K3_FORCE", "must name an op that `k3 ops` lists",
                          std::string(named));
    if (named != op) continue;
    std::string variant(item.substr(colon + 1));
    if (std::find(variants.begin(), variants.end(), variant) == variants.end())
      throw ContractError(
          op, "K3_FORCE",
          fmt::format("must name a variant of this build: {}", fmt::join(variants, ", ")), variant);
    return variant;
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
