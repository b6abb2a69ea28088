#!/usr/bin/env python3
"""Measures Tandem beside vLLM and SGLang: same shape, same requests, same room for KV, same machine, in turn.

    python3 evaluation/peers/compare_engines.py --plan evaluation/comparisons/vllm_h200.json --seconds 540 --resume
        --json OUT.json --table OUT.md --figure OUT.svg --tandem build/cuda-release/tandem

All sides have random weights in bf16 and make exactly the number of tokens that each request has, greedily. Tandem
writes the requests (--dump-workload). What is measured is data: see comparison_plan.py; how: comparison_sides.py; in
which order: comparison_schedule.py. vLLM's processes alone have the environment of --vllm-env, SGLang's that of
--sglang-env (peer_unpack.sh writes them).

A call begins with the plan's anchor, a row of a peer's alone: it says how calls on different machines compare. Then it
measures as much as it has time for, and --resume goes on where the file ends. What failed is told, passed over, and
tried again by the next call. Exit code: 0 all done, 1 something failed, 3 nothing failed and points are left over.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "evaluation"), str(Path(__file__).resolve().parent)]
import bench_runner  # noqa: E402
import comparison_plan  # noqa: E402
import comparison_report  # noqa: E402
from comparison_results import Results  # noqa: E402
from comparison_schedule import CallTime, Schedule  # noqa: E402
from comparison_sides import Requests, Tandem  # noqa: E402
from peer_sides import PEERS  # noqa: E402

LEFT_OVER = 3
# What drivers and other programs may take more than before.
MEMORY_SLACK_MIB = 512
MEMORY_PATIENCE_S = 60


def parse_args(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows with TEXT in their name")
    parser.add_argument("--repeat", type=int, default=3, help="of rows that say nothing else")
    parser.add_argument("--seconds", type=float, default=540, help="of this call, all that it does included")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    parser.add_argument("--no-anchor", action="store_true", help="where the machine is that of the call before")
    parser.add_argument("--max-tpot-ms", type=float, default=50, help="of the 99th percentile, for the highest rate")
    parser.add_argument("--tandem", type=Path, default=REPOSITORY / "build/cuda-release/tandem")
    parser.add_argument("--tandem-arg", action="append", default=[], help="one more argument for Tandem's engines")
    for side, name in comparison_plan.PEER_NAMES.items():
        environment = Path(tempfile.gettempdir()) / f"{side}_env.sh"
        what = f"a shell file that {name}'s processes source"
        parser.add_argument(f"--{side}-python", default="python3")
        parser.add_argument(f"--{side}-env", type=Path, default=environment, help=what)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--figure", type=Path, help="latency against load, as SVG or PNG; needs matplotlib")
    parser.add_argument("--logs", type=Path, help="folder for what the programs say (default: of failures, their end)")
    parser.add_argument("--report-only", action="store_true", help="measure nothing, write table and figure again")
    parser.add_argument("--dry-run", action="store_true", help="print what would be measured and stop")
    args = parser.parse_args(words)
    try:
        args.anchor, rows = comparison_plan.read_plan(args.plan)
        args.rows = comparison_plan.only(rows, args.only)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if args.repeat < 1:
        parser.error("--repeat is at least 1")
    for row in args.rows:
        row.variants = [
            comparison_plan.Variant(variant.side, variant.name, [*variant.settings, *args.tandem_arg])
            if variant.side == "tandem"
            else variant
            for variant in row.variants
        ]
    return args


def query_gpus(what):
    """A line for each GPU that programs are let see, or none where no tool tells: others work on the rest."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        words = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
        words += ["-i", visible] if visible else []
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def describe_machine():
    cpu = ""
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else ""
    cards = [line.split(", ") for line in query_gpus("name,memory.total,driver_version")]
    return {
        "cards": [card[0] for card in cards],
        "memory_mib": [int(card[1]) for card in cards],
        "driver": cards[0][2] if cards else None,
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "system": platform.system(),
    }


