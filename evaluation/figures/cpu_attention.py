#!/usr/bin/env python3
"""Draws results of bench_cpu_attention: the share of the read bandwidth over context, a line for each batch.

    python3 evaluation/figures/cpu_attention.py --out docs/img/cpu_attention.svg \
        "Zen 4, 2 cores=evaluation/results/cpu_attention_zen4_2core.json" \
        "Xeon, 16 cores=evaluation/results/cpu_attention_xeon_16core.json"

One row of panels for each number of threads in each file, one column for each GQA group. bf16, head size 128, random
blocks, the machine's best instruction set. Needs matplotlib.
"""

import argparse
import pathlib
import sys

import matplotlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import result_files  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

GROUPS = (1, 4, 8)
AIMS = {1: 0.8, 4: 0.9, 8: 0.9}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="+", metavar="TITLE=FILE")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()

    rows = []
    for text in args.inputs:
        title, _, path = text.partition("=")
        cases = [
            case
            for case in result_files.read_content(path)
            if case["dtype"] == "bf16"
            and case["head_dim"] == 128
            and case["blocks"] == "random"
            and case["isa"] != "avx2"
            and case["gqa"] in GROUPS
        ]
        for threads in sorted({case["threads"] for case in cases}):
            rows.append((f"{title}, {threads} threads", [case for case in cases if case["threads"] == threads]))

    plt.rcParams["svg.hashsalt"] = "tandem"  # the same input gives the same file
    figure, axes = plt.subplots(len(rows), len(GROUPS), figsize=(11, 2.4 * len(rows)), sharex=True, sharey=True)
    for panels, (title, cases) in zip(axes, rows):
        for panel, gqa in zip(panels, GROUPS):
            mine = [case for case in cases if case["gqa"] == gqa]
            for index, batch in enumerate(sorted({case["batch"] for case in mine})):
                line = sorted((case["context"], case["share"]) for case in mine if case["batch"] == batch)
                panel.plot(*zip(*line), marker="o", markersize=3, color=f"C{index}", label=f"batch {batch}")
            rates = [case["read_gbps"] for case in mine]
            panel.axhline(AIMS[gqa], color="grey", linestyle=":", linewidth=1)
            panel.set_xscale("log", base=2)
            panel.set_ylim(0.4, 1.08)
            panel.set_title(f"{title}, GQA {gqa}: reading {min(rates):.0f}-{max(rates):.0f} GB/s", fontsize=8)
            panel.tick_params(labelsize=7)
    for panel in axes[-1]:
        panel.set_xlabel("context (tokens)", fontsize=8)
    for panels in axes:
        panels[0].set_ylabel("share of reading", fontsize=8)
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(args.out, metadata={"Date": None})
    print(args.out)


if __name__ == "__main__":
    main()
