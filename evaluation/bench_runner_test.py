#!/usr/bin/env python3
"""Tests of bench_runner.py and repeats.py. Runs of the real program are in compare_strategies_test.py."""

import json
import pathlib
import sys
import tempfile
import time
import unittest

import bench_runner
import repeats


def entry(command, *throughputs):
    runs = {}
    for value in throughputs:
        done = {"command": command, "wall_s": 1}
        done |= {"error": "e"} if value is None else {"result": {"output_throughput": value}}
        repeats.add_all(runs, "x", [done])
    return runs["x"]


class Repeats(unittest.TestCase):
    def test_one_run_stands_alone_and_says_nothing_of_the_spread(self):
        self.assertEqual(entry(["t"], 5.0), {"command": ["t"], "wall_s": 1, "result": {"output_throughput": 5.0}})
        self.assertIsNone(repeats.spread_of([5.0]).relative)
        self.assertIsNone(repeats.spread_of([None]))

    def test_spread_is_half_the_range_over_the_median(self):
        spread = entry(["t"], 98.0, 100.0, None, 104.0)["spread"]["output_throughput"]
        self.assertEqual(spread, {"median": 100.0, "min": 98.0, "max": 104.0, "relative_spread": 0.03})

    def test_failed_runs_count_as_errors_only(self):
        mixed = entry(["t"], 1.0, None)
        self.assertEqual([len(repeats.reports_of(mixed)), repeats.errors_of(mixed)], [1, ["e"]])
        self.assertEqual(mixed["spread"], {})
        self.assertEqual(len(repeats.succeeded(mixed)), 1)

    def test_numbers_of_a_median_report_are_medians(self):
        reports = [{"a": 1, "b": {"c": value, "d": "x"}, "e": None, "f": True} for value in (3, 1, 2)]
        self.assertEqual(repeats.median_report(reports), {"a": 1, "b": {"c": 2, "d": "x"}, "e": None, "f": True})
        self.assertEqual(repeats.median_report([{"a": None}, {"a": 4.0}]), {"a": 4.0})


class Commands(unittest.TestCase):
    def test_flags_of_the_strategy_replace_those_of_the_row(self):
        command = bench_runner.bench_command("t", "online", ["--rate", "2", "--cpu-kv-cache=9tok"], "gpu-only:rate=3")
        self.assertEqual(command, ["t", "bench", "online", "--rate", "3", "--strategy", "gpu-only"])


class TakeOver(unittest.TestCase):
    def test_what_counts_is_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "all.json"
            old_runs = {"a": entry(["a"], 1.0, 2.0), "b": entry(["other"], 1.0), "c": entry(["c"], 1.0)}
            bench_runner.write_rows(path, [{"name": "r", "args": [], "runs": old_runs}])
            rows = [{"name": "r", "args": [], "strategies": ["b", "a"]}]
            others = bench_runner.take_over(path, rows, lambda row, strategy: [strategy])
        self.assertEqual(others, [])
        self.assertEqual(list(rows[0]["runs"]), ["a", "c"])
        self.assertEqual(rows[0]["runs"]["a"], old_runs["a"])

    def test_runs_that_failed_are_left_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "all.json"
            path.write_text(json.dumps({"rows": [{"name": "r", "args": [], "runs": {"a": entry(["a"], None, 2.0)}}]}))
            rows = [{"name": "r", "args": [], "strategies": ["a"]}]
            bench_runner.take_over(path, rows, lambda row, strategy: [strategy])
        self.assertEqual(rows[0]["runs"]["a"], entry(["a"], 2.0))


class Limit(unittest.TestCase):
    def test_a_run_that_takes_too_long_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            child = pathlib.Path(folder) / "child"
            sleep = f"echo 20 of 200 requests >&2; sleep 60 & echo $! > {child}; wait"
            begin = time.monotonic()
            done = bench_runner.run(["sh", "-c", sleep, "sh"], 0.5)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(done["error"], "not done after 0.5 s: 20 of 200 requests")
            for _ in range(100):
                state = pathlib.Path("/proc", child.read_text().strip(), "stat")
                if not state.exists() or state.read_text().split()[2] == "Z":
                    return
                time.sleep(0.05)
            self.fail("the child still runs")


if __name__ == "__main__":
    sys.exit(unittest.main())
