#!/usr/bin/env python3
"""Tests of compare_results.py and result_files.py, with results as the program writes them."""

import copy
import io
import json
import pathlib
import shlex
import sys
import tempfile
import unittest
from contextlib import redirect_stdout

import compare_results
import repeats
import result_files

# Measured on a GPU machine: four pieces of work with three strategies.
MEASURED = pathlib.Path(__file__).resolve().parent / "results" / "hybrid_h200_run1.json"


def measured_entry(row=0, strategy="asymmetric"):
    entry = result_files.read_content(MEASURED)["rows"][row]["runs"][strategy]
    # A report as the program writes it says how it was made.
    entry["result"]["command"] = shlex.join(entry["command"])
    return entry


def scaled(report, factor, **fields):
    return {**report, "output_throughput": report["output_throughput"] * factor, **fields}


def repeated(entry, factors, **fields):
    runs = {}
    for factor in factors:
        done = {"command": entry["command"], "wall_s": 1, "result": scaled(entry["result"], factor, **fields)}
        repeats.add_all(runs, "x", [done])
    return runs["x"]


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name, content):
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def write_rows(self, name, *entries):
        rows = [{"name": str(i), "args": [], "runs": {"x": entry}} for i, entry in enumerate(entries)]
        return self.write(name, {"rows": rows})

    def compare(self, *paths):
        stdout = io.StringIO()
        with redirect_stdout(stdout):
            compare_results.main(list(paths))
        return stdout.getvalue()

    def test_runs_of_one_engine_are_told_apart(self):
        report = measured_entry()["result"]
        runs = [
            {"workload": workload, "strategy": strategy, "wall_s": 1, "result": report}
            for workload in ("osc", "azure-conv")
            for strategy in ("gpu-only", "async:async-cohorts=1")
        ]
        runs.append({"workload": "osc", "strategy": "auto", "wall_s": 1, "error": "e"})
        command = (
            "tandem bench compare --dummy tiny --cpu-kv-cache 9tok --workload osc --workload azure-conv "
            "--strategies gpu-only,async:async-cohorts=1,auto --json x"
        )
        path = self.write("compared.json", {"command": command, "runs": runs})
        flags = [run.flags for run in result_files.read_runs(path)]
        self.assertEqual([each["workload"] for each in flags], ["osc", "osc", "azure-conv", "azure-conv"])
        self.assertEqual([each["strategy"] for each in flags], ["gpu-only", "async"] * 2)
        self.assertEqual([each.get("async-cohorts") for each in flags], [None, "1"] * 2)
        self.assertEqual({each["dummy"] for each in flags}, {"tiny"})
        self.assertNotIn("strategies", flags[0])

    def test_flags_of_a_command(self):
        words = "bench offline --dummy=tiny --steady-start --workload osc --duration 9 models/a.gguf".split()
        self.assertEqual(
            result_files.flags_of(words),
            {
                "mode": "offline",
                "dummy": "tiny",
                "steady-start": True,
                "workload": "osc",
                "duration": "9",
                "model": "a.gguf",
                "windowed": True,
            },
        )

    def test_a_measured_file_equals_itself(self):
        runs = result_files.read_runs(MEASURED)
        self.assertEqual(len(runs), 12)
        self.assertEqual(len({run.identity() for run in runs}), 12)
        text = self.compare(str(MEASURED), self.write("copy.json", result_files.read_content(MEASURED)))
        self.assertEqual(text.count("| output tok/s |"), 12)
        self.assertNotIn("differs", text)
        self.assertIn("1.000x the output tok/s", text)

    def test_single_reports_are_compared_whatever_they_are(self):
        a = self.write("a.json", measured_entry(0, "gpu-only")["result"])
        b = self.write("b.json", measured_entry(2, "asymmetric")["result"])
        text = self.compare(a, b)
        self.assertIn("| output tok/s | 214.9 | 885.8 | +312.2% |", text)
        self.assertIn("- model differs: llama-2-7b / llama-3.1-8b", text)
        self.assertIn("- strategy differs: gpu-only / asymmetric", text)
        self.assertIn("how much repeats differ is not known", text)

    def test_conditions_that_differ_are_named(self):
        entry = measured_entry()
        other = copy.deepcopy(entry)
        other["result"]["dtype"] = "fp16"
        other["result"]["machine"]["device"] = "another GPU"
        other["result"]["machine"]["versions"]["compiler"] = "13"
        other["command"] += ["--cpu-attention-order", "arming"]
        other["result"]["command"] += " --cpu-attention-order arming"
        text = self.compare(self.write("a.json", entry["result"]), self.write("b.json", other["result"]))
        self.assertIn("- dtype differs: bf16 / fp16", text)
        self.assertRegex(text, "- machine differs: NVIDIA H200, a slice of 8 of 132 SMs.* / another GPU")
        self.assertIn("- version of compiler differs: 12.2.0 / 13", text)
        self.assertIn("- --cpu-attention-order differs: none / arming", text)
        self.assertNotIn("workload differs", text)

    def test_differences_within_the_range_of_repeats_are_marked(self):
        entry = measured_entry()
        a = self.write_rows("a.json", repeated(entry, (0.97, 1.0, 1.02)))
        near = self.write_rows("near.json", repeated(entry, (1.01, 1.03, 1.05)))
        far = self.write_rows("far.json", repeated(entry, (1.10, 1.11, 1.12)))
        text = self.compare(a, near, far)
        line = next(line for line in text.splitlines() if line.startswith("| output tok/s"))
        self.assertEqual(line, "| output tok/s | 317.3 ±2.5% | 326.8 ±1.9% | +3.0% (~) | 352.2 ±0.9% | +11.0% |")
        self.assertNotIn("not known", text)

    def test_runs_are_matched_by_work_and_strategy(self):
        asymmetric, other_work = measured_entry(), measured_entry(1)
        own_flag = measured_entry()
        own_flag["result"]["command"] += " --cpu-threads 4"
        a = self.write_rows("a.json", asymmetric, other_work)
        b = self.write_rows("b.json", own_flag, other_work)
        text = self.compare(a, b)
        self.assertEqual(text.count("| output tok/s |"), 1)
        self.assertIn("## asymmetric: llama-2-7b, gpu-sm-limit 8, gpu-kv-cache 2240tok, workload osc:out=100", text)
        self.assertIn("a.json has no run of asymmetric, cpu-threads 4: llama-2-7b", text)
        self.assertIn("b.json has no run of asymmetric: llama-2-7b", text)

    def test_a_window_is_not_matched_with_a_whole_run(self):
        whole, window = measured_entry(), measured_entry()
        window["result"]["command"] += " --steady-start --duration 9"
        a, b = self.write_rows("a.json", whole, measured_entry(1)), self.write_rows("b.json", window, measured_entry(1))
        self.assertEqual(self.compare(a, b).count("| output tok/s |"), 1)

    def test_mistakes_are_named(self):
        good = self.write("a.json", measured_entry()["result"])
        text = self.folder / "b.json"
        text.write_text("nothing")
        two = self.write_rows("c.json", measured_entry(1), measured_entry(2))
        for other, message in (
            (str(text), "is no JSON"),
            (self.write("d.json", {"a": 1}), "neither a report"),
            (two, "no run of these files has the same"),
            (str(self.folder / "none.json"), "none.json"),
        ):
            with self.assertRaises(SystemExit) as raised:
                self.compare(good, other)
            self.assertIn(message, str(raised.exception.code))


if __name__ == "__main__":
    sys.exit(unittest.main())
