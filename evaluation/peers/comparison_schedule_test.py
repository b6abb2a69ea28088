#!/usr/bin/env python3
"""Tests of comparison_schedule.py and comparison_results.py: which runs a call makes, and what the next one finds."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import comparison_report  # noqa: E402
from comparison_results import Results  # noqa: E402
from comparison_schedule import CallTime, Schedule  # noqa: E402
from comparison_testing import WORKS, make_rows, offline_row  # noqa: E402


class Machine:
    """A clock, and sides that take 5 seconds to start and 10 for each point."""

    def __init__(self, fails=(), start_s=5.0, point_s=10.0):
        self.now_s = 0.0
        self.ran = []  # (row, variant, keys)
        self.fails = set(fails)
        self._start_s, self._point_s = start_s, point_s

    def measure(self, row, variant, keys, seconds):
        self.ran.append((row.name, variant.name, tuple(keys)))
        points, left_s = {}, seconds - self._start_s
        for key in keys:
            if variant.name in self.fails:
                points[key] = {"error": f"{variant.name} has no memory"}
            elif left_s < self._point_s:
                points[key] = {"error": "not done"}
            else:
                points[key] = {"wall_s": self._point_s, "result": {"output_throughput": 100.0}}
                left_s -= self._point_s
        took_s = self._start_s + self._point_s * len(keys)
        self.now_s += min(took_s, seconds)
        return {"start_s": self._start_s, "engine": {}, "points": points}

    def call(self, results, rows, repeat, seconds):
        """(whether nothing failed, points left over, what ran)."""
        self.ran = []
        call_time = CallTime(seconds, lambda: self.now_s)
        results.begin_call({"date": "", "seconds": None})
        schedule = Schedule(results, rows, repeat, call_time, self.measure, len(results.calls) - 1, lambda line: None)
        succeeded = schedule.run()
        return succeeded, schedule.left_over, self.ran


class Order(unittest.TestCase):
    def test_sides_alternate_and_rows_have_a_round_before_any_has_a_second(self):
        rows = make_rows(offline_row("a"), offline_row("b"))
        succeeded, left_over, ran = Machine().call(Results(), rows, 3, 1000)
        self.assertTrue(succeeded)
        self.assertEqual(left_over, 0)
        names = [(row, variant) for row, variant, _ in ran]
        there, back = ["vLLM", "Tandem"], ["Tandem", "vLLM"]
        expected = [(row, variant) for order in (there, back, there) for row in "ab" for variant in order]
        self.assertEqual(names, expected)

    def test_a_row_may_have_fewer_rounds(self):
        rows = make_rows(offline_row("a", repeat=1), offline_row("b"))
        _, _, ran = Machine().call(Results(), rows, 2, 1000)
        self.assertEqual([row for row, _, _ in ran], ["a", "a", "b", "b", "b", "b"])

    def test_points_share_a_start(self):
        _, _, ran = Machine().call(Results(), make_rows(offline_row("a", WORKS)), 1, 1000)
        self.assertEqual(ran[0], ("a", "vLLM", ("osc x 10", "azure-conv x 10")))
        self.assertEqual(len(ran), 2)

    def test_of_a_row_both_sides_have_time_or_neither(self):
        rows = make_rows(offline_row("a", WORKS))
        results, machine = Results(), Machine()
        # A point of both takes 30 seconds, two take 50.
        succeeded, left_over, ran = machine.call(results, rows, 1, 45)
        self.assertTrue(succeeded)
        self.assertEqual([keys for _, _, keys in ran], [("osc x 10",), ("osc x 10",)])
        self.assertEqual(left_over, 2)
        _, left_over, ran = machine.call(results, rows, 1, 45)
        self.assertEqual([keys for _, _, keys in ran], [("azure-conv x 10",), ("azure-conv x 10",)])
        self.assertEqual(left_over, 0)

    def test_what_does_not_fit_leaves_room_for_what_does(self):
        rows = make_rows(offline_row("long", point_s=50), offline_row("short"))
        _, left_over, ran = Machine().call(Results(), rows, 1, 111)
        self.assertEqual([row for row, _, _ in ran], ["long", "long", "short", "short"])
        _, left_over, ran = Machine().call(
            Results(), make_rows(offline_row("short"), offline_row("long", point_s=40)), 1, 100
        )
        self.assertEqual([row for row, _, _ in ran], ["short", "short"])
        self.assertEqual(left_over, 2)

    def test_sides_that_fit_into_no_call_together_run_alone(self):
        rows = make_rows(offline_row("a", point_s=60))
        results, machine = Results(), Machine(point_s=60.0)
        _, left_over, ran = machine.call(results, rows, 1, 90)
        self.assertEqual([variant for _, variant, _ in ran], ["vLLM"])
        self.assertEqual(left_over, 1)
        _, left_over, ran = machine.call(results, rows, 1, 90)
        self.assertEqual([variant for _, variant, _ in ran], ["Tandem"])
        self.assertEqual(left_over, 0)

    def test_estimates_follow_what_was_measured(self):
        rows = make_rows(offline_row("a"))
        results, machine = Results(), Machine(start_s=5.0, point_s=100.0)
        machine.call(results, rows, 1, 1000)
        # The plan says 30 seconds for both; they took 210. The second round fits, and the third would by the plan.
        _, left_over, ran = machine.call(results, rows, 3, 300)
        self.assertEqual(len(ran), 2)
        self.assertEqual(left_over, 2)

    def test_a_run_that_the_end_of_the_call_cuts_is_no_failure(self):
        rows = make_rows(offline_row("a"))
        results, machine = Results(), Machine(point_s=30.0)
        succeeded, left_over, ran = machine.call(results, rows, 1, 50)
        self.assertTrue(succeeded)
        self.assertEqual(left_over, 1)
        self.assertEqual(len(ran), 2)
        self.assertEqual(comparison_report.errors_of(results.rows[0], "vLLM", "osc x 10"), [])
        _, left_over, ran = machine.call(results, rows, 1, 50)
        self.assertEqual([variant for _, variant, _ in ran], ["Tandem"])
        self.assertEqual(left_over, 0)

    def test_one_side_that_fails_does_not_stop_the_other(self):
        rows = make_rows(offline_row("a"), offline_row("b"))
        results, machine = Results(), Machine(fails=["vLLM"])
        succeeded, left_over, ran = machine.call(results, rows, 2, 1000)
        self.assertFalse(succeeded)
        self.assertEqual(left_over, 0)
        # It is tried once, not again in the second round.
        self.assertEqual(sum(variant == "vLLM" for _, variant, _ in ran), 2)
        self.assertEqual(sum(variant == "Tandem" for _, variant, _ in ran), 4)
        table = comparison_report.tables(json.loads(json.dumps({"calls": [], "rows": results.rows})), 50)
        self.assertIn("- vLLM, osc x 10: vLLM has no memory", table)


class Resume(unittest.TestCase):
    def resumed(self, folder, rows):
        results = Results(folder / "out.json", resume=True)
        results.take_over(rows)
        return results

    def test_goes_on_where_the_file_ends(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = make_rows(offline_row("a"), offline_row("b"))
            machine = Machine()
            _, left_over, _ = machine.call(Results(folder / "out.json"), rows, 2, 70)
            self.assertEqual(left_over, 4)
            results = self.resumed(folder, rows)
            _, left_over, ran = machine.call(results, rows, 2, 100)
            self.assertEqual([variant for _, variant, _ in ran], ["Tandem", "vLLM"] * 2)
            self.assertEqual(left_over, 0)
            content = json.loads((folder / "out.json").read_text())
            self.assertEqual(len(content["calls"]), 2)
            runs = content["rows"][0]["variants"]["vLLM"]["runs"]
            self.assertEqual([(run["call"], run["round"]) for run in runs], [(0, 0), (1, 1)])

    def test_what_is_measured_otherwise_now_is_left_behind_and_the_rest_stays(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = make_rows(offline_row("a", WORKS), offline_row("b"), offline_row("c"))
            Machine().call(Results(folder / "out.json"), rows, 1, 1000)
            other_work = [{**WORKS[0], "name": "osc x 10", "offset": 5}, WORKS[1]]
            rows = make_rows(
                offline_row("a", other_work),
                offline_row("b", gpu_kv_tokens=100),
                offline_row("c", tandem={"Tandem": "--seed 1"}),
            )
            _, _, ran = Machine().call(self.resumed(folder, rows), rows, 1, 1000)
            again = [("a", side, ("osc x 10",)) for side in ("vLLM", "Tandem")]
            again += [("b", side, ("osc x 10",)) for side in ("vLLM", "Tandem")] + [("c", "Tandem", ("osc x 10",))]
            self.assertEqual(ran, again)

    def test_failures_are_tried_again_by_the_next_call(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = make_rows(offline_row("a"))
            Machine(fails=["Tandem"]).call(Results(folder / "out.json"), rows, 1, 1000)
            succeeded, _, ran = Machine().call(self.resumed(folder, rows), rows, 1, 1000)
            self.assertTrue(succeeded)
            self.assertEqual([variant for _, variant, _ in ran], ["Tandem"])

    def test_a_row_that_is_not_wanted_now_stays(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            Machine().call(Results(folder / "out.json"), make_rows(offline_row("a")), 1, 1000)
            rows = make_rows(offline_row("b"))
            Machine().call(self.resumed(folder, rows), rows, 1, 1000)
            content = json.loads((folder / "out.json").read_text())
            self.assertEqual([row["name"] for row in content["rows"]], ["a", "b"])


if __name__ == "__main__":
    sys.exit(unittest.main())
