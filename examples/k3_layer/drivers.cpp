// SPDX-License-Identifier: Apache-2.0
#include "examples/k3_layer/drivers.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "cpu/parallel.h"
#include "examples/mini_k3/machine.h"
#include "examples/mini_k3/view.h"
#include "k3/error.h"
#include "k3/ops/tiny_gemm.h"
#if K3_WITH_CUDA
#include "cuda/common/cublaslt.h"
#endif

namespace k3::layer {
namespace {

using harness::ArgSpec;
using harness::Bundle;
using harness::Call;
using harness::Cost;
using harness::Role;

bool on_cuda(const TensorView& view) { return view.device.kind == DeviceKind::kCuda; }

// --- product ---

void product_by_tiny_gemm(const Call& call, const ExecContext& ctx) {
  const TensorView x = call.tensor("x");
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += kTinyGemmMaxRows) {
    const std::int64_t end = std::min<std::int64_t>(begin + kTinyGemmMaxRows, x.shape[0]);
    TinyGemmArgs args;
    args.x = mini::rows(x, begin, end);
    args.w = call.tensor("w");
    args.out = mini::rows(call.tensor("out"), begin, end);
    tiny_gemm(args, ctx);
  }
}

#if K3_WITH_CUDA
/// Null, or why not.
const char* product_by_cublaslt(const Call& call, const ExecContext& ctx) {
  const TensorView x = call.tensor("x");
  const TensorView w = call.tensor("w");
  const TensorView out = call.tensor("out");
  cuda::LtProduct product = {.M = x.shape[0],
                             .N = w.shape[0],
                             .K = x.shape[1],
                             .a = x.data,
                             .a_stride = x.strides[0],
                             .b = w.data,
                             .b_stride = w.strides[0]};
  if (out.dtype == DType::kBF16)
    product.c_bf16 = out.data;
  else
    product.c = static_cast<float*>(out.data);
  if (out.strides[0] != product.N) return "rows of out are not next to each other";
  if (const char* why = cuda::cublaslt_refusal(product, x.device.index)) return why;
  cuda::cublaslt_multiply(product, ctx.workspace.data, x.device.index,
                          static_cast<cudaStream_t>(ctx.stream));
  return nullptr;
}
std::size_t product_workspace_size(const Call& call, const ExecContext&) {
  return on_cuda(call.tensor("x")) ? cuda::kCublasLtWorkspaceBytes : 0;
}
#else
const char* product_by_cublaslt(const Call&, const ExecContext&) {
  return "this build has no CUDA";
}
std::size_t product_workspace_size(const Call&, const ExecContext&) { return 0; }
#endif

void run_product(const Call& call, const ExecContext& ctx) {
  if (on_cuda(call.tensor("x"))) {
    const char* const why = product_by_cublaslt(call, ctx);
    if (why == nullptr) return;
    // Few rows come here only where cuBLASLt was asked for.
    if (call.tensor("x").shape[0] <= kTinyGemmMaxRows)
      throw UnsupportedError(std::string("a dense projection by cuBLASLt: ") + why);
    static std::once_flag said;
    std::call_once(said, [&] {
      std::fprintf(
          stderr,
          "k3: no cuBLASLt (%s): products of more than 16 rows by tiny_gemm, 16 at a time\n", why);
    });
    product_by_tiny_gemm(call, ctx);
    return;
  }
  static const std::unique_ptr<mini::Machine> machine = mini::make_cpu_machine();
  machine->use_threads(ctx.threads);
  machine->linear(call.tensor("x"), call.tensor("w"), call.tensor("out"));
}

Cost product_cost(const Bundle& bundle) {
  const auto weights = static_cast<double>(bundle.tensors.at("w").numel());
  const auto rows = static_cast<double>(bundle.tensors.at("x").shape()[0]);
  return {.bytes = harness::bytes_of(bundle), .flops = 2.0 * weights * rows, .tensor_cores = true};
}

// --- short_conv ---

void run_short_conv(const Call& call, const ExecContext& ctx) {
  const ShortConv conv = {call.tensor("in"), call.tensor("conv_states"), call.tensor("weight"),
                          call.tensor("state_indices"), call.tensor("out")};
#if K3_WITH_CUDA
  if (on_cuda(call.tensor("in"))) return short_conv_cuda(conv, ctx);
#endif
  short_conv_cpu(conv, ctx.threads > 0 ? ctx.threads : cpu::max_threads());
}
std::size_t no_workspace(const Call&, const ExecContext&) { return 0; }

/// Of the pool only the windows in use count, read and written.
Cost short_conv_cost(const Bundle& bundle) {
  const auto& in = bundle.tensors.at("in").shape();
  const auto N = static_cast<double>(bundle.tensors.at("state_indices").numel());
  const auto C = static_cast<double>(in[1]);
  const auto rows = static_cast<double>(in[0]);
  return {.bytes = 4.0 * rows * C + N * 12.0 * C + 16.0 * C, .flops = 12.0 * rows * C};
}

}  // namespace

const harness::Driver& matrix_product_driver() {
  static constexpr ArgSpec kArgs[] = {
      {"x", Role::kInput}, {"w", Role::kInput}, {"out", Role::kOutput}};
  static const harness::Driver driver = {.name = "product",
                                         .args = kArgs,
                                         .run = run_product,
                                         .workspace_size = product_workspace_size,
                                         .cost = product_cost};
  return driver;
}

const harness::Driver& short_conv_driver() {
  static constexpr ArgSpec kArgs[] = {{"in", Role::kInput},
                                      {"conv_states", Role::kInPlace},
                                      {"weight", Role::kInput},
                                      {"state_indices", Role::kInput},
                                      {"out", Role::kOutput}};
  static const harness::Driver driver = {.name = "short_conv",
                                         .args = kArgs,
                                         .run = run_short_conv,
                                         .workspace_size = no_workspace,
                                         .cost = short_conv_cost};
  return driver;
}

}  // namespace k3::layer