class GpuMemory:
    """Each side begins when the other's memory is free again."""

    def __init__(self, query=query_gpus, patience_s=MEMORY_PATIENCE_S):
        self._query = query
        self._patience_s = patience_s
        self._at_first = self._used()

    def _used(self):
        return [int(text) for text in self._query("memory.used") if text.strip().isdigit()]

    def wait_until_free(self):
        """None, or what is wrong."""
        deadline = time.monotonic() + self._patience_s
        while True:
            more = [now - first for now, first in zip(self._used(), self._at_first, strict=False)]
            if all(mib <= MEMORY_SLACK_MIB for mib in more):
                return None
            if time.monotonic() > deadline:
                return f"{max(more)} MiB of the GPU's memory are still taken by what ran before"
            time.sleep(0.5)


def note_version(call, side, run):
    """As the peer said it; Tandem's is there already."""
    if version := run["engine"].get(side):
        call["versions"][side] = version


def measure_anchor(args, sides, call, seconds):
    variant = args.anchor.variants[0]
    run = sides[variant.side].measure(args.anchor, variant, list(args.anchor.points), seconds)
    call["anchor"] = {"name": args.anchor.name, "kind": args.anchor.kind, **run}
    note_version(call, variant.side, run)
    for key, point in run["points"].items():
        said = point.get("error") or comparison_report.say(args.anchor.kind, point["result"])
        print(f"anchor, {key}: {said}", flush=True)


def measure(args, results, folder):
    """Whether nothing failed, and how many points are left."""
    call_time = CallTime(args.seconds)
    requests = Requests(args.tandem, folder)
    logs = args.logs or folder
    logs.mkdir(parents=True, exist_ok=True)
    sides = {"tandem": Tandem(args.tandem, requests, logs)}
    for side, peer in PEERS.items():
        python, environment = getattr(args, f"{side}_python"), getattr(args, f"{side}_env")
        environment = environment if environment.exists() else None
        sides[side] = peer(args.tandem, requests, logs, python, environment)
    version = subprocess.run([str(args.tandem), "--version"], capture_output=True, text=True).stdout.splitlines()
    call = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": None,
        "machine": describe_machine(),
        "versions": {"tandem": version[:2]},
        "anchor": None,
    }
    results.begin_call(call)
    memory = GpuMemory()
    if args.anchor and not args.no_anchor:
        measure_anchor(args, sides, call, call_time.left())
        results.write()
    call_time.begin_rows()

    def run(row, variant, keys, seconds):
        taken = memory.wait_until_free()
        if taken:
            return {"start_s": 0.0, "engine": {}, "points": {key: {"error": taken} for key in keys}}
        run = sides[variant.side].measure(row, variant, keys, seconds)
        note_version(call, variant.side, run)
        return run

    def tell(line):
        call["seconds"] = call_time.elapsed()
        print(line, flush=True)

    schedule = Schedule(results, args.rows, args.repeat, call_time, run, len(results.calls) - 1, tell)
    succeeded = schedule.run()
    call["seconds"] = call_time.elapsed()
    results.write()
    return succeeded, schedule.left_over


def write_report(args, results):
    content = results.content()
    table = comparison_report.tables(content, args.max_tpot_ms)
    print(table)
    if args.table:
        bench_runner.replace_file(args.table, table)
    if args.figure:
        try:
            import comparison_figure
        except ImportError as error:
            print(f"no figure: {error}", file=sys.stderr)
        else:
            args.figure.parent.mkdir(parents=True, exist_ok=True)
            if not comparison_figure.draw(content, args.max_tpot_ms, args.figure):
                print("no figure: there are no online rows", file=sys.stderr)


def main(words=None):
    args = parse_args(words)
    # A terminated run leaves no program behind: leave through the context managers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(args.json, args.resume or args.report_only)
    if args.dry_run:
        print(comparison_report.dry_run(args.anchor, args.rows, args.repeat))
        return 0
    if args.report_only:
        write_report(args, results)
        return 0
    if not args.tandem.exists():
        raise SystemExit(f"{args.tandem} does not exist: build it, or name another with --tandem")
    results.take_over(args.rows)
    with tempfile.TemporaryDirectory() as folder:
        try:
            succeeded, left_over = measure(args, results, Path(folder))
        finally:
            results.write()
    write_report(args, results)
    if left_over:
        print(f"{left_over} points are left for the next call (--resume)", flush=True)
    return LEFT_OVER if succeeded and left_over else 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
