#!/usr/bin/env python3
"""Tests of condense_results.py: what is checked in is condensed, and nothing that is read from results gets lost.

The results are complete reports as the program wrote them (tests/fixtures/bench_reports.json) with other commands and
numbers. Drawing needs matplotlib.
"""

import contextlib
import copy
import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "figures"))

import agents_table  # noqa: E402
import bench_runner  # noqa: E402
import compare_results  # noqa: E402
import compare_strategies  # noqa: E402
import condense_results  # noqa: E402
import figure  # noqa: E402
import figure_spec  # noqa: E402
import figure_tables  # noqa: E402
import readme_gain  # noqa: E402
import repeats  # noqa: E402
import result_files  # noqa: E402

RESULTS = FOLDER / "results"
REPORTS = json.loads((FOLDER.parent / "tests" / "fixtures" / "bench_reports.json").read_text())
FIGURES = figure_spec.read_figures()
TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def shaken(value, numbers):
    """The report with every float another one, of all digits."""
    if isinstance(value, dict):
        return {key: shaken(each, numbers) for key, each in value.items()}
    if isinstance(value, list):
        return [shaken(each, numbers) for each in value]
    return value * numbers.uniform(0.9, 1.1) if isinstance(value, float) else value


def write_everything(path, num_repeats=2):
    """A complete file with every point of every figure."""
    numbers = random.Random(7)
    rows = figure_spec.rows_of(FIGURES.values())
    for row in rows:
        row["runs"] = {}
        for strategy in row["strategies"]:
            command = bench_runner.bench_command("build/tandem", row["mode"], row["args"], strategy)
            for _ in range(num_repeats):
                report = shaken(REPORTS[row["mode"]], numbers)
                report |= {"command": " ".join([*command, "--json", "x"]), "strategy": strategy.split(":")[0]}
                repeats.add_all(row["runs"], strategy, [{"command": command, "wall_s": 9.5, "result": report}])
    bench_runner.write_rows(path, rows)
    return path


def quietly(call, *words):
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        call(list(map(str, words)))
    return stdout.getvalue()


class CheckedIn(unittest.TestCase):
    def test_results_are_condensed(self):
        for path in sorted(RESULTS.glob("*.json")):
            with self.subTest(path.name):
                text = path.read_text()
                again = condense_results.text_of(condense_results.condense(json.loads(text)))
                self.assertEqual(again, text, f"run: python3 evaluation/condense_results.py {path}")

    def test_lines_are_short_enough_to_compare(self):
        for path in sorted(RESULTS.glob("*.json")):
            self.assertLess(max(map(len, path.read_text().splitlines())), 4000, path.name)


