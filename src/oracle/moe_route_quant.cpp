// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route_quant.h"
#include "oracle/moe_route.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void moe_route_quant(const MoeRouteQuantArgs& args) {
  const MoeRouteQuantProblem p = check(args);
  route(p.routing);
  per_token_group_quant({.input = args.x,
                         .output_q = args.x_q,
                         .output_s = args.x_s,
                         .group_size = args.group_size,
                         .scale_ue8m0 = true});
}

}  // namespace k3::oracle
