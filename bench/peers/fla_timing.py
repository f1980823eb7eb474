# SPDX-License-Identifier: Apache-2.0
"""What the timings of flash-linear-attention share. Needs torch, triton, fla-core and einops."""
import datetime
import importlib
import importlib.util
import json
import math
import re
import statistics
import sys
import types

import torch

HEAD_DIM = 128
LOWER_BOUND = -5.0
COLD_L2S = 4  # a set is cold again once the others have moved this many L2s
SPIN_CYCLES = 10_000_000  # about 5 ms: all replays are queued in less


def import_kda(module, function):
    """Imports a module of fla.ops.kda alone: a bare fla.ops stands in for the one that imports
    every op.
    @returns the function and the package's version"""
    import fla

    spec = importlib.util.find_spec("fla.ops")
    bare = types.ModuleType("fla.ops")
    bare.__path__ = list(spec.submodule_search_locations)
    bare.__spec__ = spec
    sys.modules["fla.ops"] = fla.ops = bare
    module = importlib.import_module(f"fla.ops.kda.{module}")
    return getattr(module, function), fla.__version__


def make_set(B, T, H, N, device="cuda"):
    """One call's tensors: raw gate and beta, q and k before their norms, N states."""

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, device=device).to(dtype)

    return {
        "q": normal(B, T, H, HEAD_DIM),
        "k": normal(B, T, H, HEAD_DIM),
        "v": normal(B, T, H, HEAD_DIM),
        "g": normal(B, T, H, HEAD_DIM),
        "beta": normal(B, T, H),
        "initial_state": normal(N, H, HEAD_DIM, HEAD_DIM, dtype=torch.float32),
        "A_log": torch.rand(H, device=device),
        "dt_bias": normal(H * HEAD_DIM, dtype=torch.float32),
    }


def num_cold_sets(bytes_per_launch):
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, math.ceil(COLD_L2S * l2_bytes / bytes_per_launch) + 1)


def capture_graphs(sets, launch, launches_per_graph):
    """As many graphs as it takes for every set to have its turn. A result lives until the set's
    next turn; then its memory may serve again."""
    results = [None] * len(sets)
    num_graphs = math.ceil(len(sets) / launches_per_graph)
    graphs = []
    for g in range(num_graphs):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(g * launches_per_graph, (g + 1) * launches_per_graph):
                results[i % len(sets)] = launch(sets[i % len(sets)])
        graphs.append(graph)
    return graphs


def time_graphs(graphs, launches_per_graph, replays):
    """Microseconds a launch: median over replays queued behind a kernel that keeps the GPU busy."""
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    torch.cuda._sleep(SPIN_CYCLES)
    for r in range(replays):
        events[r].record()
        graphs[r % len(graphs)].replay()
    events[replays].record()
    torch.cuda.synchronize()
    return statistics.median(
        1e3 * events[r].elapsed_time(events[r + 1]) / launches_per_graph for r in range(replays)
    )


def machine_name():
    """As `k3 bench` spells it."""
    return re.sub("[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")


def write_report(path, name, ops, rows):
    """What tools/join_peers.py reads."""
    report = {
        "machine": machine_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "name": name,
        "ops": ops,
        "torch": torch.__version__,
        "rows": rows,
    }
    with open(path, "w") as file:
        json.dump(report, file, indent=2)
        file.write("\n")
