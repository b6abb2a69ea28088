#!/usr/bin/env python3
"""Tests of compare_programs.py, one of them with the program that TANDEM_BINARY names, beside itself."""

import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout

import compare_programs

TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))


def runs(*throughputs):
    return [{"command": [], "wall_s": 1, "result": {"output_throughput": value}} for value in throughputs]


def rows(*throughputs):
    entry = {"command": [], "repeats": runs(*throughputs)}
    return [{"name": "a", "strategies": ["auto"], "runs": {"auto": entry}}]


def parse_error(words):
    stderr = io.StringIO()
    try:
        with redirect_stderr(stderr):
            compare_programs.parse_args(words)
    except SystemExit:
        return stderr.getvalue()
    raise AssertionError(f"{words} were taken")


class Arguments(unittest.TestCase):
    def test_programs_take_turns_that_begin_with_another_one_each(self):
        self.assertEqual(compare_programs.in_turn({"old": 1, "new": 2}, 3), ["old", "new", "new", "old", "old", "new"])

    def test_mistakes_are_named(self):
        self.assertIn("wanted twice", parse_error(["--program", "old=x", "--row", "a: --workload osc"]))
        self.assertIn("wanted twice", parse_error(["--program", "old=x", "--program", "new", "--row", "a: -x"]))
        self.assertIn("the same name", parse_error(["--program", "a=x", "--program", "a=y", "--row", "a: -x"]))
        self.assertIn("there is no work", parse_error(["--program", "a=x", "--program", "b=y"]))

    def test_strategies_and_duration_replace_those_of_the_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            path.write_text(json.dumps([{"name": "a", "args": "-x", "strategies": ["async"], "duration": 9}]))
            programs = ["--program", "a=x", "--program", "b=y", "--rows", str(path)]
            kept = compare_programs.parse_args(programs)
            replaced = compare_programs.parse_args([*programs, "--strategies", "gpu-only,auto", "--duration", "4"])
        self.assertEqual(kept.rows[0]["strategies"], ["async"])
        self.assertEqual(kept.rows[0]["args"], ["-x", "--duration", "9"])
        self.assertEqual(replaced.rows[0]["strategies"], ["gpu-only", "auto"])
        self.assertEqual(replaced.rows[0]["args"], ["-x", "--duration", "4"])


class Verdicts(unittest.TestCase):
    def verdict_of(self, old, new):
        (line,) = compare_programs.figures({"old": rows(*old), "new": rows(*new)})
        return line["ratio"], line["verdict"]

    def test_what_overlaps_is_within_the_spread(self):
        self.assertEqual(self.verdict_of((100, 110, 104), (103, 99, 95)), ("0.952", "within the spread"))

    def test_what_lies_apart_is_better_or_worse(self):
        self.assertEqual(self.verdict_of((100, 101, 102), (98, 99, 97)), ("0.970", "WORSE"))
        self.assertEqual(self.verdict_of((100, 101, 102), (103, 104, 105)), ("1.030", "better"))

    def test_one_run_says_nothing(self):
        self.assertEqual(self.verdict_of((100,), (50,)), ("0.500", "one run"))

    def test_less_time_is_better(self):
        old, new = rows(1, 1), rows(1, 1)
        for row, value in ((old, 20.0), (new, 19.0)):
            for done in row[0]["runs"]["auto"]["repeats"]:
                done["result"]["iteration_ms"] = {"mean": value}
        lines = compare_programs.figures({"old": old, "new": new})
        self.assertEqual([line["verdict"] for line in lines], ["within the spread", "better"])


@unittest.skipUnless(TANDEM.is_file(), "TANDEM_BINARY names no program")
class WholeRun(unittest.TestCase):
    def test_a_program_beside_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            words = ["--program", f"a={TANDEM}", "--program", f"b={TANDEM}", "--repeat", "2", "--json", str(out)]
            words += ["--row", "tiny: --dummy tiny --workload synthetic:in=8,out=4 --num-requests 4"]
            with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
                self.assertEqual(compare_programs.main([*words, "--strategies", "gpu-only"]), 0)
            written = json.loads(out.read_text())["rows"]
        self.assertEqual([row["name"] for row in written], ["a: tiny", "b: tiny"])
        self.assertEqual([len(row["runs"]["gpu-only"]["repeats"]) for row in written], [2, 2])
        self.assertIn("| tiny | gpu-only | output tok/s |", printed.getvalue())


if __name__ == "__main__":
    sys.exit(unittest.main())
