// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/capability.h"
#include "k3/context.h"
#include "k3/device.h"
#include "k3/error.h"
#include "k3/ops/kda_chunk_inverse.h"
#include "k3/ops/kda_fused_decode.h"
#include "k3/ops/kda_output_norm.h"
#include "k3/ops/kda_packed_decode.h"
#include "k3/ops/kda_prefill.h"
#include "k3/ops/kda_recompute_wu.h"
#include "k3/ops/kda_replay_commit.h"
#include "k3/ops/kda_verify.h"
#include "k3/ops/moe_route_topk.h"
#include "k3/ops/situ_and_mul.h"
#include "k3/tensor.h"
#include "k3/version.h"
