"""Reads bench results: single reports of `tandem bench`, files of `tandem bench compare`, and those of bench_runner.py.

Those of evaluation/results went through condense_results.py, which leaves out what nobody reads and says once what is
the same everywhere; read_content() gives all of them in the complete form.

    {"command", "date", "same": {setting: value}, "fields": [field],
     "rows": [{"name", "mode", "args", "same", "runs": {strategy: [[value of each field], ... a list a repeat]}}]}

"mode" and "args" make the command of a strategy; where they do not, "runs" has {"command", "repeats"} for it. A field
with dots is inside of others. null: not there, or in "same". A list of records is {"same", "fields", "records"}, each
record a list of values.
"""

import copy
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import bench_runner
import repeats

# Flags without a value.
SWITCHES = {
    "--steady-start",
    "--closed-loop",
    "--no-async-scheduling",
    "--end-sessions",
    "--no-enable-prefix-caching",
}
# Two runs with the same of these did the same work in the same way. The report has some of it too, but not the flags of
# a strategy, and gpu_kv_tokens is what the blocks came to.
WORK_FLAGS = ("model", "dummy", "gpu-sm-limit", "gpu-memory-limit", "gpu-kv-cache", "workload", "rate", "arrivals")
WAY_FLAGS = (
    "strategy",
    "async-cohorts",
    "cpu-attention-order",
    "cpu-threads",
    "max-num-batched-tokens",
    "max-itl-ms",
    "max-tpot-ms",
    "no-async-scheduling",
    "tensor-parallel-size",
    "gpu-sm-slices",
)


@dataclass(frozen=True)
class Run:
    report: dict
    flags: dict  # of the command: {"gpu-sm-limit": "8", "steady-start": True, "mode": "offline", "model": ...}
    file: str

    def get(self, field):
        return self.report.get(field)

    def identity(self, names=("mode", *WORK_FLAGS, *WAY_FLAGS, "windowed")):
        return tuple((name, self.flags[name]) for name in names if name in self.flags)


def flags_of(words):
    """{"gpu-sm-limit": "8", ...} of the words of a command behind `tandem`."""
    flags = {}
    if words[:1] == ["bench"]:
        flags["mode"] = words[1]
        words = words[2:]
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            flags["model"] = Path(word).name
            continue
        name, equals, value = word.partition("=")
        if not equals:
            value = True if name in SWITCHES or not words else words.pop(0)
        flags[name.removeprefix("--")] = value
    # Tokens of a window are not comparable with those of a run that fills and drains.
    if "duration" in flags:
        flags["windowed"] = True
    return flags


def make_run(report, path, command=None):
    """command: of this run alone, where the report's made others too."""
    command = command or report.get("command", "")
    words = shlex.split(command) if isinstance(command, str) else list(command)
    flags = flags_of(words[1:])
    for name in ("mode", "strategy"):
        if report.get(name):
            flags.setdefault(name, report[name])
    return Run(report, flags, str(path))


def command_of_compared(command, run):
    """The command that would have made one run of `tandem bench compare` alone."""
    program, *words = shlex.split(command)
    words = words[2:]
    for flag in ("--strategies", "--workload", "--rate"):
        words = bench_runner.without_flag(words, flag)
    words += ["--workload", run["workload"]]
    mode = "offline"
    if "rate" in run:
        mode = "online"
        words += ["--rate", f"{run['rate']:g}"]
    return bench_runner.bench_command(program, mode, words, run["strategy"])


def field_of(report, path):
    """The value of "machine.device", or None."""
    for name in path.split("."):
        report = report.get(name) if isinstance(report, dict) else None
    return report


def expand_record(fields, values, *same):
    """A report with what `same` say and, before that, the values."""
    report = {}
    pairs = [*(pair for settings in same for pair in settings.items()), *zip(fields, values, strict=True)]
    for path, value in pairs:
        if value is None:
            continue
        *outer, name = path.split(".")
        inside = report
        for each in outer:
            inside = inside.setdefault(each, {})
        inside[name] = copy.deepcopy(value)
    return report


def expand_row(row, content):
    words = shlex.split(row["args"])
    runs = {}
    for strategy, entry in row["runs"].items():
        command = bench_runner.bench_command("tandem", row["mode"], words, strategy)
        if isinstance(entry, dict):
            command, entry = shlex.split(entry["command"]), entry["repeats"]
        done = [{"result": expand_record(content["fields"], values, content["same"], row["same"])} for values in entry]
        runs[strategy] = {"command": command, **(done[0] if len(done) == 1 else {"repeats": done})}
    return {"name": row["name"], "args": words, "runs": runs}


def expand(content):
    """Content in the complete form."""
    if not isinstance(content, dict) or "fields" not in content:
        return content
    if "records" in content:
        return [expand_record(content["fields"], values, content["same"]) for values in content["records"]]
    rows = [expand_row(row, content) for row in content["rows"]]
    return {**{key: content[key] for key in content if key not in ("same", "fields", "rows")}, "rows": rows}


def read_content(path):
    """The JSON of a file of results, in the complete form. Raises ValueError for what is no JSON."""
    try:
        return expand(json.loads(Path(path).read_text()))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None


def run_of(run, entry, path):
    """A run of an entry of "runs". Its report may be of a command that made others too, or have none."""
    alone = "ran_as" in run or "command" not in run["result"]
    return make_run(run["result"], path, entry["command"] if alone else None)


def read_runs(path):
    """All successful runs of a file. Raises ValueError for what is no result."""
    content = read_content(path)
    if isinstance(content, dict) and "output_throughput" in content:
        return [make_run(content, path)]
    if isinstance(content, dict) and isinstance(content.get("runs"), list):
        return [
            make_run(run["result"], path, command_of_compared(content["command"], run))
            for run in content["runs"]
            if "result" in run
        ]
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise ValueError(f"{path} is neither a report of tandem bench nor a file with rows of them")
    return [
        run_of(run, entry, path)
        for row in content["rows"]
        for entry in row["runs"].values()
        for run in repeats.runs_of(entry)
        if "result" in run
    ]


def describe_machine(report):
    machine = report.get("machine") or {}
    cpu = machine.get("cpu") or {}
    cores = f"{cpu.get('physical_cores')} cores of {cpu.get('model')}" if cpu else "unknown processor"
    memory = machine.get("memory_bytes")
    parts = [machine.get("device") or "unknown device", cores]
    if memory:
        parts.append(f"{memory / 2**30:.0f} GiB memory")
    return ", ".join(parts)
