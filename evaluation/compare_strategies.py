#!/usr/bin/env python3
"""Runs `tandem bench offline` with each strategy on the same work and puts the results side by side.

    python3 evaluation/compare_strategies.py --json OUT.json --table OUT.md --seconds 120
        --tandem-arg=--device --tandem-arg=cuda
        --row "8 SMs, osc: --dummy llama-2-7b --gpu-sm-limit 8 --gpu-kv-cache 2240tok --cpu-kv-cache 80GiB
               --workload osc:out=100 --num-requests 200"

A row is one piece of work: a name, a colon, flags of `tandem bench offline`. --rows FILE reads them from JSON, a list
of {"name", "args"} that may also have "strategies" and "seconds" of their own, "duration" and "warm_up" (seconds; the
flags --duration and --warm-up) and "steady_start": true. Without either, --workload and --num-requests make the only
row. --steady SECONDS gives the rows of the command line a steady start and this duration.

A strategy may have flags of its own behind colons: async:async-cohorts=1 is the strategy async with --async-cohorts 1.

A run that is not done after --seconds (loading and measuring costs included) is killed and reported as such; a run that
fails is reported and passed over. Files are written after every run. --resume keeps what the JSON file has: other rows,
and runs with the same command. --repeat N runs everything N times, all of it once before anything a second time; the
table has medians and, behind ±, half the range. gpu-only runs without --cpu-kv-cache: it has no use for that memory.

--together: points whose rows differ in the workload alone run in one process, one after the other (`tandem bench
compare`), so that weights are made, memory is pinned and costs are measured once. gpu-only then has an idle cpu tier
beside it.
"""

import argparse
import json
import shlex
import signal
import sys
from pathlib import Path

import bench_runner
import engine_groups
import repeats
from bench_runner import BASELINE

REPOSITORY = Path(__file__).resolve().parents[1]
# Columns that say how much repeats differ, and their field of the bench JSON.
SPREAD_COLUMNS = {
    "output tok/s": "output_throughput",
    "steady tok/s": "steady_output_throughput",
    "s/token": "mean_per_token_latency_s",
    "tpot p50 ms": "median_tpot_ms",
    "tpot p99 ms": "p99_tpot_ms",
}
ROW_OPTIONS = ("strategies", "seconds", "duration", "warm_up", "steady_start")


