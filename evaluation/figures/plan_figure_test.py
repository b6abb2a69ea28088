"""What plan_figure.py makes of a plan."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr
from io import StringIO

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plan_figure  # noqa: E402

TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))


def load_point(strategy, rate, latency_s):
    return {"strategy": strategy, "request_rate": rate, "mean_per_token_latency_s": latency_s}


class Lines(unittest.TestCase):
    def test_load_is_sorted_by_strategy_and_rate(self):
        points = [load_point("auto", 2.0, 0.2), load_point("gpu-only", 1.0, 0.3), load_point("auto", 1.0, 0.1)]
        lines = plan_figure.load_lines({"load_sweep": points}, "mean_per_token_latency_s")
        self.assertEqual(lines, {"auto": [(1.0, 0.1), (2.0, 0.2)], "gpu-only": [(1.0, 0.3)]})

    def test_what_the_host_makes(self):
        names = ("cpu_attention_gb_per_s", "gpu_only_throughput", "best_throughput", "upper_bound_throughput")
        points = [dict(zip(names, values, strict=True)) for values in ((20, 1, 3, 4), (10, 1, 2, 3))]
        lines = plan_figure.bandwidth_lines({"host_bandwidth_sweep": points})
        self.assertEqual(lines, {"gpu-only": [(10, 1), (20, 1)], "best strategy": [(10, 2), (20, 3)], "bound": [(10, 3), (20, 4)]})

    def test_a_machine_of_a_profile_has_no_names(self):
        report = {"gpu": "", "host": "", "costs_from": "p.json", "model": "m", "workload": "osc"}
        self.assertEqual(plan_figure.title_of(report), "Simulated: p.json, m, osc")
        report |= {"gpu": "NVIDIA T4", "host": "8 cores"}
        self.assertEqual(plan_figure.title_of(report), "Simulated: NVIDIA T4 with 8 cores, m, osc")


class Drawing(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_without_sweeps_it_says_what_to_do(self):
        path = self.folder / "plan.json"
        path.write_text(json.dumps({"strategies": []}))
        with redirect_stderr(StringIO()), self.assertRaisesRegex(SystemExit, "give tandem plan --sweep"):
            plan_figure.main([str(path), "--out", str(self.folder / "plan.svg")])

    @unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_a_plan_is_drawn(self):
        plan, drawing = self.folder / "plan.json", self.folder / "plan.svg"
        words = ["--gpu", "l4", "--host", "g5.4xlarge", "--model", "llama-3.1-8b", "--workload", "synthetic:in=300,out=50"]
        words += ["--num-requests", "200", "--strategies", "gpu-only,async:async-cohorts=1", "--sweep"]
        subprocess.run([TANDEM, "plan", *words, "--json", plan], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(plan_figure.main([str(plan), "--out", str(drawing)]), 0)
        text = drawing.read_text()
        for expected in ("Simulated: NVIDIA L4", "async:async-cohorts=1", "ideal gpu-only", "this host"):
            self.assertIn(expected, text)


if __name__ == "__main__":
    unittest.main()
