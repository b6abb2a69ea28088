#!/usr/bin/env python3
"""Draws how long a whole turn of agents takes, and how many are finished, against how much KV they have together.

    python3 evaluation/figures/agents_turns.py evaluation/results/agents_h200.json --out docs/img/agents_turns.svg

The file is that of agents_on_gpu.py. Drawing needs matplotlib.
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import agents_table  # noqa: E402
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


def read_points(path):
    """{side: [Point, ...] by their times} of the sides that were measured."""
    points = {}
    for row in agents_table.turn_rows(result_files.read_content(path)["rows"]):
        for side, report in agents_table.results_of(row).items():
            _, (p99_s, exact) = turn_percentiles_s(report)
            times, per_minute = report["kv_over_gpu_tier"]["wanted"], report["sessions"]["turns_per_minute"]
            points.setdefault(side, []).append(Point(times, p99_s, exact, per_minute))
    if not points:
        raise ValueError(f"{path}: no turns of agents")
    return {side: sorted(points[side], key=lambda point: point.times) for side in agents_table.SIDES if side in points}


def draw(points, out):
    import figure_style

    title = "Agents whose KV grows beyond the gpu tier, at the same rate"
    figure, (turn_axis, rate_axis) = figure_style.new_figure(2, title)
    panel = Sides()
    for side, measured in points.items():
        waits = [(point.times, repeats.spread_of([point.p99_s])) for point in measured]
        rates = [(point.times, repeats.spread_of([point.turns_per_minute])) for point in measured]
        at_least = {point.times for point in measured if not point.exact}
        figure_style.draw_line(turn_axis, panel, side, waits, at_least)
        figure_style.draw_line(rate_axis, panel, side, rates, set())
    all_times = sorted({point.times for measured in points.values() for point in measured})
    for axis in (turn_axis, rate_axis):
        axis.set_xticks(all_times, [f"{times:g}x" for times in all_times])
        axis.set_xlabel("KV of all sessions, of the gpu tier")
        axis.set_ylim(bottom=0)
    turn_axis.set_ylabel("a whole turn, p99, seconds")
    rate_axis.set_ylabel("finished turns a minute")
    note = ""
    if any(not point.exact for measured in points.values() for point in measured):
        note = "Hollow: at least; turns that were not done when the run was over count as that long."
    figure_style.finish(figure, [turn_axis, rate_axis], [panel.label(agents_table.SIDES[0])], note, [out])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the .svg to write")
    args = parser.parse_args()
    draw(read_points(args.file), args.out)


if __name__ == "__main__":
    main()
