#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a peer's figures, as the programs in bench/peers write them, into a report of `k3 bench`.

Both must be of the same machine. Every row of one of the peer's `ops` whose shape is one of the
peer's, every size of it, gets the figure in its `peer` object; the report is rewritten in place.
"""
import argparse
import json
import math
import os


def join(report, peer):
    """Adds the peer's figures to the report. @returns the number of rows that got one"""
    for key in ("machine", "name", "ops", "rows"):
        if key not in peer:
            raise SystemExit(f"join_peers: the peer's file has no {key}")
    if report["machine"] != peer["machine"]:
        raise SystemExit(f"join_peers: {report['machine']} is not {peer['machine']}")
    for figure in peer["rows"]:
        us = figure.get("us")
        if not isinstance(us, (int, float)) or not math.isfinite(us) or us <= 0:
            raise SystemExit(f"join_peers: us must be a positive number; got {us!r}")
    joined = 0
    for row in report["rows"]:
        if row["op"] not in peer["ops"]:
            continue
        for figure in peer["rows"]:
            if all(figure.get(name) == size for name, size in row["shape"].items()):
                # Timed without a graph, a figure holds the host's part, too.
                way = "" if figure.get("way", "graph") == "graph" else ", no graph"
                row["peer"][peer["name"] + way] = figure["us"]
                joined += 1
                break
    return joined


def load(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"join_peers: {path}: {error}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", help="of k3 bench --json")
    parser.add_argument("peer", help="of a program in bench/peers")
    args = parser.parse_args()
    report = load(args.report)
    peer = load(args.peer)
    joined = join(report, peer)
    if joined == 0:
        raise SystemExit("join_peers: no row of the report has an op and a shape of the peer's")
    # Beside it first: a report is never left half written.
    part = args.report + ".part"
    with open(part, "w") as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
        file.write("\n")
    os.replace(part, args.report)
    print(f"{joined} rows of {args.report} have the peer's figure")


if __name__ == "__main__":
    main()
