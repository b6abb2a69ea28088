"""Runs `tandem bench` with a time limit, each point once or several times, and keeps what came out in one JSON file.

Work is a list of rows: {"name", "args" (words), "mode" ("offline" or "online"), "strategies", "seconds", "runs"}. A
point is a strategy of a row. "runs" maps it to what was run: {"command", "wall_s", "result" or "error"}, and with
repeats {"command", "repeats": [{"wall_s", "result" or "error"}, ...], "spread"}. The file is {"command", "date",
"rows"}.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import repeats

BASELINE = "gpu-only"


def without_flag(words, flag):
    """The words without --flag VALUE and --flag=VALUE."""
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == flag:
            skip = True
        elif not word.startswith(flag + "="):
            kept.append(word)
    return kept


def split_strategy(strategy):
    """("async", [("async-cohorts", "1"), ("x", None)]) of async:async-cohorts=1:x."""
    name, *own_flags = strategy.split(":")
    pairs = [text.partition("=") for text in own_flags]
    return name, [(flag, value if equals else None) for flag, equals, value in pairs]


def bench_command(tandem, mode, words, strategy):
    name, own_flags = split_strategy(strategy)
    if name == BASELINE:
        # It has no use for that memory.
        words = without_flag(words, "--cpu-kv-cache")
    return [str(tandem), "bench", mode, *with_own_flags(words, own_flags), "--strategy", name]


def with_own_flags(words, own_flags):
    """In place of those that words have."""
    for flag, value in own_flags:
        words = [*without_flag(words, "--" + flag), "--" + flag, *([] if value is None else [value])]
    return words


def last_lines(text, count=3):
    return " | ".join(text.strip().splitlines()[-count:])


def run_program(command, seconds, log_path=None):
    """(seconds it took, what it wrote to --json or None, why there is no more of it); log_path keeps what it said."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        result_path = Path(temporary) / "bench.json"
        log_path = log_path or Path(temporary) / "log"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [*command, "--json", str(result_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
            over = False
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                over = True
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        wall_s = time.monotonic() - begin
        reason = f"not done after {seconds:g} s" if over else f"ended with {process.returncode}"
        reason += ": " + last_lines(log_path.read_text(errors="replace"))
        try:
            # There is an empty file before the first result.
            return wall_s, json.loads(result_path.read_text()), reason
        except (OSError, ValueError):
            return wall_s, None, reason


def run(command, seconds):
    """{"command", "wall_s", "result"} with the bench JSON, or with "error" in place of "result"."""
    wall_s, result, reason = run_program(command, seconds)
    done = {"command": command, "wall_s": wall_s}
    return {**done, "error": reason} if result is None else {**done, "result": result}


def replace_file(path, text):
    """At no moment is there half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_rows(path, rows):
    kept = [{key: row[key] for key in ("name", "args", "runs")} for row in rows if row["runs"]]
    result = {"command": sys.argv, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": kept}
    replace_file(path, json.dumps(result, indent=1) + "\n")


def take_over(path, rows, command_of):
    """Fills "runs" of the rows with what the file (or None) has for them, and returns its other rows.

    What counts is the command: what was run with another one, or failed, is left behind. A row keeps strategies that
    are not wanted now.
    """
    earlier = json.loads(path.read_text())["rows"] if path and path.exists() else []
    wanted = {row["name"]: row for row in rows}
    for row in rows:
        row["runs"] = {}
    for row in earlier:
        if row["name"] not in wanted:
            continue
        for strategy, entry in row["runs"].items():
            if entry["command"] == command_of(wanted[row["name"]], strategy):
                repeats.add_all(wanted[row["name"]]["runs"], strategy, repeats.succeeded(entry))
    return [row for row in earlier if row["name"] not in wanted]


def in_order(row):
    """ "runs" in the order of "strategies", others behind."""
    names = [*row["strategies"], *(name for name in row["runs"] if name not in row["strategies"])]
    return {name: row["runs"][name] for name in names if name in row["runs"]}


def keep(row, strategy, done, turn, after_run):
    """Adds a run to its row, tells it, and says whether it succeeded."""
    repeats.add_all(row["runs"], strategy, [done])
    row["runs"] = in_order(row)
    what = done.get("error") or f"{done['result']['output_throughput']:.1f} output tok/s"
    print(f"{row['name']}, {strategy}{turn}: {what} ({done['wall_s']:.0f} s)", file=sys.stderr, flush=True)
    after_run()
    return "error" not in done


def measure(rows, command_of, repeat, after_run, together=None):
    """Runs what the rows lack, calls after_run() after each, and says whether everything succeeded.

    All points once, then all points again: repeats that lie apart show what changes between them. together: None, or
    groups of points that run in one process, each so many times in rounds, as engine_groups.run_groups takes them.
    """
    succeeded = True

    def missing():
        """[(row, strategy, how many runs)] of points that lack some."""
        points = [(row, strategy) for row in rows for strategy in row["strategies"]]
        counts = [repeat - len(repeats.runs_of(row["runs"].get(strategy))) for row, strategy in points]
        return [(row, strategy, count) for (row, strategy), count in zip(points, counts) if count > 0]

    def keep_run(row, strategy, done):
        round_index = len(repeats.runs_of(row["runs"].get(strategy)))
        turn = f", {round_index + 1} of {repeat}" if repeat > 1 else ""
        return keep(row, strategy, done, turn, after_run)

    if together:
        for row, strategy, done in together(missing()):
            succeeded = keep_run(row, strategy, done) and succeeded
    while lacks := missing():
        most = max(count for _, _, count in lacks)
        for row, strategy, count in lacks:
            if count == most:
                succeeded = keep_run(row, strategy, run(command_of(row, strategy), row["seconds"])) and succeeded
    return succeeded
