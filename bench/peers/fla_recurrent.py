#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times fused_recurrent_kda of flash-linear-attention at T = 1, as `k3 bench` times our kernels.

Needs torch, triton, fla-core and einops. The recurrence alone: one kernel with gate, L2 norms and
beta inside, K = V = 128, bf16 vectors, fp32 state in and out. The function writes its new state to
a buffer of its own, which moves the bytes of an update in place; these buffers rotate with the
other tensors, so that what is written is as cold as what is read. Both state layouts are timed and
the faster one counts.
"""
import argparse
import datetime
import importlib.util
import json
import math
import re
import statistics
import sys
import types

import torch

HEAD_DIM = 128
LAUNCHES_PER_GRAPH = 20
REPLAYS = 25
COLD_L2S = 4  # a set is cold again once the others have moved this many L2s
SPIN_CYCLES = 10_000_000  # about 5 ms: all replays are queued in less
SHAPES = [(B, 12) for B in (1, 8, 32, 64, 128, 256)] + [(B, 96) for B in (1, 8, 32, 256)]


def import_fused_recurrent_kda():
    """Imports fla.ops.kda alone: a bare fla.ops stands in for the one that imports every op.
    @returns the function and the package's version"""
    import fla

    spec = importlib.util.find_spec("fla.ops")
    bare = types.ModuleType("fla.ops")
    bare.__path__ = list(spec.submodule_search_locations)
    bare.__spec__ = spec
    sys.modules["fla.ops"] = fla.ops = bare
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda

    return fused_recurrent_kda, fla.__version__


def make_set(B, H, device):
    """One call's tensors: raw gate and beta, q and k before their norms."""

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, device=device).to(dtype)

    return {
        "q": normal(B, 1, H, HEAD_DIM),
        "k": normal(B, 1, H, HEAD_DIM),
        "v": normal(B, 1, H, HEAD_DIM),
        "g": normal(B, 1, H, HEAD_DIM),
        "beta": normal(B, 1, H),
        "initial_state": normal(B, H, HEAD_DIM, HEAD_DIM, dtype=torch.float32),
        "A_log": torch.rand(H, device=device),
        "dt_bias": normal(H * HEAD_DIM, dtype=torch.float32),
    }


def step(fused_recurrent_kda, tensors, state_v_first):
    """@returns o [B, 1, H, V] and the new state"""
    return fused_recurrent_kda(
        **tensors,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        lower_bound=-5.0,
        state_v_first=state_v_first,
    )


def capture_graphs(sets, launch):
    """As many graphs of 20 launches as it takes for every set to have its turn. A result lives
    until the set's next turn; then its memory may serve again."""
    results = [None] * len(sets)
    num_graphs = math.ceil(len(sets) / LAUNCHES_PER_GRAPH)
    graphs = []
    for g in range(num_graphs):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(g * LAUNCHES_PER_GRAPH, (g + 1) * LAUNCHES_PER_GRAPH):
                results[i % len(sets)] = launch(sets[i % len(sets)])
        graphs.append(graph)
    return graphs


def time_graphs(graphs):
    """Microseconds a launch: median over replays queued behind a kernel that keeps the GPU busy."""
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    torch.cuda._sleep(SPIN_CYCLES)
    for r in range(REPLAYS):
        events[r].record()
        graphs[r % len(graphs)].replay()
    events[REPLAYS].record()
    torch.cuda.synchronize()
    return statistics.median(
        1e3 * events[r].elapsed_time(events[r + 1]) / LAUNCHES_PER_GRAPH for r in range(REPLAYS)
    )


def time_shape(fused_recurrent_kda, B, H):
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    bytes_per_launch = 2 * 4 * B * H * HEAD_DIM * HEAD_DIM
    num_sets = max(2, math.ceil(COLD_L2S * l2_bytes / bytes_per_launch) + 1)
    sets = [make_set(B, H, "cuda") for _ in range(num_sets)]
    times = {}
    for layout, state_v_first in (("KV", False), ("VK", True)):
        launch = lambda tensors: step(fused_recurrent_kda, tensors, state_v_first)  # noqa: E731
        launch(sets[0])  # compiles
        torch.cuda.synchronize()
        graphs = capture_graphs(sets, launch)
        times[layout] = time_graphs(graphs)
        del graphs
        torch.cuda.empty_cache()
    layout = min(times, key=times.get)
    return {"B": B, "H": H, "us": times[layout], "state": layout}


def machine_name():
    """As `k3 bench` spells it."""
    return re.sub("[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True, metavar="OUT", help="write the figures here")
    args = parser.parse_args()
    fused_recurrent_kda, version = import_fused_recurrent_kda()
    rows = []
    with torch.no_grad():
        for B, H in SHAPES:
            rows.append(time_shape(fused_recurrent_kda, B, H))
            print("B={B} H={H}: {us:.2f} us, state {state}".format(**rows[-1]), flush=True)
    report = {
        "machine": machine_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "name": f"fla fused_recurrent_kda {version}, recurrence alone",
        "ops": ["kda_fused_decode", "kda_packed_decode"],
        "torch": torch.__version__,
        "rows": rows,
    }
    with open(args.json, "w") as file:
        json.dump(report, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
