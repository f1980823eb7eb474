// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_cache_write_concat_q.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void mla_cache_write_concat_q(const MlaCacheWriteConcatQProblem& problem, const Target& target);

}  // namespace k3::cpu
