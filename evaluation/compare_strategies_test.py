#!/usr/bin/env python3
"""Tests of compare_strategies.py, some of them with the program that TANDEM_BINARY names."""

import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout

import compare_strategies

TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))


def result(throughput, **fields):
    return {"command": [], "wall_s": 1, "result": {"output_throughput": throughput, "num_requests": 4, **fields}}


def cells_of(table, strategy):
    lines = [line for line in table.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[0] == strategy:
            return dict(zip(names, cells, strict=True))
    raise KeyError(strategy)


class Rows(unittest.TestCase):
    def test_a_row_is_a_name_and_flags(self):
        args = compare_strategies.parse_args(
            ["--row", "8 SMs, 1:2: --workload osc:out=100 --served-model-name 'a b'", "--strategies", "gpu-only,x"]
        )
        self.assertEqual(args.rows[0]["name"], "8 SMs, 1:2")
        self.assertEqual(args.rows[0]["args"], ["--workload", "osc:out=100", "--served-model-name", "a b"])
        self.assertEqual(args.rows[0]["strategies"], ["gpu-only", "x"])

    def test_rows_of_a_file_may_have_their_own_strategies(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            path.write_text(json.dumps([{"name": "a", "args": "--workload osc", "strategies": ["x"], "seconds": 5}]))
            args = compare_strategies.parse_args(["--rows", str(path), "--workload", "azure-conv"])
            only = compare_strategies.parse_args(["--rows", str(path), "--workload", "azure-conv", "--only", "conv"])
        self.assertEqual([row["name"] for row in args.rows], ["a", "azure-conv"])
        self.assertEqual([row["name"] for row in only.rows], ["azure-conv"])
        self.assertEqual([row["seconds"] for row in args.rows], [5, 300])
        self.assertEqual(args.rows[0]["strategies"], ["x"])
        self.assertEqual(args.rows[1]["args"], ["--workload", "azure-conv", "--num-requests", "200"])

    def test_mistakes_are_named(self):
        for words, message in (
            ([], "there is no work"),
            (["--row", "--workload osc"], "there is no 'NAME: '"),
            (["--row", "a: --x", "--row", "a: --y"], "the same name"),
            (["--rows", "nowhere.json"], "nowhere.json"),
            (["--workload", "osc", "--resume"], "--resume needs --json"),
            (["--workload", "osc", "--only", "azure"], "no row has azure"),
            (["--workload", "osc", "--repeat", "0"], "--repeat is at least 1"),
        ):
            stderr = io.StringIO()
            with self.assertRaises(SystemExit), redirect_stderr(stderr):
                compare_strategies.parse_args(words)
            self.assertIn(message, stderr.getvalue())

    def test_a_row_may_have_a_duration_and_a_steady_start(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            row = {"name": "a", "args": "--workload osc", "duration": 20, "warm_up": 2.5, "steady_start": True}
            path.write_text(json.dumps([row]))
            args = compare_strategies.parse_args(["--rows", str(path), "--workload", "azure-conv", "--steady", "8"])
        self.assertEqual(
            args.rows[0]["args"], ["--workload", "osc", "--steady-start", "--duration", "20", "--warm-up", "2.5"]
        )
        self.assertEqual(args.rows[1]["args"][-3:], ["--steady-start", "--duration", "8"])
        plain = compare_strategies.parse_args(["--workload", "osc"])
        self.assertEqual(plain.rows[0]["args"], ["--workload", "osc", "--num-requests", "200"])

    def test_a_strategy_may_have_flags_of_its_own(self):
        args = compare_strategies.parse_args(
            ["--row", "a: --seed 1 --async-cohorts 9", "--strategies", "async,async:async-cohorts=1:x", "--tandem", "t"]
        )
        self.assertEqual(args.rows[0]["strategies"], ["async", "async:async-cohorts=1:x"])
        self.assertEqual(
            compare_strategies.command_of(args, args.rows[0], "async:async-cohorts=1:x"),
            ["t", "bench", "offline", "--seed", "1", "--async-cohorts", "1", "--x", "--strategy", "async"],
        )
        self.assertNotIn(
            "--cpu-kv-cache",
            compare_strategies.command_of(args, {"args": ["--cpu-kv-cache", "1GiB"]}, "gpu-only:max-num-seqs=9"),
        )

    def test_gpu_only_gets_no_cpu_tier(self):
        args = compare_strategies.parse_args(
            ["--row", "a: --cpu-kv-cache 80GiB --seed 1", "--tandem-arg=--cpu-kv-cache=1GiB", "--tandem", "t"]
        )
        self.assertEqual(
            compare_strategies.command_of(args, args.rows[0], "gpu-only"),
            ["t", "bench", "offline", "--seed", "1", "--strategy", "gpu-only"],
        )
        self.assertIn("80GiB", compare_strategies.command_of(args, args.rows[0], "asymmetric"))


class Table(unittest.TestCase):
    ROW = {"name": "row", "args": ["--workload", "osc"]}

    def test_ratios_and_bounds(self):
        runs = {
            "gpu-only": result(100.0, steady_output_throughput=110.0, upper_bound_throughput=None, gpu_busy=0.99),
            "asymmetric": result(
                150.0,
                steady_output_throughput=176.0,
                upper_bound_throughput=200.0,
                ideal_gpu_only_throughput=125.0,
                cpu_tier_tokens=30,
                total_output_tokens=120,
                iteration_ms={"mean": 12.345},
            ),
        }
        table = compare_strategies.format_table(self.ROW, runs)
        ours = cells_of(table, "asymmetric")
        self.assertEqual(ours["x gpu-only"], "1.50")
        self.assertEqual(ours["x gpu-only, steady"], "1.60")
        self.assertEqual(ours["bound x ideal"], "1.60")
        self.assertEqual(ours["of bound"], "0.75")
        self.assertEqual(ours["in cpu tier"], "0.25")
        self.assertEqual(ours["iteration ms"], "12.35")
        base = cells_of(table, "gpu-only")
        self.assertEqual(base["x gpu-only"], "1.00")
        self.assertEqual(base["bound"], "200.0")
        self.assertEqual(base["cpu attention busy"], "-")

    def test_riders_and_tiers(self):
        fields = {
            "rider_visits": 90,
            "rider_skips": 10,
            "max_cpu_kv_gb": 12.34,
            "gpu_tier": {"median_itl_ms": 8.04, "p99_itl_ms": 9, "median_tpot_ms": 8.1},
            "cpu_tier": {"median_itl_ms": 300, "p99_itl_ms": 402, "median_tpot_ms": None},
        }
        cells = cells_of(compare_strategies.format_table(self.ROW, {"async": result(1.0, **fields)}), "async")
        self.assertEqual(cells["rider visits"], "90")
        self.assertEqual(cells["skipped"], "0.100")
        self.assertEqual(cells["cpu tier GB at most"], "12.3")
        self.assertEqual(cells["gpu tier itl p50 ms"], "8.0")
        self.assertEqual(cells["cpu tier itl p99 ms"], "402.0")
        self.assertEqual(cells["cpu tier tpot p50 ms"], "-")
        older = cells_of(compare_strategies.format_table(self.ROW, {"x": result(1.0)}), "x")
        self.assertEqual(older["skipped"], "-")

    def test_repeats_are_medians_with_half_their_range(self):
        base = result(100.0)
        repeated = {
            "command": [],
            "repeats": [
                {"wall_s": 1, "result": result(value, iteration_ms={"mean": mean})["result"]}
                for value, mean in ((150.0, 1.0), (153.0, 3.0), (147.0, 2.0))
            ]
            + [{"wall_s": 1, "error": "ended with 1: x"}],
        }
        table = compare_strategies.format_table(self.ROW, {"gpu-only": base, "a": repeated})
        cells = cells_of(table, "a")
        self.assertEqual(cells["output tok/s"], "150.0 ±2.0%")
        self.assertEqual(cells["x gpu-only"], "1.50")
        self.assertEqual(cells["iteration ms"], "2.00")
        self.assertEqual(cells_of(table, "gpu-only")["output tok/s"], "100.0")
        self.assertIn("- a: ended with 1: x", table)
        self.assertIn("medians of 1/3 runs", table)

    def test_failures_stand_below(self):
        runs = {"gpu-only": {"command": [], "wall_s": 9, "error": "not done after 9 s: x"}, "b": result(1, failed=2)}
        table = compare_strategies.format_table(self.ROW, runs)
        self.assertIn("- gpu-only: not done after 9 s: x", table)
        self.assertIn("- b: 2 of 4 requests failed", table)
        self.assertEqual(cells_of(table, "b")["x gpu-only"], "-")
        nothing = compare_strategies.format_table(self.ROW, {"b": {"command": [], "wall_s": 9, "error": "e"}})
        self.assertIn("- b: e", nothing)


@unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
class Program(unittest.TestCase):
    def compare(self, folder, *words):
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            status = compare_strategies.main(
                [
                    *(
                        "--tandem",
                        str(TANDEM),
                        "--tandem-arg=--cpu-threads=1",
                        "--strategies",
                        "gpu-only,no-such-strategy",
                    ),
                    *("--row", "tiny: --dummy tiny --gpu-kv-cache 4096tok --workload osc:out=9 --num-requests 3"),
                    *("--json", str(folder / "out" / "all.json"), "--table", str(folder / "all.md"), *words),
                ]
            )
        return status, stdout.getvalue(), stderr.getvalue()

    def test_results_are_written_and_can_be_taken_over(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            status, table, _ = self.compare(folder)
            self.assertEqual(status, 1)
            self.assertIn("no-such-strategy", table)
            self.assertEqual((folder / "all.md").read_text().strip(), table.strip())
            runs = json.loads((folder / "out" / "all.json").read_text())["rows"][0]["runs"]
            self.assertIn("there is no strategy 'no-such-strategy'", runs["no-such-strategy"]["error"])
            report = runs["gpu-only"]["result"]
            self.assertEqual(report["completed"], 3)
            self.assertEqual(report["strategy"], "gpu-only")
            self.assertEqual(cells_of(table, "gpu-only")["output tok/s"], f"{report['output_throughput']:.1f}")
            self.assertIn("gpu_tier", report)
            _, again, _ = self.compare(folder, "--resume")
            self.assertEqual(again, table)
            _, other_command, _ = self.compare(folder, "--resume", "--tandem-arg=--seed=1")
            self.assertNotEqual(other_command, table)

    def test_repeats_are_interleaved_and_go_on_where_they_ended(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            strategies = ("--strategies", "gpu-only,full-offload", "--tandem-arg=--cpu-kv-cache=4096tok")
            self.compare(folder, *strategies)
            _, table, stderr = self.compare(folder, "--resume", "--repeat", "2", *strategies)
            self.assertEqual(
                [line.split(":")[0] for line in stderr.splitlines()],
                ["tiny, gpu-only, 2 of 2", "tiny, full-offload, 2 of 2"],
            )
            _, _, from_nothing = self.compare(folder, "--repeat", "2", *strategies)
            self.assertEqual(
                [line.split(":")[0].removeprefix("tiny, ") for line in from_nothing.splitlines()],
                ["gpu-only, 1 of 2", "full-offload, 1 of 2", "gpu-only, 2 of 2", "full-offload, 2 of 2"],
            )
            entry = json.loads((folder / "out" / "all.json").read_text())["rows"][0]["runs"]["gpu-only"]
            rates = [run["result"]["output_throughput"] for run in entry["repeats"]]
            self.assertEqual(len(rates), 2)
            self.assertEqual(entry["spread"]["output_throughput"]["min"], min(rates))
            self.assertIn("±", cells_of(table, "gpu-only")["output tok/s"])

    def test_rows_that_are_not_wanted_now_stay_in_the_file(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = folder / "out" / "all.json"
            path.parent.mkdir()
            other = {"name": "other", "args": [], "runs": {"gpu-only": result(12.0)}}
            path.write_text(json.dumps({"rows": [other]}))
            self.compare(folder, "--resume")
            rows = json.loads(path.read_text())["rows"]
            self.assertEqual(rows[0], other)
            self.assertEqual([row["name"] for row in rows], ["other", "tiny"])
            self.assertIn("## other", (folder / "all.md").read_text())


if __name__ == "__main__":
    sys.exit(unittest.main())
