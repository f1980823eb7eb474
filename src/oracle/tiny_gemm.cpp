// SPDX-License-Identifier: Apache-2.0
#include "contract/tiny_gemm.h"
#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void tiny_gemm(const TinyGemmArgs& args) {
  const TinyGemmProblem p = check(args);
  for (std::int64_t m = 0; m < p.M; ++m) {
    for (std::int64_t n = 0; n < p.N; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < p.K; ++k)
        sum += static_cast<double>(to_float(p.x[m * p.x_stride + k])) *
               to_float(p.w[n * p.w_stride + k]);
      store(p.out, p.out_dtype, m * p.out_stride + n, sum);
    }
  }
}

}  // namespace k3::oracle
