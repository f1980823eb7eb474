// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/cublaslt.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "k3/error.h"

namespace k3::cuda {
namespace {

/// The functions used here, each under its own name.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  std::string missing;  ///< empty where all is there, else what is not
};

void* open_library(std::string& missing) {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::vector<std::string> paths = {name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* folder = std::getenv(variable); folder != nullptr && *folder != '\0')
      paths.push_back(fmt::format("{}/lib64/{}", folder, name));
  paths.push_back("/usr/local/cuda/lib64/" + name);
  paths.push_back(fmt::format("/usr/local/cuda-{}/lib64/{}", CUBLAS_VER_MAJOR, name));
  for (const std::string& path : paths)
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* const error = dlerror();
  missing = fmt::format("{} was not found{}{}", name, error != nullptr ? ": " : "",
                        error != nullptr ? error : "");
  return nullptr;
}

Library load_library() {
  Library library;
  void* const object = open_library(library.missing);
  if (object == nullptr) return library;
  const auto take = [&](const char* name, auto& function) {
    void* const symbol = dlsym(object, name);
    if (symbol == nullptr) library.missing = std::string("libcublasLt has no ") + name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  take("cublasLtCreate", library.create);
  take("cublasLtMatmul", library.matmul);
  take("cublasLtMatmulAlgoGetHeuristic", library.get_heuristic);
  take("cublasLtMatmulDescCreate", library.create_desc);
  take("cublasLtMatmulDescSetAttribute", library.set_desc);
  take("cublasLtMatrixLayoutCreate", library.create_layout);
  take("cublasLtMatmulPreferenceCreate", library.create_preference);
  take("cublasLtMatmulPreferenceSetAttribute", library.set_preference);
  take("cublasLtMatmulPreferenceDestroy", library.destroy_preference);
  return library;
}

const Library& library() {
  static const Library loaded = load_library();
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(static_cast<int>(status),
                    fmt::format("{} failed with cuBLAS status {}", call, static_cast<int>(status)));
}

/// A library's first calls may allocate, which a stream that is being captured elsewhere in this
/// thread must not forbid: nothing of it becomes part of the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A row-major matrix is a column-major one transposed: c^T = b a^T, where b is transposed once
/// more. The objects of a plan live as long as the process.
struct Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algo = {};
  bool found = false;
};

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

std::int64_t leading_dimension(std::int64_t rows, std::int64_t stride, std::int64_t columns) {
  return rows == 1 ? columns : stride;
}

Plan make_plan(cublasLtHandle_t handle, const LtProduct& p) {
  const Library& lt = library();
  Plan plan;
  plan.handle = handle;
  check(lt.create_desc(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(lt.set_desc(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        "cublasLtMatmulDescSetAttribute");
  const auto layout = [&](cublasLtMatrixLayout_t& to, cudaDataType_t type, std::int64_t rows,
                          std::int64_t columns, std::int64_t stride) {
    check(lt.create_layout(&to, type, static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(columns), stride),
          "cublasLtMatrixLayoutCreate");
  };
  layout(plan.b, CUDA_R_16BF, p.K, p.N, leading_dimension(p.N, p.b_stride, p.K));
  layout(plan.a, CUDA_R_16BF, p.K, p.M, leading_dimension(p.M, p.a_stride, p.K));
  layout(plan.c, p.c_bf16 != nullptr ? CUDA_R_16BF : CUDA_R_32F, p.N, p.M, p.N);

  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(lt.set_preference(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kCublasLtWorkspaceBytes});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
  // Parts of a sum are added in one order, in fp32.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status = lt.get_heuristic(handle, plan.desc, plan.b, plan.a, plan.c, plan.c,
                                                 preference, 1, &result, &found);
  lt.destroy_preference(preference);
  plan.found = status == CUBLAS_STATUS_SUCCESS && found > 0;
  plan.algo = result.algo;
  return plan;
}

/// What a plan depends on.
using PlanKey = std::array<std::int64_t, 9>;

PlanKey key_of(const LtProduct& p, int device) {
  return {device,
          p.M,
          p.N,
          p.K,
          p.a_stride,
          p.b_stride,
          alignment_of(p.a),
          alignment_of(p.b),
          static_cast<std::int64_t>(p.c_bf16 != nullptr)};
}

/// Guarded by its mutex; never destroyed.
class Plans {
 public:
  const Plan& get(const PlanKey& key, const LtProduct& p, int device) {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const DeviceGuard guard(device);
    K3_CUDA_CHECK(guard.error());
    const RelaxedCapture relaxed;
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) check(library().create(&handle), "cublasLtCreate");
    return plans_.emplace(key, make_plan(handle, p)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
  std::map<PlanKey, Plan> plans_;
};

/// A call asks twice, for whether it is refused and to run: the second time a thread finds the plan
/// that it had last.
const Plan& plan_of(const LtProduct& product, int device) {
  static Plans& plans = *new Plans;
  thread_local PlanKey last_key = {};
  thread_local const Plan* last = nullptr;
  const PlanKey key = key_of(product, device);
  if (last == nullptr || key != last_key) {
    last = &plans.get(key, product, device);
    last_key = key;
  }
  return *last;
}

}  // namespace

const char* cublaslt_refusal(const LtProduct& product, int device) {
  if (!library().missing.empty()) return library().missing.c_str();
  thread_local std::string failure;
  try {
    return plan_of(product, device).found ? nullptr : "cuBLASLt has no algorithm for this product";
  } catch (const CudaError& error) {
    failure = error.what();
    return failure.c_str();
  }
}

void cublaslt_multiply(const LtProduct& product, void* workspace, int device, cudaStream_t stream) {
  const Plan& plan = plan_of(product, device);
  const float one = 1.0F;
  const float zero = 0.0F;
  void* const c = product.c_bf16 != nullptr ? product.c_bf16 : product.c;
  const RelaxedCapture relaxed;
  check(
      library().matmul(plan.handle, plan.desc, &one, product.b, plan.b, product.a, plan.a, &zero, c,
                       plan.c, c, plan.c, &plan.algo, workspace, kCublasLtWorkspaceBytes, stream),
      "cublasLtMatmul");
}

}  // namespace k3::cuda

#else  // the toolkit has no cuBLASLt

namespace k3::cuda {

const char* cublaslt_refusal(const LtProduct&, int) {
  return "this build was made without the headers of cuBLASLt";
}
void cublaslt_multiply(const LtProduct&, void*, int, cudaStream_t) {}

}  // namespace k3::cuda

#endif
