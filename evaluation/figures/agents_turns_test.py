#!/usr/bin/env python3
"""Tests of agents_turns.py. Drawing needs matplotlib."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

import agents_turns

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from agents_testing import turns_row  # noqa: E402

GPU_ONLY, AUTO, UNCACHED = agents_turns.agents_table.TANDEM_SIDES


class AgentsTurnsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "agents.json"
        rows = [
            turns_row(3, {GPU_ONLY: {"p99_s": 12, "late": 5}, AUTO: {"p99_s": 2}}),
            turns_row(1, {GPU_ONLY: {"p99_s": 4}, AUTO: {"p99_s": 1.5, "per_minute": 88}}),
            {"name": "sustained", "args": [], "runs": {}},
        ]
        self.path.write_text(json.dumps({"rows": rows}))

    def test_points_are_in_order_and_say_what_is_a_bound(self):
        points = agents_turns.read_machine(self.path).points
        self.assertEqual(list(points), [GPU_ONLY, AUTO])
        self.assertEqual([point.times for point in points[AUTO]], [1, 3])
        self.assertEqual([point.p99_s for point in points[AUTO]], [1.5, 2])
        self.assertEqual(points[AUTO][0].turns_per_minute, 88)
        # Five of a hundred were cut off 20 s after the end.
        self.assertEqual([(point.p99_s, point.exact) for point in points[GPU_ONLY]], [(4, True), (20, False)])

    def test_nothing_to_draw_is_told(self):
        self.path.write_text(json.dumps({"rows": []}))
        with self.assertRaisesRegex(ValueError, "no turns of agents"):
            agents_turns.read_machine(self.path)

    def test_a_title_names_slice_and_tier(self):
        self.assertEqual(agents_turns.title_of(["serve", "--gpu-kv-cache", "26400tok"]), "whole GPU, gpu tier of 26,400 tokens")
        self.assertEqual(agents_turns.title_of(["--gpu-sm-limit", "16", "--gpu-kv-cache", "2GiB"]), "16 SMs")

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "drawing needs matplotlib")
    def test_drawing(self):
        picture = self.path.with_suffix(".svg")
        machine = agents_turns.read_machine(self.path)
        agents_turns.draw([machine, machine], ["p99", "rate"], picture)
        text = picture.read_text()
        for said in ("auto, both tiers", "gpu-only with the cache", "finished turns a minute", "Hollow"):
            self.assertIn(said, text)
        self.assertNotIn("without a cache", text)


if __name__ == "__main__":
    unittest.main()
