#!/usr/bin/env python3
"""Holds `tandem plan` against what was measured: rows of evaluation/comparisons in evaluation/results.

    python3 evaluation/compare_plan.py --tandem build/host-release/tandem [--only TEXT] [--call-rate] [--json FILE]

Each row is planned from the published figures of an H200 (a slice of it where the row is one) and the efficiencies of
src/forecast/sheet_costs.h. Those were fitted on the gpu-only runs, decode iterations and a profile; the other strategies
judge them. What was measured is the median of the newest file that has three strategies of the row, else the newest, in
balance (docs/bench.md), without windows that say too little about it; its spread is the largest difference of runs of one
file. Prints a table for docs/plan.md and the errors.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import sys

import plan_runs
import repeats
import result_files

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
ROWS = ["h200", "auto_h200"]
# The newest first. The first is a list of runs, the others have them by row.
RUNS = "auto_h200"
RESULTS = ["run16", "run15", "run14", "run13", "run11", "run10", "run9", "threads"]
MIN_STRATEGIES = 3
# The same row under another name.
NAMES = {"whole GPU, Llama-3.1-8B, 1000/200": "full GPU, Llama-3.1-8B, 1000/200"}
STRATEGIES = ["gpu-only", "full-offload", "asymmetric", "async", "apex", "auto"]
# Of the prompt tokens that the window's output needs, those that it has: else it says more of its ends than of the steady state.
PROMPTS = (2 / 3, 3 / 2)
# Where two strategies differ by less than this, either may be the best.
CLEARLY = 1.08


def steady_throughput(run):
    share = run.get("steady_prefill_share")
    return run.get("balanced_output_throughput") if share is None or PROMPTS[0] <= share <= PROMPTS[1] else None


def reports_by_row():
    """(row name, file, strategy, report) of each run, the newest file first."""
    for run in result_files.read_content(REPOSITORY / "evaluation" / "results" / f"{RUNS}.json"):
        yield NAMES.get(run["row"], run["row"]), RUNS, run["strategy"], run
    for file in RESULTS:
        for row in result_files.read_content(REPOSITORY / "evaluation" / "results" / f"hybrid_h200_{file}.json")["rows"]:
            for strategy, results in row["runs"].items():
                for report in repeats.reports_of(results):
                    yield row["name"], file, strategy, report


def measured_rows():
    """{row name: ({strategy: [tok/s]}, file, GB/s)}, of one file: what is compared ran together. GB/s: the most that CPU
    attention read in the file; a run in which it had little to do says nothing about the host."""
    by_file, gb_per_s = {}, {}
    for name, file, strategy, report in reports_by_row():
        if strategy not in STRATEGIES:
            continue
        runs = by_file.setdefault((name, file), {})
        throughput = steady_throughput(report)
        if throughput:
            runs.setdefault(strategy, []).append(throughput)
        gb_per_s[file] = max(gb_per_s.get(file, 0), report.get("cpu_attention_gb_per_s") or 0)
    found = {}
    for (name, file), runs in by_file.items():
        # An older file where the newer one has little of the row.
        if runs and (name not in found or len(found[name][0]) < MIN_STRATEGIES <= len(runs)):
            found[name] = (runs, file, gb_per_s[file])
    return found


def flags_of(args):
    words = shlex.split(args)
    return {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}


def plan_row(tandem, args, strategies, gb_per_s=None):
    """{strategy: tok/s} and the report of a row's flags."""
    flags = flags_of(args)
    words = ["--gpu", "h200", "--host", "xeon-16", "--model", flags["--dummy"], "--strategies", ",".join(strategies)]
    for flag in ("--gpu-sm-limit", "--gpu-kv-cache", "--cpu-kv-cache", "--max-num-seqs", "--workload"):
        if flag in flags:
            words += [flag, flags[flag]]
    if gb_per_s:
        words += ["--host-gb-per-s", str(gb_per_s)]
    report, made = plan_runs.plan(tandem, words)
    return {name: each["output_throughput"] for name, each in made.items()}, report


def spread_of(values):
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else 0.0


def right_choice(measured, predicted):
    """None: no two strategies differ clearly. Else whether the one that is predicted best is within CLEARLY of the best."""
    common = [name for name in measured if name in predicted]
    if len(common) < 2 or max(measured[n] for n in common) < CLEARLY * min(measured[n] for n in common):
        return None
    chosen = max(common, key=lambda name: predicted[name])
    return measured[chosen] * CLEARLY >= max(measured[n] for n in common)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=plan_runs.DEFAULT_TANDEM)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--call-rate", action="store_true", help="the host's bandwidth is the most that the CPU read in the row's file")
    arguments = parser.parse_args()
    measured = measured_rows()
    errors = {"fitted": [], "judged": []}
    choices, lines = [], []
    print("| work | " + " | ".join(STRATEGIES) + " | best |\n|---|" + "---|" * (len(STRATEGIES) + 1))
    rows = {}
    for name in ROWS:
        comparison = json.loads((REPOSITORY / "evaluation" / "comparisons" / f"{name}.json").read_text())
        rows.update({row["name"]: row for row in comparison})
    for row in rows.values():
        # One under another name has nothing measured under its own.
        if arguments.only not in row["name"] or row["name"] not in measured:
            continue
        # A closed loop has no queue, fewer threads another rate of the CPU: both are left to a profile. A drawn work is no file here.
        if any(word in row["args"] for word in ("--closed-loop", "--cpu-threads", ".csv")):
            continue
        runs, file, gb_per_s = measured[row["name"]]
        medians = {name: statistics.median(values) for name, values in runs.items()}
        predicted, report = plan_row(
            arguments.tandem, row["args"], [s for s in STRATEGIES if s in medians], gb_per_s if arguments.call_rate else None
        )
        cells = []
        for name in STRATEGIES:
            if name not in medians:
                cells.append("")
                continue
            error = predicted[name] / medians[name] - 1
            allowed = spread_of(runs[name])
            errors["fitted" if name == "gpu-only" else "judged"].append((abs(error), allowed, row["name"], name, error))
            cells.append(f"{predicted[name]:,.0f} / {medians[name]:,.0f} ({100 * error:+.0f} %)")
        right = right_choice(medians, predicted)
        if right is not None:
            choices.append(right)
        verdict = "" if right is None else ("right" if right else "wrong")
        print(f"| {row['name']} | " + " | ".join(cells) + f" | {verdict} |", flush=True)
        lines.append({"row": row["name"], "file": file, "predicted": predicted, "measured": medians, "bound": report["upper_bound_throughput"]})
    print()
    for kind, of in errors.items():
        if not of:
            continue
        worst = max(of)
        print(
            f"{kind}: {len(of)} runs, median error {100 * statistics.median(e[0] for e in of):.1f} %, worst "
            f"{100 * worst[0]:.1f} % ({worst[2]}, {worst[3]}); above spread + 10 %: {sum(e[0] > e[1] + 0.1 for e in of)}"
        )
    print(f"best strategy: right in {sum(choices)} of {len(choices)} rows where strategies differ by more than 8 %")
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