class NothingReadIsLost(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def condensed(self, path):
        """A copy of the file, condensed, with the same name."""
        copied = self.folder / "condensed" / path.name
        bench_runner.replace_file(copied, path.read_text())
        quietly(condense_results.main, copied)
        return copied

    def test_tables_of_the_figures(self):
        complete = write_everything(self.folder / "all.json")
        condensed = self.condensed(complete)
        self.assertLess(condensed.stat().st_size, complete.stat().st_size / 5)
        for each in FIGURES.values():
            texts = []
            for path in (complete, condensed):
                each.results = [path]
                texts.append(figure_tables.figure_text(each))
            self.assertEqual(*texts)
            self.assertNotIn("not measured", texts[0])

    @unittest.skipUnless(HAS_MATPLOTLIB, "drawing needs matplotlib")
    def test_figures_to_the_byte(self):
        complete = write_everything(self.folder / "all.json")
        pictures = {}
        for path in (complete, self.condensed(complete)):
            out = self.folder / f"drawn{len(pictures)}"
            quietly(figure.main, "draw", "all", path, "--out", out, "--formats", "svg")
            pictures[path] = {picture.name: picture.read_bytes() for picture in out.glob("*.svg")}
        self.assertEqual(len(pictures[complete]), len(FIGURES))
        self.assertEqual(*pictures.values())

    def test_tables_of_a_comparison(self):
        complete = write_everything(self.folder / "all.json")
        tables = []
        for path in (complete, self.condensed(complete)):
            rows = result_files.read_content(path)["rows"]
            tables.append([compare_strategies.format_table(row, row["runs"]) for row in rows])
        for before, after in zip(*tables, strict=True):
            self.assertEqual(before, after)

    def test_a_comparison_finds_no_difference(self):
        complete = write_everything(self.folder / "all.json")
        text = quietly(compare_results.main, complete, self.condensed(complete))
        self.assertGreater(text.count("| output tok/s |"), 50)
        for line in text.splitlines():
            self.assertNotRegex(line, "differs|has no run of")
            if "%" in line and line.startswith("|"):
                self.assertRegex(line, r"[+-]0\.0%")

    def test_gains_of_the_readme(self):
        case = readme_gain.Case("a group", "some.json", "the row", 200)
        numbers, runs = random.Random(1), {}
        for strategy in ("gpu-only", "auto"):
            command = bench_runner.bench_command("tandem", "offline", ["--dummy", "tiny"], strategy)
            report = shaken(REPORTS["offline"], numbers) | {"command": " ".join(command), "strategy": strategy}
            runs[strategy] = {"command": command, "wall_s": 1, "result": report}
        path = self.folder / case.file
        path.write_text(json.dumps({"rows": [{"name": case.row, "args": [], "runs": runs}]}))
        self.assertEqual(
            readme_gain.read_gain(case, self.folder), readme_gain.read_gain(case, self.condensed(path).parent)
        )

    def test_records_of_a_kernel(self):
        case = {"dtype": "bf16", "context": 512, "cpu": "a CPU", "share": 0.123456789012, "kernel_gbps": 123.4567891}
        content = [case, {**case, "context": 1024, "share": 0.2345678901234}, {**case, "context": 64, "torch": [1.0]}]
        condensed = condense_results.condense(content)
        self.assertEqual(condensed["same"], {"dtype": "bf16", "cpu": "a CPU", "kernel_gbps": 123.45679})
        expected = [{**each, "kernel_gbps": 123.45679} for each in content]
        self.assertEqual(result_files.expand(condensed), expected)

    def test_what_is_of_no_known_kind_keeps_all_but_digits(self):
        decode = [{"batch": batch, "us": 1234.567891} for batch in range(40)]
        content = {"decode": decode, "note": "é", "nothing": None}
        text = condense_results.text_of(condense_results.condense(content))
        expected = {**content, "decode": [{"batch": batch, "us": 1234.5679} for batch in range(40)]}
        self.assertEqual(json.loads(text), expected)
        self.assertIn('\n{"batch":7,"us":1234.5679},\n', text)


class Condensing(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def make_rows(self):
        path = write_everything(self.folder / "all.json", 1)
        return json.loads(path.read_text())

    def test_again_changes_nothing(self):
        content = self.make_rows()
        once = condense_results.text_of(condense_results.condense(content))
        self.assertEqual(condense_results.text_of(condense_results.condense(json.loads(once))), once)
        only = content["rows"][0]["name"]
        few = condense_results.condense(json.loads(once), [only])
        self.assertEqual([row["name"] for row in few["rows"]], [only])
        self.assertEqual(condense_results.condense(few), few)

    def test_commands_survive(self):
        content = self.make_rows()
        row = content["rows"][0]
        strategy = next(iter(row["runs"]))
        # A strategy that was run in another way than the others, in a file of `tandem bench compare` beside that.
        odd = copy.deepcopy(row["runs"][strategy])
        odd["result"]["command"] += " --cpu-threads 3 --max-itl-ms 9"
        row["runs"] = {**row["runs"], "async:async-cohorts=1": odd}
        for entry in content["rows"][1]["runs"].values():
            entry["ran_as"] = "compare"
            entry["result"]["command"] = "tandem bench compare --strategies a,b --workload x"
        flags = []
        for each in (content, condense_results.condense(content)):
            (self.folder / "x.json").write_text(json.dumps(each))
            flags.append([run.flags for run in result_files.read_runs(self.folder / "x.json")])
            for of_run in flags[-1]:
                of_run.pop("json", None)
        self.assertEqual(*flags)
        self.assertIn("3", [of_run.get("cpu-threads") for of_run in flags[1]])

    def test_repeats_of_other_work_are_refused(self):
        path = write_everything(self.folder / "all.json")
        content = json.loads(path.read_text())
        content["rows"][0]["runs"]["gpu-only"]["repeats"][1]["result"]["command"] += " --cpu-threads 3"
        with self.assertRaisesRegex(ValueError, "the runs of gpu-only at '.*' have not one command"):
            condense_results.condense(content)

    def test_failed_runs_are_left_out(self):
        content = self.make_rows()
        rows = content["rows"]
        rows[0]["runs"] = {"gpu-only": {"command": ["tandem", "bench", "offline", "--strategy", "x"], "error": "e"}}
        condensed = condense_results.condense(content)
        self.assertEqual([row["name"] for row in condensed["rows"]], [row["name"] for row in rows[1:]])

    def test_what_is_no_json_is_named_and_left_alone(self):
        path = self.folder / "bad.json"
        path.write_text("{")
        with self.assertRaisesRegex(SystemExit, "bad.json"):
            condense_results.main([str(path)])
        self.assertEqual(path.read_text(), "{")

    @unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
    def test_a_report_as_the_program_writes_it_today(self):
        words = "--dummy tiny --gpu-kv-cache 2048tok --cpu-kv-cache 8192tok --workload synthetic:in=20,out=5".split()
        row = {"name": "tiny", "args": [*words, "--num-requests", "9"], "runs": {}}
        for strategy in ("gpu-only", "asymmetric"):
            command = bench_runner.bench_command(TANDEM, "offline", row["args"], strategy)
            row["runs"][strategy] = bench_runner.run(command, 60)
        report = row["runs"]["asymmetric"]["result"]
        # The fields that the condenser speaks of are those of the report, but for what only other runs have.
        known = [name for name in condense_results.FIELDS if name.split(".")[0] in report]
        missing = set(condense_results.FIELDS) - set(known)
        missing -= set(agents_table.FIELDS)
        self.assertEqual(missing, {"arrivals", "rate", "rejected", "share", "read_gbps"})
        condensed = result_files.expand(condense_results.condense({"rows": [row]}))["rows"][0]
        # A number that was measured may lie where the digits that are left out decide the last one of the table.
        complete = condense_results.rounded(row)
        tables = [compare_strategies.format_table(each, each["runs"]) for each in (complete, condensed)]
        self.assertEqual(*tables)


if __name__ == "__main__":
    sys.exit(unittest.main())
