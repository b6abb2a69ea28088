#!/usr/bin/env python3
"""Makes results small enough to be checked in, without a change to what is read from them.

    python3 evaluation/condense_results.py evaluation/results/FILE.json ... [--only TEXT]

Run it over a new file before it goes into evaluation/results (650 KB in all: scripts/check_docs.py). The scripts that
measure write everything; this keeps what figures, comparisons and tables read (SETTINGS, DRAWN, MEASURED), says once
what is the same in all runs, and writes a run a line (the form: result_files.py). What figures draw keeps all its
digits, so that they come out the same to the byte; other measured numbers get eight. Running it again changes nothing.
--only keeps rows with TEXT in their name.
"""

import argparse
import functools
import json
import shlex
import sys
from pathlib import Path

import agents_table
import bench_runner
import compare_results
import repeats
import result_files

sys.path.insert(0, str(Path(__file__).resolve().parent / "figures"))

import figure_spec  # noqa: E402

# More than any table shows, so that its last digit is the same.
DIGITS = 8
# A value of a file of no known kind stands on one line if it is not longer.
MAX_LINE = 300
LATENCIES = ("ttft", "tpot", "e2el")
TIERS = ("gpu_tier", "cpu_tier")

# Of all requests of a run, half of its bytes: kept where a figure draws it.
DISTRIBUTION = "per_token_latency_percentiles_s"

# What is often the same in all runs of a row or a file.
SETTINGS = (
    *(name for name in compare_results.CONDITIONS if name != "window_s"),
    "dropped",
    "arrivals",
    "machine.device",
    "machine.cpu.model",
    "machine.cpu.physical_cores",
    "machine.memory_bytes",
    "machine.gpu.devices",
    "machine.versions",
)
DRAWN = (
    "output_throughput",
    "balanced_output_throughput",
    "steady_prefill_share",
    "ideal_gpu_only_throughput",
    "upper_bound_throughput",
    "window_s",
    "mean_per_token_latency_s",
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in ("median", "p90", "p99")),
    DISTRIBUTION,
    # Of bench_cpu_attention.
    "share",
    "read_gbps",
)
MEASURED = (
    "completed",
    "failed",
    "rejected",
    "unfinished",
    "steady_output_throughput",
    "request_throughput",
    "median_itl_ms",
    "p99_itl_ms",
    *(f"{tier}.{field}" for tier in TIERS for field in ("median_itl_ms", "p99_itl_ms", "median_tpot_ms")),
    "begun.requests",
    "begun.in_cpu_tier",
    "iterations",
    "strategy_iterations",
    "iteration_ms.mean",
    "schedule_us.mean",
    "schedule_us.p99",
    "prediction_error",
    "gpu_busy",
    "gpu_gap",
    "cpu_attention_busy",
    "cpu_attention_gb_per_s",
    "total_output_tokens",
    "max_cpu_kv_gb",
    "cpu_tier_tokens",
    "rider_visits",
    "rider_skips",
    "swapped_tokens",
    "preemptions",
    *agents_table.FIELDS,
)
FIELDS = (*SETTINGS, *DRAWN, *MEASURED)


def rounded(value, name=""):
    """With DIGITS digits, unless it is drawn or was set."""
    if isinstance(value, dict):
        return {key: rounded(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, name) for each in value]
    exact = name in DRAWN or name in SETTINGS
    return value if exact or not isinstance(value, float) else float(f"{value:.{DIGITS}g}")


def value_of(report, field):
    value = result_files.field_of(report, field)
    if field == "machine.gpu.devices" and value:
        return [{"name": device["name"]} for device in value]
    return rounded(value, field)


@functools.cache
def rows_of_distributions():
    panels = [panel for figure in figure_spec.read_figures().values() for panel in figure.panels]
    return {
        figure_spec.row_name(panel.words(point))
        for panel in panels
        if panel.kind == "latency_distribution"
        for point in panel.points
    }


def same_in_all(records, names):
    """{name: value} of what all records have, and have the same."""
    first = records[0] if records else {}
    return {
        name: first[name]
        for name in names
        if first.get(name) is not None and all(record.get(name) == first[name] for record in records)
    }


def flags_of_run(run, entry):
    flags = result_files.run_of(run, entry, "").flags
    return {name: value for name, value in flags.items() if name != "json"}


