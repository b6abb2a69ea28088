#!/usr/bin/env python3
"""Tests of stage_budgets.py."""

import pathlib
import tempfile
import unittest

import stage_budgets


class StageBudgetsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write_parts(self, yardstick, **parts):
        (self.folder / "yardstick").write_text(yardstick)
        for name, line in parts.items():
            (self.folder / name.replace("_", ".")).write_text(line)

    def table(self, budgets, reference=2.0):
        return stage_budgets.table(self.folder, budgets, reference)

    def test_parts_of_a_stage_add_up(self):
        self.write_parts("2.0\n", release_compile="ok 0 100 190.0", release_test="ok 90 150 60.5")
        lines, over = self.table({"release": 250.0})
        self.assertEqual(over, [])
        self.assertEqual(lines[1].split(), ["release", "ok", "160", "250", "250", "1.00"])

    def test_more_than_its_budget_fails(self):
        self.write_parts("2.0\n", lint_test="ok 0 9 131.0", tidy_compile="ok 0 9 129.0")
        lines, over = self.table({"lint": 100.0, "tidy": 100.0})
        self.assertEqual(over, ["lint"])
        self.assertIn("over 1.3", next(line for line in lines if line.startswith("lint")))

    def test_a_slow_machine_has_more_time(self):
        self.write_parts("2.0\n4.0\n", lint_test="ok 0 9 240.0")
        self.assertEqual(self.table({"lint": 100.0})[1], [])
        self.write_parts("2.0\n", lint_test="ok 0 9 240.0")
        self.assertEqual(self.table({"lint": 100.0})[1], ["lint"])

    def test_a_failed_part_shows(self):
        self.write_parts("2.0\n", debug_compile="ok 0 9 1.0", debug_test="FAILED 9 10 1.0")
        self.assertEqual(self.table({"debug": 100.0})[0][1].split()[1], "FAILED")

    def test_a_stage_without_budget_is_shown(self):
        self.write_parts("2.0\n", soak_test="ok 0 600 1000.0")
        lines, over = self.table({})
        self.assertEqual(over, [])
        self.assertEqual(lines[1].split(), ["soak", "ok", "600", "1000"])

    def test_bad_budgets_are_named(self):
        path = self.folder / "budgets.txt"
        for text in ("lint\n", "lint x\n", "yardstick 2\nlint 1\nlint 2\n", "yardstick 0\n", "yardstick 2 3\n"):
            path.write_text(text)
            with self.assertRaisesRegex(stage_budgets.BudgetError, "line"):
                stage_budgets.read_budgets(path)
        path.write_text("lint 5\n")
        with self.assertRaisesRegex(stage_budgets.BudgetError, "no line 'yardstick'"):
            stage_budgets.read_budgets(path)

    def test_every_stage_that_runs_each_time_has_a_budget(self):
        budgets, _ = stage_budgets.read_budgets()
        script = (stage_budgets.BUDGETS.parent / "test.sh").read_text()
        stages = next(line for line in script.splitlines() if line.startswith("all_stages=("))
        self.assertEqual(sorted(budgets), sorted(stages[len("all_stages=(") : -1].split()))


if __name__ == "__main__":
    unittest.main()
