// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/openblas.h"

#if __has_include(<cblas-openblas.h>)
#include <cblas-openblas.h>
#include <dlfcn.h>

#include <type_traits>

namespace k3::mini {
namespace {

struct Library {
  decltype(&cblas_sgemm) sgemm = nullptr;
  std::string missing;
};

/// The build with threads of its own may be called by several of ours at once, and be told to
/// start none. The one without must not be called so; the one with OpenMP would change our threads.
constexpr int kBuiltWithThreads = 1;

Library load_library() {
  Library library;
  void* const object = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  const auto take = [&](const char* name, auto& function) {
    void* const symbol = object != nullptr ? dlsym(object, name) : nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    return symbol != nullptr;
  };
  decltype(&openblas_get_parallel) get_parallel = nullptr;
  decltype(&openblas_set_num_threads) set_num_threads = nullptr;
  if (!take("cblas_sgemm", library.sgemm) || !take("openblas_get_parallel", get_parallel) ||
      !take("openblas_set_num_threads", set_num_threads))
    library.missing = "libopenblas.so.0 was not found";
  else if (get_parallel() != kBuiltWithThreads)
    library.missing = "libopenblas.so.0 is not the build with pthreads";
  else
    set_num_threads(1);
  return library;
}

const Library& library() {
  static const Library loaded = load_library();
  return loaded;
}

}  // namespace

const std::string& openblas_missing() { return library().missing; }

void openblas_multiply(const FloatProduct& p) {
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };
  library().sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(p.M), size(p.N), size(p.K), 1.0F,
                  p.a, size(p.K), p.b, size(p.K), 0.0F, p.c, size(p.N));
}

}  // namespace k3::mini

#else

namespace k3::mini {

const std::string& openblas_missing() {
  static const std::string why = "this build was made without the header of OpenBLAS";
  return why;
}
void openblas_multiply(const FloatProduct&) {}

}  // namespace k3::mini

#endif
