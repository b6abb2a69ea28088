"""Reads bench results: single reports of `tandem bench`, and files of `tandem bench compare` and of bench_runner.py with many."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import bench_runner
import repeats

# Flags without a value.
SWITCHES = {"--steady-start", "--closed-loop"}
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


def read_runs(path):
    """All successful runs of a file. Raises ValueError for what is no result."""
    try:
        content = json.loads(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
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
        make_run(run["result"], path, entry["command"] if "ran_as" in run else None)
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
