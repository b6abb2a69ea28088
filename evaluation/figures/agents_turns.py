#!/usr/bin/env python3
"""Draws how long a whole turn of agents takes, and how many are finished, against how much KV they have together.

    python3 evaluation/figures/agents_turns.py evaluation/results/agents_h200.json --out docs/img/agents_turns.svg
    python3 evaluation/figures/agents_turns.py evaluation/results/agents_h200.json \\
        evaluation/results/agents_h200_whole.json --panels p99 --out docs/img/readme_agents.svg

The files are those of agents_on_gpu.py; each has its panels. Drawing needs matplotlib.
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import agents_table  # noqa: E402
import engine_groups  # noqa: E402
import repeats  # noqa: E402
import result_files  # noqa: E402
from agents_load import turn_percentiles_s  # noqa: E402


@dataclass(frozen=True)
class Point:
    times: float  # KV together over the gpu tier, as it was meant
    p99_s: float
    exact: bool  # else the turn takes at least so long
    turns_per_minute: float


@dataclass(frozen=True)
class Sides:
    """What figure_style asks of a panel."""

    strategies: tuple = agents_table.SIDES

    def label(self, strategy):
        return agents_table.SIDE_NAMES[strategy]


@dataclass(frozen=True)
class Machine:
    title: str  # which GPU, and its tier
    points: dict  # {side: [Point, ...] by their times} of the sides that were measured


def title_of(words):
    """Of the flags of a command."""
    slice_sms = engine_groups.value_of(words, "--gpu-sm-limit")
    tokens = (engine_groups.value_of(words, "--gpu-kv-cache") or "").removesuffix("tok")
    gpu = f"{slice_sms} SMs" if slice_sms else "whole GPU"
    return f"{gpu}, gpu tier of {int(tokens):,} tokens" if tokens.isdigit() else gpu


def read_machine(path):
    points = {}
    title = ""
    for row in agents_table.turn_rows(result_files.read_content(path)["rows"]):
        for side, report in agents_table.results_of(row).items():
            _, (p99_s, exact) = turn_percentiles_s(report)
            times, per_minute = report["kv_over_gpu_tier"]["wanted"], report["sessions"]["turns_per_minute"]
            points.setdefault(side, []).append(Point(times, p99_s, exact, per_minute))
            title = title or title_of(row["runs"][side]["command"])
    if not points:
        raise ValueError(f"{path}: no turns of agents")
    in_order = [side for side in agents_table.SIDES if side in points]
    return Machine(title, {side: sorted(points[side], key=lambda point: point.times) for side in in_order})


# {what --panels calls it: (label of its axis, what it shows of a point)}
PANELS = {
    "p99": ("a whole turn, p99, seconds", lambda point: point.p99_s),
    "rate": ("finished turns a minute", lambda point: point.turns_per_minute),
}


def draw_panel(axis, machine, name):
    import figure_style

    label, value_of = PANELS[name]
    for side, measured in machine.points.items():
        line = [(point.times, repeats.spread_of([value_of(point)])) for point in measured]
        at_least = {point.times for point in measured if name == "p99" and not point.exact}
        figure_style.draw_line(axis, Sides(), side, line, at_least)
    all_times = sorted({point.times for measured in machine.points.values() for point in measured})
    axis.set_title(machine.title, fontsize=figure_style.LABEL_SIZE)
    axis.set_xticks(all_times, [f"{times:g}x" for times in all_times])
    axis.set_xlabel("KV of all sessions, of the gpu tier")
    axis.set_ylabel(label)
    axis.set_ylim(bottom=0)


def draw(machines, panels, out):
    import figure_style

    title = "Agents whose KV grows beyond the gpu tier, at the same rate"
    figure, axes = figure_style.new_figure(len(machines) * len(panels), title)
    pairs = [(machine, name) for machine in machines for name in panels]
    for axis, (machine, name) in zip(axes, pairs, strict=True):
        draw_panel(axis, machine, name)
    note = ""
    if any(not point.exact for machine in machines for measured in machine.points.values() for point in measured):
        note = "Hollow: at least; turns that were not done when the run was over count as that long."
    figure_style.finish(figure, axes, [Sides().label(agents_table.SIDES[0])], note, [out])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--panels", default=",".join(PANELS), help="of each file, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the .svg to write")
    args = parser.parse_args()
    panels = args.panels.split(",")
    if unknown := set(panels) - set(PANELS):
        parser.error(f"--panels are {', '.join(PANELS)}, not {', '.join(sorted(unknown))}")
    draw([read_machine(path) for path in args.files], panels, args.out)


if __name__ == "__main__":
    main()
