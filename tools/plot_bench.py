#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a report of `k3 bench --json` or `k3 layer --json` as an SVG: one panel per op, or per part
of a layer, one bar per shape and variant.

The bar is the median time, its whisker p10 to p90, the grey tick the floor that the machine's
measured rates allow. Figures of others, where the report has them, are diamonds.
"""
import argparse
import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

BAR_HEIGHT = 0.28  # inches per row
PEER_COLOURS = ("#c2571a", "#6b3fa0", "#1b7f5c", "#a8325e")


def shape_text(shape):
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def label_of(row, several):
    shape = shape_text(row["shape"])
    if not shape:
        return row["variant"]
    return shape + (f"  ({row['variant']})" if several else "")


def draw_op(axes, op, rows, peer_colours):
    several = len({row["variant"] for row in rows}) > 1
    for y, row in enumerate(rows):
        median = row["median_us"]
        whisker = [[max(median - row["p10_us"], 0)], [max(row["p90_us"] - median, 0)]]
        axes.barh(y, median, color="#3b6ea5", height=0.7)
        axes.errorbar(median, y, xerr=whisker, color="#1d2b3a", linewidth=1, capsize=2)
        axes.plot([row["floor_us"]] * 2, [y - 0.42, y + 0.42], color="#8a8a8a", linewidth=2)
        axes.annotate(
            f" {median:,.1f} us, {row['percent_of_floor']:.0f} % of floor",
            (max(median, row["p90_us"], *row["peer"].values()), y), va="center", fontsize=7)
        for name, microseconds in row["peer"].items():
            axes.plot(microseconds, y, "D", color=peer_colours[name], markersize=4)
    axes.set_yticks(range(len(rows)), [label_of(row, several) for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 12)  # room for the annotations
    axes.set_title(op, loc="left", fontsize=9, fontweight="bold")
    axes.set_xlabel("microseconds", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(report, path):
    ops = {}
    for row in report["rows"]:
        ops.setdefault(row.get("panel", row["op"]), []).append(row)
    if not ops:
        sys.exit("plot_bench: the report has no rows")
    names = sorted({name for row in report["rows"] for name in row["peer"]})
    peer_colours = {name: PEER_COLOURS[i % len(PEER_COLOURS)] for i, name in enumerate(names)}
    counts = [len(rows) for rows in ops.values()]
    figure, panels = plt.subplots(
        len(ops), 1, squeeze=False, layout="constrained",
        figsize=(8, 1.0 + sum(0.8 + BAR_HEIGHT * n for n in counts)),
        gridspec_kw={"height_ratios": [n + 1 for n in counts]})
    for panel, (op, rows) in zip(panels[:, 0], ops.items()):
        draw_op(panel, op, rows, peer_colours)

    legend = [plt.Line2D([], [], color="#8a8a8a", linewidth=2, label="floor")]
    legend += [plt.Line2D([], [], color=colour, marker="D", linestyle="", label=name)
               for name, colour in peer_colours.items()]
    figure.legend(handles=legend, loc="outside lower right", ncols=4, fontsize=7, frameon=False)
    ceilings = report["ceilings"]
    tensor_gflops = ceilings.get("tensor_gflops", 0)  # of a GPU; reports before 2026-11-30 lack it
    tensor_cores = f", bf16 tensor cores {tensor_gflops:,.0f} GFLOP/s" if tensor_gflops else ""
    layer = report.get("layer")
    what = f"  layer: {layer['mode']}, rank of {layer['tp']}, batch {layer['batch']}" if layer else ""
    figure.suptitle(
        f"{report['machine']}  {report['date']}  {report['commit']}{what}\n"
        f"read+write {ceilings['read_write_gbps']:,.0f} GB/s, "
        f"fp32 FMA {ceilings['fma_gflops']:,.0f} GFLOP/s{tensor_cores}", fontsize=9)
    figure.savefig(path, format="svg", metadata={"Date": None})


def first_variants(rows):
    seen = set()
    key = lambda row: (row["op"], shape_text(row["shape"]))  # noqa: E731
    return [row for row in rows if not (key(row) in seen or seen.add(key(row)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", help="a JSON file of k3 bench --json")
    parser.add_argument("svg", help="where the drawing goes")
    parser.add_argument("--chosen", action="store_true",
                        help="of each shape only the first variant that serves it, which calls take")
    arguments = parser.parse_args()
    try:
        with open(arguments.report, encoding="utf-8") as file:
            report = json.load(file)
        if arguments.chosen:
            report["rows"] = first_variants(report["rows"])
        draw(report, arguments.svg)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"plot_bench: {arguments.report}: {error}")


if __name__ == "__main__":
    main()
