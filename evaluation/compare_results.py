#!/usr/bin/env python3
"""Compares results of `tandem bench` with those of the first file.

    python3 evaluation/compare_results.py A.json B.json [C.json ...]

A file is one report, or what compare_strategies.py and figures/figure.py write. Runs are matched by their work
(model, slice, gpu tier, workload, rate, whether in a window) and their strategy with its flags; what only one file
has is listed. Two single reports are compared whatever they are. Runs of the same work and strategy in one file are
repeats: the table has their median and, behind ±, half their range. A difference that is less than the range of the
repeats is marked with (~): it shows nothing. Below each table stand the conditions that differ.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

import repeats
import result_files

# Title and field of the report.
METRICS = (
    ("output tok/s", "output_throughput"),
    ("steady tok/s", "steady_output_throughput"),
    ("requests/s", "request_throughput"),
    ("s/token", "mean_per_token_latency_s"),
    ("ttft p50 ms", "median_ttft_ms"),
    ("ttft p99 ms", "p99_ttft_ms"),
    ("tpot p50 ms", "median_tpot_ms"),
    ("tpot p99 ms", "p99_tpot_ms"),
    ("itl p99 ms", "p99_itl_ms"),
    ("e2el p50 ms", "median_e2el_ms"),
    ("iteration ms", "iteration_ms.mean"),
    ("bound tok/s", "upper_bound_throughput"),
)
# Of a report; the machine, its device and versions are looked at apart.
CONDITIONS = (
    "mode",
    "model",
    "dtype",
    "device",
    "workload",
    "num_requests",
    "num_warmup",
    "steady_start",
    "closed_loop",
    "window_s",
    "rate",
    "seed",
    "strategy",
    "gpu_kv_tokens",
    "cpu_kv_tokens",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "cpu_threads",
    "gpu_sm_limit",
    "tensor_parallel_size",
    "gpu_sm_slices",
    "gpu_memory_limit_bytes",
)


def by_identity(runs):
    grouped = defaultdict(list)
    for run in runs:
        grouped[run.identity()].append(run)
    return grouped


def title_of(run):
    names = ("model", "dummy", "gpu-sm-limit", "gpu-kv-cache", "workload", "rate")
    work = [
        run.flags[name] if name in ("model", "dummy") else f"{name} {run.flags[name]}"
        for name in names
        if name in run.flags
    ]
    ways = [f"{name} {run.flags[name]}" for name in result_files.WAY_FLAGS if name in run.flags and name != "strategy"]
    return f"{', '.join([run.flags.get('strategy', 'unknown strategy'), *ways])}: {', '.join(work)}"


def format_value(spread):
    if spread is None:
        return "-"
    suffix = f" ±{spread.relative:.1%}" if spread.relative is not None else ""
    return f"{spread.median:.4g}{suffix}" if spread.median < 1000 else f"{spread.median:.0f}{suffix}"


def shows_nothing(base, other):
    """The difference is within what repeats of one and the same point differ by; None if nothing was repeated."""
    ranges = [spread.maximum - spread.minimum for spread in (base, other) if spread.count > 1]
    return abs(other.median - base.median) <= max(ranges) if ranges else None


def format_difference(base, other):
    if base is None or other is None or not base.median:
        return "-"
    mark = " (~)" if shows_nothing(base, other) else ""
    return f"{other.median / base.median - 1:+.1%}{mark}"


def differing_conditions(groups):
    """[(name, value in the first group, in the second, ...)] of what is not the same everywhere."""
    found = []
    facts = [conditions_of(runs) for runs in groups]
    for name in dict.fromkeys(name for fact in facts for name in fact):
        values = [fact.get(name) for fact in facts]
        if len(set(values)) > 1:
            found.append((name, *("none" if value is None else value for value in values)))
    return found


def conditions_of(runs):
    def values(of_run):
        found = [of_run(run) for run in runs]
        return ", ".join(dict.fromkeys("none" if value is None else str(value) for value in found))

    facts = {}
    for name in CONDITIONS:
        if name == "window_s":
            # Measured, so never twice the same.
            facts[name] = values(lambda run: None if run.get("window_s") is None else round(run.get("window_s")))
        else:
            facts[name] = values(lambda run, name=name: run.get(name))
    facts["machine"] = values(lambda run: result_files.describe_machine(run.report))
    versions = {name for run in runs for name in (run.get("machine") or {}).get("versions") or {}}
    for version in sorted(versions):
        facts[f"version of {version}"] = values(
            lambda run, version=version: run.get("machine")["versions"].get(version)
        )
    # Flags that no field of the report speaks of.
    known = {*(name.replace("_", "-") for name in CONDITIONS), *result_files.WORK_FLAGS, "mode", "windowed", "json"}
    known |= {"duration", "cpu-kv-cache", "log-level"}
    for name in sorted({name for run in runs for name in run.flags} - known):
        facts[f"--{name}"] = values(lambda run, name=name: run.flags.get(name))
    return facts


def compare(groups, names):
    """Markdown of one match: groups[i] are the runs of file names[i]."""
    others = names[1:]
    lines = [f"## {title_of(groups[0][0])}", ""]
    lines += [
        f"| | {names[0]} | " + " | ".join(f"{name} | difference" for name in others) + " |",
        "|---|--:|" + "--:|--:|" * len(others),
    ]
    for title, path in METRICS:
        spreads = [repeats.spread_of(result_files.field_of(run.report, path) for run in runs) for runs in groups]
        if spreads[0] is None and not any(spreads[1:]):
            continue
        cells = [title, format_value(spreads[0])]
        for spread in spreads[1:]:
            cells += [format_value(spread), format_difference(spreads[0], spread)]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    counts = [len(runs) for runs in groups]
    if max(counts) == 1:
        lines.append("- one run each: how much repeats differ is not known")
    for name, *values in differing_conditions(groups):
        lines.append(f"- {name} differs: {' / '.join(values)}")
    return "\n".join(lines) + "\n"


def match(files):
    """([[runs of the first file, of the second, ...], ...], [(title, file that lacks it), ...])"""
    if all(len(runs) == 1 for _, runs in files):
        return [[runs for _, runs in files]], []
    grouped = [(name, by_identity(runs)) for name, runs in files]
    identities = dict.fromkeys(identity for _, groups in grouped for identity in groups)
    matches, lacking = [], []
    for identity in identities:
        holders = [groups.get(identity) for _, groups in grouped]
        if all(holders):
            matches.append(holders)
        else:
            title = title_of(next(runs for runs in holders if runs)[0])
            lacking += [(title, name) for (name, _), runs in zip(grouped, holders, strict=True) if not runs]
    return matches, lacking


def summary(matches, names):
    """The geometric mean of the ratios of throughput."""
    lines = []
    for index, name in enumerate(names[1:], start=1):
        ratios = []
        for groups in matches:
            base, other = (repeats.spread_of(run.get("output_throughput") for run in groups[i]) for i in (0, index))
            if base and other and base.median and other.median:
                ratios.append(other.median / base.median)
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(
                f"{name}: {mean:.3f}x the output tok/s of {names[0]} in the geometric mean of {len(ratios)}, "
                f"{min(ratios):.3f}x to {max(ratios):.3f}x"
            )
    return lines


def short_names(paths):
    """Without folders, if that tells them apart."""
    names = [Path(path).name for path in paths]
    if len(set(names)) == len(names):
        return names
    return paths if len(set(paths)) == len(paths) else [f"{index + 1}: {path}" for index, path in enumerate(paths)]


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args(words)
    if len(args.files) < 2:
        parser.error("there is nothing to compare: name two files")
    try:
        files = [(path, result_files.read_runs(path)) for path in args.files]
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    names = short_names(args.files)
    files = [(name, runs) for name, (_, runs) in zip(names, files, strict=True)]
    matches, lacking = match(files)
    for groups in matches:
        print(compare(groups, names))
    for title, name in lacking:
        print(f"{name} has no run of {title}")
    if not matches:
        sys.exit("no run of these files has the same work and strategy")
    print(*summary(matches, names), sep="\n")


if __name__ == "__main__":
    main()
