#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times chunk_kda of flash-linear-attention on the shapes of kda_prefill, as `k3 bench` times ours.

K = V = 128, bf16 vectors, fp32 state in and out, gate (safe, -5), L2 norms and beta inside; the
package's own state layout. Its kernels in a graph, without what its host code takes between them:
sequences of one length are rows of a batch, others go by its way for graphs, which reads no length
on the host. A call that cannot be captured is timed as it is, launch by launch.

The first call of each number of heads tunes itself for a minute and more. Every row is printed and
written as soon as it is there, and none but the first is begun after the time limit.
"""
import argparse
import time

import torch

import fla_timing
from fla_timing import HEAD_DIM

LAUNCHES_PER_GRAPH = 4
REPLAYS = 15
MIXED = [1300, 547, 2048, 963, 271, 3063]
SHAPES = [
    (96, [8192]),
    (96, MIXED),
    (96, [1024] * 8),
    (96, [64] * 128),
    (12, [8192]),
    (12, MIXED),
    (12, [1024] * 8),
    (12, [512]),
    (12, [65536]),
    (64, [8192]),
    (24, [8192]),
]


def make_launch(chunk_kda, lengths):
    """@returns the rows of the batch, their tokens, and the call on a set of that shape"""
    options = dict(
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        safe_gate=True,
        lower_bound=fla_timing.LOWER_BOUND,
    )
    if len(set(lengths)) == 1:
        return len(lengths), lengths[0], lambda tensors: chunk_kda(**tensors, **options)
    starts = torch.tensor([0] + lengths).cumsum(0)
    options.update(
        cu_seqlens=starts.cuda(),
        cu_seqlens_cpu=starts,
        use_graph=True,
        max_num_seqs=len(lengths),
    )
    return 1, sum(lengths), lambda tensors: chunk_kda(**tensors, **options)


def time_launches(sets, launch):
    """Microseconds a call: median over calls that follow each other in the stream."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    for r in range(REPLAYS):
        events[r].record()
        launch(sets[r % len(sets)])
    events[REPLAYS].record()
    torch.cuda.synchronize()
    times = sorted(1e3 * events[r].elapsed_time(events[r + 1]) for r in range(REPLAYS))
    return times[REPLAYS // 2]


def time_shape(chunk_kda, H, lengths):
    B, T, launch = make_launch(chunk_kda, lengths)
    N = len(lengths)
    token_bytes = B * T * H * (5 * HEAD_DIM + 1) * 2
    num_sets = fla_timing.num_cold_sets(token_bytes + 2 * 4 * N * H * HEAD_DIM * HEAD_DIM)
    sets = [fla_timing.make_set(B, T, H, N) for _ in range(num_sets)]
    launch(sets[0])  # compiles and tunes
    torch.cuda.synchronize()
    try:
        graphs = fla_timing.capture_graphs(sets, launch, LAUNCHES_PER_GRAPH)
        us = fla_timing.time_graphs(graphs, LAUNCHES_PER_GRAPH, REPLAYS)
        way = "graph"
    except RuntimeError as error:
        print(f"no graph: {str(error).splitlines()[0]}", flush=True)
        us = time_launches(sets, launch)
        way = "launches"
    return {"T": B * T, "H": H, "seqs": N, "us": us, "way": way}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True, metavar="OUT", help="write the figures here")
    parser.add_argument("--limit-s", type=float, default=600.0, metavar="SECONDS")
    args = parser.parse_args()
    begin = time.monotonic()
    chunk_kda, version = fla_timing.import_kda("chunk", "chunk_kda")
    rows = []
    with torch.no_grad():
        for H, lengths in SHAPES:
            if rows and time.monotonic() - begin > args.limit_s:
                print(f"stopped after {args.limit_s:.0f} s", flush=True)
                break
            rows.append(time_shape(chunk_kda, H, lengths))
            torch.cuda.empty_cache()
            elapsed = time.monotonic() - begin
            print(
                "T={T} H={H} seqs={seqs}: {us:.1f} us, {way}".format(**rows[-1]),
                f"({elapsed:.0f} s)",
                flush=True,
            )
            fla_timing.write_report(
                args.json, f"fla chunk_kda {version}", ["kda_prefill"], rows
            )


if __name__ == "__main__":
    main()
