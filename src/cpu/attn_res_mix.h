// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/attn_res_mix.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void attn_res_mix(const AttnResMixProblem& problem, const Target& target);
std::size_t attn_res_mix_workspace_size(const AttnResMixProblem& problem, const Target& target);

}  // namespace k3::cpu
