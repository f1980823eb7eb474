// SPDX-License-Identifier: Apache-2.0
#include "contract/add3.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {

void add3(const Add3Args& args) {
  const Add3Problem p = check(args);
  for (std::int64_t row = 0; row < p.num_rows; ++row) {
    for (std::int64_t d = 0; d < p.D; ++d) {
      const double a = to_float(p.a[row * p.a_stride + d]);
      const double b = to_float(p.b[row * p.b_stride + d]);
      const double c = to_float(p.c[row * p.c_stride + d]);
      p.out[row * p.out_stride + d] = round_bf16(to_float(round_bf16(a + b)) + c);
    }
  }
}

}  // namespace k3::oracle
