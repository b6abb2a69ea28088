#!/usr/bin/env python3
"""Runs the same work with several builds of tandem in turn and says what is beyond the spread.

    python3 evaluation/compare_programs.py --program old=BEFORE/tandem --program new=build/cuda-release/tandem
        --rows evaluation/comparisons/h200.json --only "16 SMs, Llama-3.1-8B, 1000/200" --strategies gpu-only,auto
        --repeat 3 --tandem-arg=--device --tandem-arg=cuda --json OUT.json --table OUT.md

Rows, --only, --tandem-arg and the time limit are those of compare_strategies.py; --strategies replaces the rows' own.
Points of a row run in one process (`tandem bench compare`). Programs alternate: old new, new old, old new, ... so that
a machine that drifts does it to all of them. A figure of a later program differs from that of the first beyond the
spread where no run of the one lies within the range of the other's runs.
"""

import argparse
import copy
import shlex
import sys
from pathlib import Path

import bench_runner
import compare_strategies
import engine_groups
import repeats

# Column, field of the bench JSON, digits, whether more is better.
FIGURES = (
    ("steady tok/s", "steady_output_throughput", 1, True),
    ("output tok/s", "output_throughput", 1, True),
    ("in balance tok/s", "balanced_output_throughput", 1, True),
    ("iteration ms", ("iteration_ms", "mean"), 3, False),
    ("plan us", ("schedule_us", "mean"), 0, False),
    ("plan us p99", ("schedule_us", "p99"), 0, False),
)


def parse_args(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PATH", help="two or more")
    parser.add_argument("--row", action="append", default=[], metavar="NAME: FLAGS")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="more rows, as JSON")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows with TEXT in their name")
    parser.add_argument("--strategies", help="instead of the rows' own, separated by commas")
    parser.add_argument("--duration", type=float, help="seconds of a window, instead of the rows' own")
    parser.add_argument("--seconds", type=float, default=300, help="for each run")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each point with each program")
    parser.add_argument("--tandem-arg", action="append", default=[], help="one more argument for every run")
    parser.add_argument("--json", type=Path, help="results, with the whole bench JSON of every run")
    parser.add_argument("--table", type=Path, help="the printed table, as Markdown")
    args = parser.parse_args(words)
    programs = [text.partition("=") for text in args.program]
    if len(programs) < 2 or any(not path for _, _, path in programs):
        parser.error("--program NAME=PATH is wanted twice at least")
    args.programs = {name: Path(path) for name, _, path in programs}
    if len(args.programs) < len(programs):
        parser.error("two programs have the same name")
    if args.repeat < 1:
        parser.error("--repeat is at least 1")
    # What read_rows knows beside these.
    args.workload = args.steady = None
    own_strategies, args.strategies = args.strategies, args.strategies or bench_runner.BASELINE
    try:
        args.rows = compare_strategies.read_rows(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for row in args.rows:
        if own_strategies:
            row["strategies"] = [name for name in own_strategies.split(",") if name]
        if args.duration:
            row["args"] = [*bench_runner.without_flag(row["args"], "--duration"), "--duration", f"{args.duration:g}"]
        row["runs"] = {}
    return args


def in_turn(programs, repeat):
    """The programs' names in the order of their runs."""
    names = list(programs)
    return [name for turn in range(repeat) for name in (names if turn % 2 == 0 else reversed(names))]


def value_of(report, field):
    for key in (field,) if isinstance(field, str) else field:
        report = report.get(key) if isinstance(report, dict) else None
    return report


def figures(rows_of):
    """Lines of the table: a dict for each row, strategy and figure. rows_of: the rows of each program."""
    names = list(rows_of)
    lines = []
    for index, row in enumerate(rows_of[names[0]]):
        for strategy in row["strategies"]:
            for title, field, digits, more_is_better in FIGURES:
                spreads = {}
                for name in names:
                    reports = repeats.reports_of(rows_of[name][index]["runs"].get(strategy))
                    spreads[name] = repeats.spread_of(value_of(report, field) for report in reports)
                if any(spread is None for spread in spreads.values()):
                    continue
                line = {"row": row["name"], "strategy": strategy, "figure": title}
                for name in names:
                    spread = spreads[name]
                    line[name] = f"{spread.median:.{digits}f} ({spread.minimum:.{digits}f} to {spread.maximum:.{digits}f})"
                first, last = spreads[names[0]], spreads[names[-1]]
                line["ratio"] = f"{last.median / first.median:.3f}" if first.median else "-"
                line["verdict"] = verdict(first, last, more_is_better)
                lines.append(line)
    return lines


def verdict(first, last, more_is_better):
    if first.count < 2 or last.count < 2:
        return "one run"
    if last.minimum <= first.maximum and first.minimum <= last.maximum:
        return "within the spread"
    return "better" if (last.median > first.median) == more_is_better else "WORSE"


def format_table(lines):
    if not lines:
        return ""
    text = ["| " + " | ".join(lines[0]) + " |", "|" + "---|" * len(lines[0])]
    text += ["| " + " | ".join(line.values()) + " |" for line in lines]
    return "\n".join(text) + "\n"


def errors(rows_of):
    return [
        f"- {name}, {row['name']}, {strategy}: {error}"
        for name, rows in rows_of.items()
        for row in rows
        for strategy, entry in row["runs"].items()
        for error in repeats.errors_of(entry)
    ]


def main(words=None):
    args = parse_args(words)
    rows_of = {name: copy.deepcopy(args.rows) for name in args.programs}

    def report():
        if args.json:
            flat = [{**row, "name": f"{name}: {row['name']}"} for name, rows in rows_of.items() for row in rows]
            bench_runner.write_rows(args.json, flat)
        if args.table:
            bench_runner.replace_file(args.table, format_table(figures(rows_of)))

    for name in in_turn(args.programs, args.repeat):
        program = args.programs[name]

        def own_command(row, strategy, program=program):
            return bench_runner.bench_command(program, "offline", [*row["args"], *args.tandem_arg], strategy)

        points = [(row, strategy, 1) for row in rows_of[name] for strategy in row["strategies"]]
        groups = engine_groups.run_groups(points, program, lambda row: [*row["args"], *args.tandem_arg], own_command)
        for row, strategy, done in groups:
            bench_runner.keep(row, strategy, done, f", {name}", report)
            points.remove((row, strategy, 1))
        for row, strategy, _ in points:
            done = bench_runner.run(own_command(row, strategy), row["seconds"])
            bench_runner.keep(row, strategy, done, f", {name}", report)

    report()
    for name, program in args.programs.items():
        print(f"{name}: {program}")
    for row in args.rows:
        print(f"{row['name']}: {shlex.join(row['args'])}")
    print()
    print(format_table(figures(rows_of)))
    failed = errors(rows_of)
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