def parse_args(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--row", action="append", default=[], metavar="NAME: FLAGS")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="more rows, as JSON")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows with TEXT in their name")
    parser.add_argument("--workload", help="of the only row")
    parser.add_argument("--num-requests", type=int, default=200, help="of the only row")
    parser.add_argument("--strategies", default="gpu-only,full-offload,asymmetric", help="separated by commas")
    parser.add_argument("--steady", type=float, metavar="SECONDS", help="of --row and --workload: see above")
    parser.add_argument("--seconds", type=float, default=300, help="for each run")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run everything N times, in N rounds")
    parser.add_argument("--together", action="store_true", help="one engine for points that can share it: see above")
    parser.add_argument("--tandem", type=Path, default=REPOSITORY / "build/cuda-release/tandem")
    parser.add_argument("--tandem-arg", action="append", default=[], help="one more argument for every run")
    parser.add_argument("--json", type=Path, help="results, with the whole bench JSON of every run")
    parser.add_argument("--table", type=Path, help="the printed table, as Markdown")
    parser.add_argument("--resume", action="store_true", help="keep the results in the JSON file")
    args = parser.parse_args(words)
    try:
        args.rows = read_rows(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if args.repeat < 1:
        parser.error("--repeat is at least 1")
    if args.resume and not args.json:
        parser.error("--resume needs --json")
    return args


def read_rows(args):
    rows = []
    for text in args.row:
        name, colon, flags = text.partition(": ")
        if not colon:
            raise ValueError(f"--row '{text}': there is no 'NAME: ' before the flags")
        rows.append({"name": name.strip(), "args": flags})
    typed = list(rows)
    if args.rows:
        for row in json.loads(args.rows.read_text()):
            unknown = set(row) - {"name", "args", *ROW_OPTIONS}
            if unknown or "name" not in row or "args" not in row:
                raise ValueError(f"{args.rows}: a row has a name and args, perhaps {', '.join(ROW_OPTIONS)}: {row}")
            rows.append(dict(row))
    if args.workload:
        flags = ["--workload", args.workload, "--num-requests", str(args.num_requests)]
        rows.append({"name": args.workload, "args": flags})
        typed.append(rows[-1])
    if args.steady:
        for row in typed:
            row.update(steady_start=True, duration=args.steady)
    if not rows:
        raise ValueError("there is no work: give --row, --rows or --workload")
    if args.only:
        rows = [row for row in rows if any(text in row["name"] for text in args.only)]
        if not rows:
            raise ValueError(f"no row has {' or '.join(args.only)} in its name")
    names = [row["name"] for row in rows]
    if len(set(names)) != len(names):
        raise ValueError("two rows have the same name")
    for row in rows:
        if isinstance(row["args"], str):
            row["args"] = shlex.split(row["args"])
        row["args"] = [*row["args"], *window_flags(row)]
        row.setdefault("strategies", [name for name in args.strategies.split(",") if name])
        row.setdefault("seconds", args.seconds)
    return rows


def window_flags(row):
    flags = ["--steady-start"] if row.get("steady_start") else []
    for key, flag in (("duration", "--duration"), ("warm_up", "--warm-up")):
        if row.get(key) is not None:
            flags += [flag, f"{row[key]:g}"]
    return flags


def command_of(args, row, strategy):
    return bench_runner.bench_command(args.tandem, "offline", [*row["args"], *args.tandem_arg], strategy)


def ratio(numerator, denominator):
    return numerator / denominator if numerator is not None and denominator else None


def metrics(result, base, bound_result):
    """What a line of the table says: a result, that of gpu-only (or {}), one that has a bound (or {})."""
    generated = result.get("total_output_tokens")
    bound = bound_result.get("upper_bound_throughput")
    ideal = bound_result.get("ideal_gpu_only_throughput")
    output = result.get("output_throughput")
    steady = result.get("steady_output_throughput")
    gpu_tier, cpu_tier = result.get("gpu_tier") or {}, result.get("cpu_tier") or {}
    visits, skips = result.get("rider_visits"), result.get("rider_skips")
    return {
        "output tok/s": (output, 1),
        "x gpu-only": (ratio(output, base.get("output_throughput")), 2),
        "steady tok/s": (steady, 1),
        "x gpu-only, steady": (ratio(steady, base.get("steady_output_throughput")), 2),
        "prefill share, steady": (result.get("steady_prefill_share"), 2),
        "in balance tok/s": (result.get("balanced_output_throughput"), 1),
        "s/token": (result.get("mean_per_token_latency_s"), 4),
        "tpot p50 ms": (result.get("median_tpot_ms"), 1),
        "tpot p99 ms": (result.get("p99_tpot_ms"), 1),
        # Between tokens, so that requests that were not done when the time was over count as well.
        "gpu tier itl p50 ms": (gpu_tier.get("median_itl_ms"), 1),
        "gpu tier itl p99 ms": (gpu_tier.get("p99_itl_ms"), 1),
        "cpu tier itl p50 ms": (cpu_tier.get("median_itl_ms"), 1),
        "cpu tier itl p99 ms": (cpu_tier.get("p99_itl_ms"), 1),
        "gpu tier tpot p50 ms": (gpu_tier.get("median_tpot_ms"), 1),
        "cpu tier tpot p50 ms": (cpu_tier.get("median_tpot_ms"), 1),
        "gpu busy": (result.get("gpu_busy"), 3),
        "cpu attention busy": (result.get("cpu_attention_busy"), 3),
        "cpu GB/s": (result.get("cpu_attention_gb_per_s"), 1),
        "in cpu tier": (ratio(result.get("cpu_tier_tokens"), generated), 2),
        "rider visits": (visits, 0),
        "skipped": (ratio(skips, (visits or 0) + (skips or 0)), 3),
        "cpu tier GB at most": (result.get("max_cpu_kv_gb"), 1),
        "swapped tokens": (result.get("swapped_tokens"), 0),
        "preemptions": (result.get("preemptions"), 0),
        "iteration ms": ((result.get("iteration_ms") or {}).get("mean"), 2),
        "plan us": ((result.get("schedule_us") or {}).get("mean"), 0),
        "plan us p99": ((result.get("schedule_us") or {}).get("p99"), 0),
        "prediction error": (result.get("prediction_error"), 3),
        "ideal gpu-only": (ideal, 1),
        "bound": (bound, 1),
        "bound x ideal": (ratio(bound, ideal), 2),
        "of bound": (ratio(output, bound), 2),
    }


def spread_suffix(name, reports):
    """±1.2% behind a median of several runs, of what is measured directly."""
    spread = repeats.spread_of(report.get(SPREAD_COLUMNS.get(name)) for report in reports)
    return f" ±{spread.relative:.1%}" if spread and spread.relative is not None else ""


def format_table(row, runs):
    """Markdown: a line for each strategy, then what went wrong."""
    reports = {strategy: repeats.reports_of(entry) for strategy, entry in runs.items()}
    results = {strategy: repeats.median_report(of_strategy) for strategy, of_strategy in reports.items() if of_strategy}
    base = results.get(BASELINE, {})
    # The bound belongs to the work and the machine; strategies without costs do not know it.
    with_bound = next((result for result in results.values() if result.get("upper_bound_throughput")), {})
    lines = []
    notes = []
    for strategy, entry in runs.items():
        notes += [f"{strategy}: {error}" for error in repeats.errors_of(entry)]
        if strategy not in results:
            continue
        result = results[strategy]
        own_bound = result if result.get("upper_bound_throughput") else with_bound
        cells = {"strategy": strategy}
        for name, (value, digits) in metrics(result, base, own_bound).items():
            cells[name] = "-" if value is None else f"{value:.{digits}f}{spread_suffix(name, reports[strategy])}"
        lines.append(cells)
        notes += [
            f"{strategy}: {report['failed']} of {report['num_requests']} requests failed"
            for report in reports[strategy]
            if report.get("failed")
        ]
    counts = {len(of_strategy) for of_strategy in reports.values() if of_strategy}
    if counts and max(counts) > 1:
        notes.append(f"medians of {'/'.join(map(str, sorted(counts)))} runs; ± is half their range, relative to it")
    text = [f"## {row['name']}", "", f"`{shlex.join(row['args'])}`", ""]
    if lines:
        widths = {name: max(len(name), *(len(cells[name]) for cells in lines)) for name in lines[0]}
        text.append("| " + " | ".join(name.ljust(width) for name, width in widths.items()) + " |")
        text.append(
            "|"
            + "|".join("-" * (width + 1) + (":" if name != "strategy" else "-") for name, width in widths.items())
            + "|"
        )
        for cells in lines:
            text.append(
                "| "
                + " | ".join(
                    cells[name].ljust(width) if name == "strategy" else cells[name].rjust(width)
                    for name, width in widths.items()
                )
                + " |"
            )
    text += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(text) + "\n"


def write_results(args, rows):
    rows = [row for row in rows if row["runs"]]
    if args.json:
        bench_runner.write_rows(args.json, rows)
    if args.table:
        bench_runner.replace_file(args.table, "\n".join(format_table(row, row["runs"]) for row in rows))


def main(words=None):
    args = parse_args(words)
    # The finally in bench_runner.run() ends the program that is running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def own_command(row, strategy):
        return command_of(args, row, strategy)

    def together(points):
        return engine_groups.run_groups(points, args.tandem, lambda row: [*row["args"], *args.tandem_arg], own_command)

    other_rows = bench_runner.take_over(args.json if args.resume else None, args.rows, own_command)
    succeeded = bench_runner.measure(
        args.rows,
        own_command,
        args.repeat,
        lambda: write_results(args, [*other_rows, *args.rows]),
        together if args.together else None,
    )
    write_results(args, [*other_rows, *args.rows])
    for row in args.rows:
        print(format_table(row, row["runs"]), flush=True)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
