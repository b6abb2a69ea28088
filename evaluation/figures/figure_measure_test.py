#!/usr/bin/env python3
"""Tests of figure.py measure with the program that TANDEM_BINARY names."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import figure
import figure_data
import figure_spec
import figure_tables

TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))
TINY = "--dummy tiny --gpu-kv-cache 2048tok --cpu-kv-cache 8192tok"


def main(*words):
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = figure.main(list(map(str, words)))
    return status, stdout.getvalue(), stderr.getvalue()


class Measuring(unittest.TestCase):
    def test_mistakes_are_named(self):
        for words, message in (
            (("measure", "neo5", "--json", "x"), "neo5"),
            (("measure", "neo9", "--json", "x", "--repeat", "0"), "--repeat is at least 1"),
            (("measure", "neo9", "--json", "x", "--only", "abc"), "no point has abc"),
            (("measure", "neo9", "--json", "x", "--strategies", "auto,abc"), "no point has the strategy abc"),
        ):
            stderr = io.StringIO()
            with self.assertRaises(SystemExit) as raised, contextlib.redirect_stderr(stderr):
                figure.main(list(words))
            self.assertIn(message, stderr.getvalue() + str(raised.exception.code))


@unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
class Program(unittest.TestCase):
    """The real program on the host backend, with the tiny model in place of a figure's."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def shrink(self, name, panel_index, measure, **fields):
        """The figure with one panel, on the host."""
        spec = json.loads((figure_spec.FOLDER / "figures.json").read_text())
        spec["slices"] = {"host": {"title": "host, no {gpu}", "stands_for": "-", "args": TINY}}
        panel = {**spec["figures"][name]["panels"][panel_index], "slice": "host", **fields}
        spec["measures"] = {panel["measure"]: measure}
        spec["figures"] = {name: {**spec["figures"][name], "panels": [panel]}}
        (self.folder / "figures.json").write_text(json.dumps(spec))
        figures = figure_spec.read_figures(self.folder / "figures.json")
        self.enterContext(unittest.mock.patch("figure_spec.read_figures", lambda: figures))
        return figures[name].panels[0]

    def collect(self, panel):
        return figure_data.collect(panel, figure_data.read_all([self.folder / "all.json"]))

    def test_a_figure_is_measured_and_read_again(self):
        window = {"mode": "offline", "args": "--num-requests 300 --steady-start --duration 1 --warm-up 0.03"}
        panel = self.shrink("neo9", 1, window, points=[10, 20], quick=[20])
        words = ("measure", "neo9", "--json", self.folder / "all.json", "--quick", "--tandem", TANDEM)
        fewer, _, first = main(*words, "--strategies", "gpu-only,auto")
        status, _, rest = main(*words, "--resume")
        stderr = first + rest
        self.assertEqual(fewer, 0, first)
        self.assertEqual(first.count("output tok/s"), 2)
        again, _, nothing_run = main(*words, "--resume")
        with self.assertRaisesRegex(SystemExit, "--resume goes on with it"):
            main(*words)
        self.assertEqual([status, again], [0, 0], stderr)
        self.assertEqual([stderr.count("output tok/s"), nothing_run.count("output tok/s")], [4, 0])
        data = self.collect(panel)
        self.assertEqual(data.xs, [20])
        self.assertEqual(data.missing, [(name, 10) for name in panel.strategies])
        self.assertGreater(data.ratio("asymmetric", 20).median, 0)
        self.assertRegex(data.kinds_of_run(), r"windows of 0\.9")
        table = "\n".join(figure_tables.panel_text(data, None))
        self.assertNotIn("| 10 |", table)
        self.assertRegex(table, r"\| 20 \| \d+")

    def test_latency_against_load(self):
        usage = subprocess.run(
            [TANDEM, "bench", "online", "--help"], capture_output=True, text=True, check=False
        ).stdout
        if "--rate" not in usage:
            self.skipTest("this program has no bench online")
        load = {
            "mode": "online",
            "args": "--num-requests 999 --duration 1.5 --warm-up 0.3 --cool-down 0.2 --deadline 60",
        }
        panel = self.shrink("neo6", 2, load, points=[10, 20], quick=[])
        status, _, stderr = main("measure", "neo6", "--json", self.folder / "all.json", "--tandem", TANDEM)
        self.assertEqual(status, 0, stderr)
        data = self.collect(panel)
        self.assertEqual(data.missing, [])
        for line in data.cells.values():
            for cell in line.values():
                self.assertGreater(cell.median("mean_per_token_latency_s"), 0)
                self.assertEqual(cell.doubts(), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
