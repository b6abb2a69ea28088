#!/usr/bin/env python3
"""Tests of the figures: what they measure, how they read results, tables and drawing.

Reports are measured ones with other commands and rates. Drawing needs matplotlib.
"""

import contextlib
import copy
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

import figure
import figure_data
import figure_spec
import figure_tables
from figure_spec import REPOSITORY

import bench_runner
import repeats
import result_files

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
MEASURED = REPOSITORY / "evaluation" / "results" / "hybrid_h200_run1.json"
FIGURES = figure_spec.read_figures()
FASTER = {"gpu-only": 1.0, "asymmetric": 1.3, "full-offload": 1.1, "async": 1.5, "apex": 1.45, "auto": 1.6}


def measured_report(strategy):
    runs = result_files.read_content(MEASURED)["rows"][0]["runs"]
    return copy.deepcopy(runs["gpu-only" if strategy == "gpu-only" else "asymmetric"]["result"])


def make_report(row, strategy, factor=1.0):
    """As the program would write it for this point: the fields of a measured one, other throughput and latency."""
    name = strategy.split(":")[0]
    command = bench_runner.bench_command("tandem", row["mode"], row["args"], strategy)
    report = measured_report(name)
    report |= {"command": " ".join(command), "strategy": name, "mode": row["mode"], "window_s": 7.5}
    report |= {"output_throughput": 200 * FASTER[name] * factor, "steady_prefill_share": 1.0, "unfinished": 9}
    if row["mode"] == "online":
        rate = float(result_files.flags_of(command[1:])["rate"])
        report |= {"rate": rate, "rejected": 0, "window_s": 8.0}
        mean = (0.05 + 0.004 * rate**3 / FASTER[name]) * factor
        report["mean_per_token_latency_s"] = mean
        report["per_token_latency_percentiles_s"] = [mean * (0.5 + percent / 100) for percent in range(101)]
    return report


def write_everything(path, factors=(1.0,)):
    """A file with every point of every figure, each run as often as there are factors."""
    rows = figure_spec.rows_of(FIGURES.values())
    for row in rows:
        row["runs"] = {}
        for strategy in row["strategies"]:
            for factor in factors:
                done = {"command": row["args"], "wall_s": 1, "result": make_report(row, strategy, factor)}
                repeats.add_all(row["runs"], strategy, [done])
    bench_runner.write_rows(path, rows)
    return path


def main(*words):
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = figure.main(list(map(str, words)))
    return status, stdout.getvalue(), stderr.getvalue()


class Specification(unittest.TestCase):
    def test_every_figure_of_the_papers_that_one_machine_can_show(self):
        wanted = {"neo6", "neo7", "neo8", "neo9", "neo10a", "neo11", "apex6", "apex7", "apex8", "apex9"}
        self.assertEqual(set(FIGURES), wanted)
        marks = figure_data.read_marks()
        used = {panel.marks for each in FIGURES.values() for panel in each.panels if panel.marks}
        self.assertEqual(used, set(marks))
        for mark in marks.values():
            self.assertTrue(mark["place"] and mark["text"] and mark["hardware"])

    def test_all_of_them_take_less_than_ninety_minutes(self):
        def minutes(quick):
            rows = figure_spec.rows_of(FIGURES.values(), quick)
            return sum(len(row["strategies"]) * figure_spec.expected_seconds(row) for row in rows) / 60

        self.assertLess(minutes(quick=False), 90)
        self.assertLess(minutes(quick=True), 30)

    def test_figures_share_runs(self):
        rows = figure_spec.rows_of([FIGURES["neo9"], FIGURES["apex8"], FIGURES["neo9"]])
        names = [row["name"] for row in rows]
        self.assertEqual(len(set(names)), len(names))
        (row,) = [row for row in rows if row["name"] == "16 SMs, llama-3.1-8b, synthetic:in=1000,out=200"]
        self.assertEqual(row["strategies"], ["gpu-only", "asymmetric", "apex:async-cohorts=1", "auto"])
        self.assertEqual(row["args"][-5:], ["--steady-start", "--duration", "10", "--warm-up", "2.5"])

    def test_longer_windows_are_of_points_that_there_are(self):
        names = {row["name"]: row for row in figure_spec.rows_of(FIGURES.values())}
        durations_s = FIGURES["neo9"].panels[0].durations_s
        self.assertLessEqual(set(durations_s), set(names))
        for name, seconds in durations_s.items():
            words = names[name]["args"]
            self.assertEqual(words[words.index("--duration") + 1], f"{seconds:g}")
            self.assertEqual(words.count("--duration"), 1)

    def test_windows_can_be_longer(self):
        (row,) = figure_spec.rows_of([FIGURES["neo7"]], window_scale=3)
        self.assertIn("--duration 120", " ".join(row["args"]))
        self.assertIn("--warm-up 12 --cool-down 3 --deadline 15", " ".join(row["args"]))
        self.assertEqual(row["mode"], "online")

    def test_every_slice_is_named_as_one(self):
        for each in FIGURES.values():
            for panel in each.panels:
                self.assertRegex(panel.title, r"(slice of one|whole) {gpu}")
                self.assertNotRegex(panel.title, "T4|A10|H[12]00")


