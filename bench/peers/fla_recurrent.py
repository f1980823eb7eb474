#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times fused_recurrent_kda of flash-linear-attention at T = 1, as `k3 bench` times our kernels.

The recurrence alone: one kernel with gate, L2 norms and beta inside, K = V = 128, bf16 vectors,
fp32 state in and out. The function writes its new state to a buffer of its own, which moves the
bytes of an update in place; these buffers rotate with the other tensors, so that what is written is
as cold as what is read. Both state layouts are timed and the faster one counts.
"""
import argparse

import torch

import fla_timing
from fla_timing import HEAD_DIM

LAUNCHES_PER_GRAPH = 20
REPLAYS = 25
SHAPES = [(B, 12) for B in (1, 8, 32, 64, 128, 256)] + [(B, 96) for B in (1, 8, 32, 256)]


def step(fused_recurrent_kda, tensors, state_v_first):
    """@returns o [B, 1, H, V] and the new state"""
    return fused_recurrent_kda(
        **tensors,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        lower_bound=fla_timing.LOWER_BOUND,
        state_v_first=state_v_first,
    )


def time_shape(fused_recurrent_kda, B, H):
    num_sets = fla_timing.num_cold_sets(2 * 4 * B * H * HEAD_DIM * HEAD_DIM)
    sets = [fla_timing.make_set(B, 1, H, B) for _ in range(num_sets)]
    times = {}
    for layout, state_v_first in (("KV", False), ("VK", True)):
        launch = lambda tensors: step(fused_recurrent_kda, tensors, state_v_first)  # noqa: E731
        launch(sets[0])  # compiles
        torch.cuda.synchronize()
        graphs = fla_timing.capture_graphs(sets, launch, LAUNCHES_PER_GRAPH)
        times[layout] = fla_timing.time_graphs(graphs, LAUNCHES_PER_GRAPH, REPLAYS)
        del graphs
        torch.cuda.empty_cache()
    layout = min(times, key=times.get)
    return {"B": B, "H": H, "us": times[layout], "state": layout}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True, metavar="OUT", help="write the figures here")
    args = parser.parse_args()
    fused_recurrent_kda, version = fla_timing.import_kda("fused_recurrent", "fused_recurrent_kda")
    rows = []
    with torch.no_grad():
        for B, H in SHAPES:
            rows.append(time_shape(fused_recurrent_kda, B, H))
            print("B={B} H={H}: {us:.2f} us, state {state}".format(**rows[-1]), flush=True)
    fla_timing.write_report(
        args.json,
        f"fla fused_recurrent_kda {version}, recurrence alone",
        ["kda_fused_decode", "kda_packed_decode"],
        rows,
    )


if __name__ == "__main__":
    main()
