// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "contract/per_token_group_quant.h"
#include "oracle/element.h"
#include "oracle/group_quant.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void per_token_group_quant(const PerTokenGroupQuantArgs& args) {
  const PerTokenGroupQuantProblem p = check(args);
  std::vector<double> values(static_cast<std::size_t>(p.group_size));
  for (std::int64_t row = 0; row < p.T; ++row) {
    for (std::int64_t g = 0; g < p.scales.num_groups; ++g) {
      const std::int64_t begin = g * p.group_size;
      for (int i = 0; i < p.group_size; ++i)
        values[i] = load(p.input, p.input_dtype, row * p.input_stride + begin + i);
      const QuantisedGroup group(p.format, values);
      for (int i = 0; i < p.group_size; ++i)
        p.output_q[row * p.q_stride + begin + i] = group.code(p.format, values[i]);
      store_scale(p.scales, row, g, group);
    }
  }
}

}  // namespace k3::oracle
