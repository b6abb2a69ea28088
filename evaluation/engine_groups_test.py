#!/usr/bin/env python3
"""Tests of engine_groups.py, one of them with the program that TANDEM_BINARY names."""

import json
import os
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import bench_runner
import compare_strategies
import engine_groups
import result_files

TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))


def row(name, words, seconds=9, **fields):
    return {"name": name, "args": words.split(), "seconds": seconds, **fields}


class Groups(unittest.TestCase):
    def grouped(self, points):
        points = [(row, strategy, 1) for row, strategy in points]
        return [
            (words, {value: row["name"] for value, row in rows.items()}, list(strategies.values()))
            for words, _, rows, strategies, _ in engine_groups.group(points, lambda row: row["args"])
        ]

    def test_rows_that_differ_in_the_workload_alone_share_an_engine(self):
        a, b = row("a", "--x 1 --workload w1 --y"), row("b", "--x 1 --workload=w2 --y")
        other = row("c", "--x 2 --workload w1 --y")
        points = [(each, strategy) for each in (a, b, other) for strategy in ("gpu-only", "async:async-cohorts=1")]
        strategies = ["gpu-only", "async:async-cohorts=1"]
        self.assertEqual(
            self.grouped(points),
            [(["--x", "1", "--y"], {"w1": "a", "w2": "b"}, strategies), (["--x", "2", "--y"], {"w1": "c"}, strategies)],
        )

    def test_online_rows_that_differ_in_the_rate_alone_share_one(self):
        rows = [row(rate, f"--workload w --rate {rate}", mode="online") for rate in ("1", "2.5")]
        points = [(each, strategy) for each in rows for strategy in ("gpu-only", "auto")]
        expected = [(["--workload", "w"], {"1": "1", "2.5": "2.5"}, ["gpu-only", "auto"])]
        self.assertEqual(self.grouped(points), expected)
        command = engine_groups.compare_command("t", ["--workload", "w"], "--rate", ["1", "2.5"], ["gpu-only", "auto"], 3)
        self.assertEqual(" ".join(command[3:]), "--workload w --rate 1 --rate 2.5 --strategies gpu-only,auto --repeat 3")

    def test_what_needs_an_engine_of_its_own_has_one(self):
        a = row("a", "--workload w")
        points = [(a, "async:cpu-threads=4"), (row("b", "--workload w", mode="online"), "gpu-only"), (a, "auto")]
        self.assertEqual(
            self.grouped(points), [(["--cpu-threads", "4"], {"w": "a"}, ["async:cpu-threads=4"]), ([], {"w": "a"}, ["auto"])]
        )
        # Two rows with the same workload: the second one another time.
        self.assertEqual(len(self.grouped([(a, "auto"), (row("b", "--workload w"), "auto")])), 1)

    def test_strategies_with_the_same_flags_of_their_own_share_one(self):
        rows = [row(name, f"--cpu-threads 14 --workload {name}") for name in ("v", "w")]
        strategies = ["asymmetric:cpu-threads=4", "async:async-cohorts=1:cpu-threads=4"]
        groups = engine_groups.group([(each, name, 1) for each in rows for name in strategies], lambda row: row["args"])
        self.assertEqual(len(groups), 1)
        words, _, _, names, _ = groups[0]
        self.assertEqual(words, ["--cpu-threads", "4"])
        self.assertEqual(names, dict(zip(["asymmetric", "async:async-cohorts=1"], strategies, strict=True)))

    def test_rows_with_other_strategies_or_limits_stand_apart(self):
        points = [(row("a", "--workload w"), "auto"), (row("b", "--workload v"), "async")]
        self.assertEqual(len(self.grouped(points)), 2)
        points = [(row("a", "--workload w"), "auto"), (row("b", "--workload v", seconds=5), "auto")]
        self.assertEqual(len(self.grouped(points)), 2)

    def test_what_lacks_more_rounds_stands_apart(self):
        a = row("a", "--workload w")
        groups = engine_groups.group([(a, "auto", 3), (a, "async", 2), (a, "gpu-only", 3)], lambda row: row["args"])
        self.assertEqual([(list(names), rounds) for _, _, _, names, rounds in groups], [(["auto", "gpu-only"], 3), (["async"], 2)])

    def test_what_did_not_come_is_an_error_with_the_reason(self):
        points = [(row("a", "--workload w"), "auto", 1), (row("a", "--workload v"), "auto", 1)]
        done = list(engine_groups.run_groups(points, "false", lambda row: row["args"], lambda row, strategy: [strategy]))
        self.assertEqual(len(done), 2)
        for _, _, run in done:
            self.assertTrue(run["error"].startswith("ended with 1"), run)
            self.assertEqual(run["command"], ["auto"])


@unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
class Program(unittest.TestCase):
    STRATEGIES = "gpu-only,async:async-cohorts=1,full-offload"

    def test_rates_run_in_one_engine(self):
        words = "--dummy tiny --cpu-threads 1 --gpu-kv-cache 2048tok --workload synthetic:in=20,out=5 --num-requests 12"
        rows = [
            {"mode": "online", "strategies": ["gpu-only"], "runs": {}, **row(rate, f"{words} --rate {rate}", 60)}
            for rate in ("40", "80")
        ]

        def command_of(row, strategy):
            return bench_runner.bench_command(TANDEM, "online", row["args"], strategy)

        def together(points):
            return engine_groups.run_groups(points, TANDEM, lambda row: row["args"], command_of)

        with redirect_stderr(StringIO()):
            self.assertTrue(bench_runner.measure(rows, command_of, 2, lambda: None, together))
        for each in rows:
            entry = each["runs"]["gpu-only"]
            self.assertEqual(entry["command"], command_of(each, "gpu-only"))
            self.assertEqual(len(entry["repeats"]), 2)
            self.assertGreater(entry["spread"]["output_throughput"]["min"], 0)
            for run in entry["repeats"]:
                self.assertEqual(run["ran_as"][-2:], ["--repeat", "2"])
                self.assertEqual(run["result"]["rate"], float(each["name"]))
                self.assertEqual(run["result"]["completed"], 12)

    def test_points_run_in_one_engine_and_are_told_apart(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "all.json"
            tiers = "--dummy tiny --gpu-kv-cache 1024tok --cpu-kv-cache 4096tok"
            words = [
                *("--tandem", str(TANDEM), "--tandem-arg=--cpu-threads=1", "--together", "--strategies"),
                *(self.STRATEGIES, "--json", str(path)),
                *("--row", f"short: {tiers} --num-requests 20 --workload synthetic:in=40,out=5"),
                *("--row", f"long: {tiers} --num-requests 20 --workload synthetic:in=20,out=20"),
            ]
            stdout, stderr = StringIO(), StringIO()
            with redirect_stdout(stdout), redirect_stderr(stderr):
                status = compare_strategies.main(words)
            self.assertEqual(status, 0, stderr.getvalue())
            for each in json.loads(path.read_text())["rows"]:
                self.assertEqual(list(each["runs"]), self.STRATEGIES.split(","))
                for strategy, run in each["runs"].items():
                    self.assertEqual(run["ran_as"][1:3], ["bench", "compare"])
                    self.assertEqual(run["result"]["strategy"], strategy.split(":")[0])
                    self.assertEqual(run["result"]["completed"], 20)
                    used = run["result"]["cpu_tier_tokens"]
                    self.assertEqual(used > 0, strategy == "full-offload" or used > 0 and strategy != "gpu-only")
            flags = [(run.flags["workload"], run.flags["strategy"]) for run in result_files.read_runs(path)]
            self.assertEqual(len(set(flags)), 6)
            # What is there is not run again.
            again = StringIO()
            with redirect_stdout(StringIO()), redirect_stderr(again):
                compare_strategies.main([*words, "--resume"])
            self.assertEqual(again.getvalue(), "")


if __name__ == "__main__":
    sys.exit(unittest.main())