class Row:
    """A row of results on its way from the complete form."""

    def __init__(self, row):
        self.name = row["name"]
        self._runs = {}
        for strategy, entry in row["runs"].items():
            done = [run for run in repeats.runs_of(entry) if "result" in run]
            if done:
                self._runs[strategy] = (entry, done)
        left_out = () if self.name in rows_of_distributions() else (DISTRIBUTION,)
        self.records = {
            strategy: [
                {field: None if field in left_out else value_of(run["result"], field) for field in FIELDS}
                for run in done
            ]
            for strategy, (_, done) in self._runs.items()
        }
        # Of the words of the commands, those that make the most of them.
        commands = [entry["command"] for entry, _ in self._runs.values()]
        self._mode, self._words = max(
            ((command[2], command[3:-2]) for command in commands),
            key=lambda pair: sum(self._is_made_of(*pair, strategy) for strategy in self._runs),
            default=("offline", []),
        )

    def _is_made_of(self, mode, words, strategy):
        entry, done = self._runs[strategy]
        command = bench_runner.bench_command("tandem", mode, words, strategy)
        flags = flags_of_run({"result": {}}, {"command": command})
        return all(flags_of_run(run, entry) == flags for run in done)

    def _own_command(self, strategy):
        """That of the runs of a strategy, from which they get the flags that they have now."""
        entry, done = self._runs[strategy]
        for command in (entry["command"], done[0]["result"].get("command", "")):
            words = command if isinstance(command, list) else shlex.split(command)
            flags = flags_of_run({"result": {}}, {"command": words})
            if words and all(flags_of_run(run, entry) == flags for run in done):
                return shlex.join(words)
        raise ValueError(f"the runs of {strategy} at '{self.name}' have not one command")

    def all_records(self):
        return [record for records in self.records.values() for record in records]

    def condensed(self, same, fields):
        own = same_in_all(self.all_records(), [name for name in SETTINGS if name not in same])
        runs = {}
        for strategy, (entry, done) in self._runs.items():
            values = [
                [None if field in own else record[field] for field in fields] for record in self.records[strategy]
            ]
            if not self._is_made_of(self._mode, self._words, strategy):
                values = {"command": self._own_command(strategy), "repeats": values}
            runs[strategy] = values
        head = {"name": self.name, "mode": self._mode, "args": shlex.join(self._words), "same": own}
        return {**head, "runs": runs}


def condense_rows(content, only):
    rows = [row for row in map(Row, content["rows"]) if row.records]
    rows = [row for row in rows if not only or any(text in row.name for text in only)]
    records = [record for row in rows for record in row.all_records()]
    same = same_in_all(records, SETTINGS)
    varying = [
        name
        for name in FIELDS
        if name not in same
        and any(
            record[name] is not None
            for row in rows
            if name not in SETTINGS or not same_in_all(row.all_records(), [name])
            for record in row.all_records()
        )
    ]
    command = content.get("command", "")
    head = {"command": command if isinstance(command, str) else shlex.join(command), "date": content.get("date")}
    if "note" in content:
        head = {"note": content["note"], **head}
    return {**head, "same": same, "fields": varying, "rows": [row.condensed(same, varying) for row in rows]}


def condense_records(records):
    names = list(dict.fromkeys(name for record in records for name in record))
    same = same_in_all(records, names) if len(records) > 1 else {}
    fields = [name for name in names if name not in same and any(record.get(name) is not None for record in records)]
    values = [[rounded(record.get(name), name) for name in fields] for record in records]
    return {"same": rounded(same), "fields": fields, "records": values}


def condense(content, only=()):
    """Content of a file, complete or condensed, in the condensed form."""
    content = result_files.expand(content)
    if isinstance(content, list) and content and all(isinstance(record, dict) for record in content):
        return condense_records(content)
    rows = content.get("rows") if isinstance(content, dict) else None
    # Those of compare_engines.py have variants in place of strategies' runs.
    if isinstance(rows, list) and all("runs" in row for row in rows):
        return condense_rows(content, only)
    return rounded(content)


def line_of(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def broken(value):
    """Text of a value; the parts of a long one stand on lines of their own."""
    line = line_of(value)
    if len(line) <= MAX_LINE or not isinstance(value, (dict, list)):
        return line
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(broken, value)) + "\n]"
    return "{\n" + ",\n".join(f"{line_of(key)}:{broken(each)}" for key, each in value.items()) + "\n}"


def text_of(content):
    """A run a line."""
    if not isinstance(content, dict) or "fields" not in content:
        return broken(content) + "\n"
    lines = [f"{line_of(key)}:{line_of(content[key])}" for key in content if key not in ("rows", "records")]
    if "records" in content:
        lines.append('"records":[\n' + ",\n".join(map(line_of, content["records"])) + "\n]")
    else:
        lines.append('"rows":[\n' + ",\n".join(map(text_of_row, content["rows"])) + "\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def text_of_row(row):
    def text_of_entry(entry):
        if isinstance(entry, dict):
            return f'{{"command":{line_of(entry["command"])},"repeats":{text_of_entry(entry["repeats"])}}}'
        return "[\n" + ",\n".join(map(line_of, entry)) + "]"

    head = line_of({key: row[key] for key in row if key != "runs"})[:-1]
    runs = ",\n".join(f"{line_of(strategy)}:{text_of_entry(entry)}" for strategy, entry in row["runs"].items())
    return f'{head},"runs":{{\n{runs}}}}}'


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows with TEXT in their name")
    args = parser.parse_args(words)
    for path in args.files:
        try:
            before = path.read_text()
            text = text_of(condense(json.loads(before), args.only))
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}")
        bench_runner.replace_file(path, text)
        print(f"{path}: {len(before.encode()):,} to {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
