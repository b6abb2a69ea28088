#!/usr/bin/env python3
"""The figures of both papers from runs of this program: measure, draw, and the tables of docs/evaluation_tables.md.

    python3 evaluation/figures/figure.py list
    python3 evaluation/figures/figure.py measure neo9 apex8 --json FILE --tandem-arg=--device --tandem-arg=cuda [--quick]
    python3 evaluation/figures/figure.py draw neo9 FILE --out docs/img          # neo9.svg and neo9.png; needs matplotlib
    python3 evaluation/figures/figure.py tables docs/evaluation_tables.md       # from the files that figures.json names

FIGURE is a name of `list`, or all. What a figure measures stands in figures.json; figures share runs, so measure
several into one file, or one after the other with --resume, which keeps what the file has and goes on where it ends.
draw takes the last of several files first, and without any the files that figures.json names.
"""

import argparse
import signal
import sys
import textwrap
from pathlib import Path

import figure_data
import figure_spec
import figure_tables
from figure_spec import REPOSITORY

import bench_runner
import engine_groups

# Characters, of a panel.
TITLE_WIDTH = 44


def parse_args(figures, words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what each figure measures and how long that takes")
    measure = commands.add_parser("measure", help="run a figure's points; writes JSON")
    measure.add_argument("figures", nargs="+", metavar="FIGURE", choices=[*figures, "all"])
    measure.add_argument("--json", type=Path, required=True, help="results, with the whole bench JSON of every run")
    measure.add_argument("--resume", action="store_true", help="keep what the file has")
    measure.add_argument("--quick", action="store_true", help="fewer points")
    measure.add_argument("--only", action="append", default=[], metavar="TEXT", help="points with TEXT in their name")
    measure.add_argument("--strategies", metavar="A,B", type=lambda text: text.split(","), help="only these")
    measure.add_argument("--repeat", type=int, default=1, metavar="N", help="run everything N times, in N rounds")
    measure.add_argument("--seconds", type=float, default=120, help="limit for each run")
    measure.add_argument("--window-scale", type=float, default=1, metavar="F", help="windows F times as long")
    measure.add_argument("--together", action="store_true", help="one engine for points that can share it")
    measure.add_argument("--tandem", type=Path, default=REPOSITORY / "build/cuda-release/tandem")
    measure.add_argument("--tandem-arg", action="append", default=[], help="one more argument for every run")
    draw = commands.add_parser("draw", help="JSON to SVG and PNG")
    draw.add_argument("figure", metavar="FIGURE", choices=[*figures, "all"])
    draw.add_argument("files", nargs="*", help="results of measure or of compare_strategies.py")
    draw.add_argument("--out", type=Path, default=Path("."), metavar="FOLDER")
    draw.add_argument("--formats", default="svg,png")
    tables = commands.add_parser("tables", help="put the tables into the page, where it says so")
    tables.add_argument("page", type=Path)
    args = parser.parse_args(words)
    if args.command == "measure" and args.repeat < 1:
        parser.error("--repeat is at least 1")
    return args


def chosen(figures, names):
    return list(figures.values()) if "all" in names else [figures[name] for name in dict.fromkeys(names)]


def list_figures(figures):
    for figure in figures.values():
        rows = figure_spec.rows_of([figure])
        quick = figure_spec.rows_of([figure], quick=True)
        print(f"{figure.name:7} {describe_rows(rows)}; quick: {describe_rows(quick)}. {figure.title} ({figure.paper})")
        for panel in figure.panels:
            print(f"          {panel.title.format(gpu='GPU')}, which stands for {panel.stands_for}: {panel.work}")
    everything = figures.values()
    print(f"all     {describe_rows(figure_spec.rows_of(everything))}, shared runs once")
    print(f"        quick: {describe_rows(figure_spec.rows_of(everything, quick=True))}")


def describe_rows(rows):
    count = sum(len(row["strategies"]) for row in rows)
    seconds = sum(len(row["strategies"]) * figure_spec.expected_seconds(row) for row in rows)
    return f"{count} runs, {seconds / 60:.1f} min"


def measure(args, figures):
    if args.json.exists() and not args.resume:
        sys.exit(f"{args.json} is there already: --resume goes on with it")
    rows = figure_spec.rows_of(chosen(figures, args.figures), args.quick, args.window_scale)
    rows = [row for row in rows if not args.only or any(text in row["name"] for text in args.only)]
    if not rows:
        sys.exit(f"no point has {' or '.join(args.only)} in its name" if args.only else "there is no quick point")
    if args.strategies:
        for row in rows:
            row["strategies"] = [name for name in row["strategies"] if name in args.strategies]
        if unknown := set(args.strategies).difference(*(row["strategies"] for row in rows)):
            sys.exit(f"no point has the strategy {' or '.join(sorted(unknown))}")
    for row in rows:
        row["seconds"] = args.seconds

    def words_of(row):
        return [*row["args"], *args.tandem_arg]

    def command_of(row, strategy):
        return bench_runner.bench_command(args.tandem, row["mode"], words_of(row), strategy)

    def together(points):
        return engine_groups.run_groups(points, args.tandem, words_of, command_of)

    # The finally in bench_runner.run() ends the program that is running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    others = bench_runner.take_over(args.json if args.resume else None, rows, command_of)
    print(f"{describe_rows(rows)}, less what the file has", file=sys.stderr)
    after_run = lambda: bench_runner.write_rows(args.json, [*others, *rows])  # noqa: E731
    groups = together if args.together else None
    return 0 if bench_runner.measure(rows, command_of, args.repeat, after_run, groups) else 1


def note_of(panels):
    """Below a figure: where and how it was measured."""
    kinds = figure_data.kinds_of_run(panels)
    cells = [cell for data in panels for line in data.cells.values() for cell in line.values()]
    balanced = any(cell.balanced for cell in cells)
    throughput = "; throughput with the prompts that belong to the outputs" if balanced else ""
    sources = ", ".join(sorted({name for data in panels for name in data.files()}))
    hollow = "; hollow: see the table" if any(cell.doubtful for cell in cells) else ""
    return f"Not the papers' cards: see the titles. {kinds.capitalize()}{throughput}{hollow}.\n{sources}"


def draw(args, figures):
    try:
        import figure_panels
        import figure_style
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: pip install -r evaluation/figures/requirements.txt")
    marks = figure_data.read_marks()
    for figure in chosen(figures, [args.figure]):
        paths = figure_data.result_paths(figure, args.files)
        files = figure_data.read_all(paths)
        panels = [data for data in (figure_data.collect(panel, files) for panel in figure.panels) if data.cells]
        if not panels:
            print(
                f"{figure.name}: nothing in {', '.join(map(str, paths)) or 'any file'} belongs to it", file=sys.stderr
            )
            continue
        drawing, axes = figure_style.new_figure(len(panels), f"{figure.title} (after {figure.paper})")
        for axis, data in zip(axes, panels, strict=True):
            figure_panels.DRAW[data.panel.kind](axis, data, marks.get(data.panel.marks))
            title = textwrap.fill(f"{data.title()},", TITLE_WIDTH)
            axis.set_title(f"{title}\n{data.panel.work}", fontsize=figure_style.LABEL_SIZE)
        args.out.mkdir(parents=True, exist_ok=True)
        written = [args.out / f"{figure.name}.{suffix}" for suffix in args.formats.split(",")]
        labels = {data.panel.label(name) for data in panels for name in data.cells}
        figure_style.finish(drawing, axes, labels, note_of(panels), written)
        print(*written, sep="\n")


def main(words=None):
    figures = figure_spec.read_figures()
    args = parse_args(figures, words)
    try:
        if args.command == "list":
            list_figures(figures)
        elif args.command == "measure":
            return measure(args, figures)
        elif args.command == "draw":
            draw(args, figures)
        else:
            figure_tables.fill(args.page, figures)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