class Data(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def collect(self, name, index, *paths):
        return figure_data.collect(FIGURES[name].panels[index], figure_data.read_all(paths))

    def test_measured_comparisons_feed_the_figures_that_they_belong_to(self):
        data = self.collect("neo9", 2, MEASURED)
        self.assertEqual(data.xs, [45, 100, 200])
        self.assertAlmostEqual(data.ratio("asymmetric", 200).median, 1.98, 2)
        self.assertAlmostEqual(data.bound(100), 730, 0)
        lacks = [(name, x) for x in (45, 100, 200) for name in ("apex:async-cohorts=1", "auto")]
        self.assertEqual(data.missing, [*((name, 25) for name in data.panel.strategies), *lacks])
        self.assertEqual(data.kinds_of_run(), "whole runs")
        self.assertEqual(data.title(), "8-SM slice of one NVIDIA H200, Llama-2-7B")
        self.assertIn("a slice of 8 of 132 SMs", data.machines()[0])
        self.assertEqual(self.collect("neo9", 1, MEASURED).xs, [200])
        self.assertEqual(self.collect("neo6", 2, MEASURED).cells, {})

    def test_every_point_finds_its_runs_and_no_others(self):
        path = write_everything(self.folder / "all.json")
        for each in FIGURES.values():
            for index, panel in enumerate(each.panels):
                data = self.collect(each.name, index, path)
                self.assertEqual(data.missing, [], f"{each.name}, {panel.title}")
                self.assertTrue(all(len(cell.runs) == 1 for line in data.cells.values() for cell in line.values()))

    def test_a_point_takes_all_of_its_runs_from_one_file(self):
        newer = self.folder / "newer.json"
        (row,) = [row for row in figure_spec.rows_of([FIGURES["neo9"]]) if row["name"].endswith("osc:out=100")]
        runs = {name: {"command": [], "wall_s": 1, "result": make_report(row, name)} for name in ("gpu-only", "auto")}
        bench_runner.write_rows(newer, [{**row, "runs": runs}])
        data = self.collect("neo9", 2, MEASURED, newer)
        # As many strategies in both: the newer one. The others are whole runs, and stay out of this point.
        self.assertEqual([name for name in data.cells if 100 in data.cells[name]], ["gpu-only", "auto"])
        self.assertEqual([name for name in data.cells if 45 in data.cells[name]], ["gpu-only", "asymmetric"])
        self.assertEqual(data.kinds_of_run(), "whole runs and windows of 7.5 s")

    def test_doubts_are_told(self):
        path = self.folder / "all.json"
        write_everything(path)
        content = json.loads(path.read_text())
        for row in content["rows"]:
            result = row["runs"]["asymmetric"]["result"]
            result |= {"completed": 90, "failed": 6, "rejected": 4, "steady_prefill_share": 0.4}
        path.write_text(json.dumps(content))
        cell = self.collect("neo6", 2, path).cells["asymmetric"][5]
        self.assertEqual(cell.doubts(), ["90% of the requests were done in time"])
        self.assertEqual(len(self.collect("neo9", 1, path).cells["asymmetric"][200].doubts()), 2)
        self.assertEqual(self.collect("neo9", 1, path).cells["auto"][200].doubts(), [])
        cell.runs[0].report["dropped"] = 3
        self.assertEqual(cell.doubts()[-1], "3 requests were too long for it and were left out")
        # A whole run has all of its prompts, however they lay in its middle.
        self.assertIsNone(self.collect("neo9", 2, MEASURED).cells["asymmetric"][45].prefill_share)

    def test_windows_are_compared_in_balance_where_all_of_a_point_say_it(self):
        path = self.folder / "all.json"
        write_everything(path)
        content = json.loads(path.read_text())
        for row in content["rows"]:
            for name, run in row["runs"].items():
                run["result"] |= {"steady_prefill_share": 1.3 if name == "auto" else 0.9}
                run["result"]["balanced_output_throughput"] = 400.0 if name == "auto" else 190.0
        path.write_text(json.dumps(content))
        data = self.collect("neo9", 1, path)
        self.assertAlmostEqual(data.ratio("auto", 200).median, 400 / 190)
        self.assertIn("320 → 400 (**2.11x**)", figure_tables.throughput_cell(data, "auto", 200))
        self.assertEqual(data.cells["auto"][200].doubts(), [])
        for row in content["rows"]:
            row["runs"]["asymmetric"]["result"]["balanced_output_throughput"] = None
        path.write_text(json.dumps(content))
        data = self.collect("neo9", 1, path)
        self.assertAlmostEqual(data.ratio("auto", 200).median, 1.6)
        self.assertEqual(len(data.cells["auto"][200].doubts()), 1)

    def test_repeats_become_a_spread(self):
        path = write_everything(self.folder / "all.json", (0.9, 1.0, 1.1))
        data = self.collect("neo9", 1, path)
        ratio = data.ratio("auto", 200)
        self.assertAlmostEqual(ratio.median, 1.6)
        self.assertAlmostEqual(ratio.minimum, 1.44)
        self.assertIn("320 ±10.0% (**1.60x**)", figure_tables.throughput_cell(data, "auto", 200))

    def test_crossing(self):
        line = [(1, 0.2), (2, 0.4), (3, 2.4)]
        self.assertAlmostEqual(figure_data.crossing(line, 1.4), 2.5)
        self.assertIsNone(figure_data.crossing(line, 3))
        self.assertIsNone(figure_data.crossing(line[:1], 0.2))


class Tables(unittest.TestCase):
    def test_the_page_has_the_tables_of_its_results(self):
        page = REPOSITORY / "docs" / "evaluation_tables.md"
        text = page.read_text()
        filled = figure_tables.filled(text, FIGURES)
        self.assertEqual(filled, text, "run: python3 evaluation/figures/figure.py tables docs/evaluation_tables.md")
        for name in FIGURES:
            self.assertIn(f"<!-- figure {name} -->", text)

    def test_an_unknown_figure_is_named(self):
        with self.assertRaisesRegex(ValueError, "'neo5', which there is not"):
            figure_tables.filled("<!-- figure neo5 --><!-- end of figure neo5 -->", FIGURES)

    def test_each_kind_has_its_table(self):
        with tempfile.TemporaryDirectory() as folder:
            files = figure_data.read_all([write_everything(pathlib.Path(folder) / "all.json")])
        texts = {}
        for each in FIGURES.values():
            for panel in each.panels:
                data = figure_data.collect(panel, files)
                texts[panel.kind] = "\n".join(figure_tables.panel_text(data, None))
        self.assertIn("| 2 | 0.082 | 0.0746 | 0.0721 | 0.07 |", texts["load_latency"])
        self.assertIn("| median ttft | 17043.4 | 8860.3 |", texts["latency_quantiles"])
        self.assertIn("| p90 | 0.1575 | 0.1373 |", texts["latency_distribution"])
        self.assertIn("Windows of 7.5 s", texts["relative_throughput"])
        self.assertIn("auto: staggered cohorts, predicted throughput, tok/s", texts["relative_bars"])


class Drawing(unittest.TestCase):
    @unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
    def test_every_figure_is_drawn(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = write_everything(folder / "all.json", (0.97, 1.0, 1.04))
            main("draw", "all", path, "--out", folder, "--formats", "svg")
            for each in FIGURES.values():
                drawn = (folder / f"{each.name}.svg").read_text()
                self.assertIn("Not the papers' cards", drawn)
                for panel in each.panels:
                    self.assertIn(panel.title.split(",")[0].format(gpu="NVIDIA H200"), drawn)

    @unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
    def test_the_same_results_give_the_same_file(self):
        with tempfile.TemporaryDirectory() as name:
            folders = [pathlib.Path(name) / turn for turn in ("a", "b")]
            for folder in folders:
                main("draw", "neo9", MEASURED, "--out", folder)
            for kind in ("svg", "png"):
                first, second = ((folder / f"neo9.{kind}").read_bytes() for folder in folders)
                self.assertEqual(first, second)

    @unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
    def test_a_figure_without_results_is_passed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            _, _, stderr = main("draw", "neo6", MEASURED, "--out", folder)
            self.assertIn("neo6: nothing in", stderr)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
            with self.assertRaisesRegex(SystemExit, "nowhere.json"):
                main("draw", "neo9", "nowhere.json")

    @unittest.skipIf(HAS_MATPLOTLIB, "matplotlib is installed")
    def test_without_matplotlib_it_says_what_to_install(self):
        with self.assertRaises(SystemExit) as raised:
            main("draw", "neo9", MEASURED)
        self.assertIn("evaluation/figures/requirements.txt", raised.exception.code)


if __name__ == "__main__":
    sys.exit(unittest.main())
