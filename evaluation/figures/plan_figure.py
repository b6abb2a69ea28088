#!/usr/bin/env python3
"""Draws what `tandem plan --sweep --json FILE` says of a machine. All of it is simulated.

    build/host-release/tandem plan --gpu t4 --host g4dn.4xlarge --model llama-2-7b --workload osc --sweep --json plan.json
    python3 evaluation/figures/plan_figure.py plan.json --out plan.svg          # or .png; needs matplotlib

Four panels: output tokens a second of each strategy where all requests wait, beside the bound and the ideal gpu-only;
latency over output tokens and time to first token against load; and what gpu-only, the best strategy and the bound
make of what CPU attention reads.
"""

import argparse
import json
import pathlib
import sys
from types import SimpleNamespace


def load_lines(report, name):
    """{strategy: [(requests a second, value)]}, by rate."""
    lines = {}
    for point in report["load_sweep"]:
        lines.setdefault(point["strategy"], []).append((point["request_rate"], point[name]))
    return {strategy: sorted(points) for strategy, points in lines.items()}


def bandwidth_lines(report):
    """{label: [(GB/s, tokens a second)]}."""
    names = {"gpu-only": "gpu_only_throughput", "best strategy": "best_throughput", "bound": "upper_bound_throughput"}
    points = sorted(report["host_bandwidth_sweep"], key=lambda point: point["cpu_attention_gb_per_s"])
    return {label: [(point["cpu_attention_gb_per_s"], point[name]) for point in points] for label, name in names.items()}


def title_of(report):
    machine = " with ".join(name for name in (report["gpu"], report["host"]) if name) or report["costs_from"]
    return f"Simulated: {machine}, {report['model']}, {report['workload']}"


def note_of(report):
    return (
        f"tandem plan; costs from {report['costs_from']}. Room for {report['gpu_kv_tokens']:,} KV tokens on the GPU and "
        f"{report['cpu_kv_tokens']:,} on the host; CPU attention reads {report['cpu_attention_gb_per_s']:.0f} GB/s."
    )


def draw(report, paths):
    import figure_style as style

    figure, axes = style.new_figure(4, title_of(report))
    bars, latency, first, bandwidth = axes
    strategies = [each["strategy"] for each in report["strategies"]]
    panel = SimpleNamespace(strategies=strategies, label=lambda name: name)

    rates = [each["output_throughput"] for each in report["strategies"]]
    colors = [style.style_of(panel, name)["color"] for name in strategies]
    drawn = bars.bar(strategies, rates, color=colors, width=0.65)
    bars.bar_label(drawn, [f"{each['over_gpu_only']:.2f}x" for each in report["strategies"]], fontsize=style.NOTE_SIZE)
    bars.axhline(report["upper_bound_throughput"], color=style.BOUND, linestyle="--", label="bound")
    bars.axhline(report["ideal_gpu_only_throughput"], color=style.BOUND, linestyle=":", label="ideal gpu-only")
    bars.set(title="all requests waiting", ylabel="output tokens/s")
    bars.tick_params(axis="x", rotation=30)

    for axis, name, scale, title, label in (
        (latency, "mean_per_token_latency_s", 1, "latency against load", "latency over output tokens (s)"),
        (first, "median_ttft_ms", 1e-3, "time to first token against load", "median (s)"),
    ):
        for strategy, points in load_lines(report, name).items():
            xs, ys = zip(*points, strict=True)
            axis.plot(xs, [scale * y for y in ys], label=strategy, markersize=4, linewidth=1.4, **style.style_of(panel, strategy))
        axis.set(title=title, xlabel="requests/s", ylabel=label, yscale="log")

    styles = {
        "gpu-only": {"color": style.COLORS["gpu-only"], "marker": style.MARKERS["gpu-only"]},
        "best strategy": {"color": "black", "marker": "*"},
        "bound": {"color": style.BOUND, "linestyle": "--"},
    }
    for label, points in bandwidth_lines(report).items():
        shown = None if label in strategies else label
        bandwidth.plot(*zip(*points, strict=True), label=shown, markersize=4, linewidth=1.4, **styles[label])
    bandwidth.axvline(report["cpu_attention_gb_per_s"], color=style.BOUND, linewidth=0.8)
    bandwidth.annotate("this host", (report["cpu_attention_gb_per_s"], 0), xytext=(3, 3), textcoords="offset points", fontsize=style.NOTE_SIZE)
    bandwidth.set(title="if the host were faster or slower", xlabel="GB/s that CPU attention reads", ylabel="output tokens/s", ylim=(0, None))

    style.finish(figure, axes, set(strategies), note_of(report), paths)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="SVG or PNG")
    args = parser.parse_args(words)
    report = json.loads(args.plan.read_text())
    if not report.get("load_sweep"):
        sys.exit(f"{args.plan} has no sweeps: give tandem plan --sweep")
    try:
        draw(report, [args.out])
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: pip install -r evaluation/figures/requirements.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
