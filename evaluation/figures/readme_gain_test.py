#!/usr/bin/env python3
"""Tests of readme_gain.py with the checked-in results and small ones. Drawing needs matplotlib."""

import dataclasses
import importlib.util
import json
import pathlib
import tempfile
import unittest

import readme_gain

CASE = readme_gain.Case("a group", "some.json", "the row", 200)


def report(throughput, bound):
    return {"result": {readme_gain.THROUGHPUT: throughput, readme_gain.BOUND: bound}}


class ReadmeGainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, runs):
        rows = [{"name": "another", "runs": {}}, {"name": CASE.row, "runs": runs}]
        (self.folder / CASE.file).write_text(json.dumps({"rows": rows}))

    def test_gain_is_over_gpu_only_and_the_bound_is_that_of_the_hybrid(self):
        self.write({"gpu-only": report(100, 110), "auto": report(150, 200)})
        gain = readme_gain.read_gain(CASE, self.folder)
        self.assertEqual((gain.gpu_only, gain.hybrid, gain.bound), (100, 150, 200))
        self.assertEqual((gain.ratio, gain.bound_ratio), (1.5, 2))

    def test_repeats_are_their_median(self):
        hybrid = {"repeats": [report(value, 200) for value in (150, 170, 160)]}
        self.write({"gpu-only": report(100, 110), "auto": hybrid})
        self.assertEqual(readme_gain.read_gain(CASE, self.folder).hybrid, 160)

    def test_records_of_a_call_are_the_repeats(self):
        fields = ["call", "row", "strategy", readme_gain.THROUGHPUT, readme_gain.BOUND]
        records = [
            [2, CASE.row, "gpu-only", 100, 110],
            *([2, CASE.row, "auto", value, 200] for value in (150, 170, 160)),
            [1, CASE.row, "auto", 900, 200],
            [2, "another", "auto", 900, 200],
        ]
        (self.folder / CASE.file).write_text(json.dumps({"same": {}, "fields": fields, "records": records}))
        gain = readme_gain.read_gain(dataclasses.replace(CASE, call=2), self.folder)
        self.assertEqual((gain.gpu_only, gain.hybrid, gain.bound), (100, 160, 200))
        with self.assertRaisesRegex(ValueError, "some.json: no row 'the row'"):
            readme_gain.read_gain(dataclasses.replace(CASE, call=3), self.folder)

    def test_what_is_missing_is_named(self):
        self.write({"gpu-only": report(100, 110)})
        with self.assertRaisesRegex(ValueError, "some.json: 'the row', auto: no balanced_output_throughput"):
            readme_gain.read_gain(CASE, self.folder)
        self.write({"gpu-only": report(100, 110), "auto": report(None, 200)})
        with self.assertRaisesRegex(ValueError, "auto: no balanced_output_throughput"):
            readme_gain.read_gain(CASE, self.folder)
        (self.folder / CASE.file).write_text('{"rows": []}')
        with self.assertRaisesRegex(ValueError, "some.json: no row 'the row'"):
            readme_gain.read_gain(CASE, self.folder)

    def test_the_page_has_the_table_of_the_results(self):
        table = readme_gain.to_table([readme_gain.read_gain(case) for case in readme_gain.CASES])
        page = (readme_gain.REPOSITORY / "docs" / "performance.md").read_text()
        self.assertIn(table, page, "run: python3 evaluation/figures/readme_gain.py --table")

    def test_no_case_passes_its_bound(self):
        for case in readme_gain.CASES:
            gain = readme_gain.read_gain(case)
            self.assertLess(gain.ratio, gain.bound_ratio, case)

    def test_the_readme_begins_with_the_largest_gain(self):
        ratios = [gain.ratio for gain in readme_gain.read_readme_gains()]
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertGreater(len(ratios), 1)

    def expect_numbers_of_the_results(self, picture):
        text = picture.read_text()
        for gain in readme_gain.read_readme_gains():
            self.assertIn(f">{gain.ratio:.2f}x<", text)
            self.assertIn(f">at most {gain.bound_ratio:.2f}x<", text)

    def test_the_checked_in_picture_is_not_stale(self):
        self.expect_numbers_of_the_results(readme_gain.REPOSITORY / "docs" / "img" / "readme_gain.svg")

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "drawing needs matplotlib")
    def test_drawing(self):
        picture = self.folder / "gain.svg"
        readme_gain.draw(readme_gain.read_readme_gains(), picture)
        self.expect_numbers_of_the_results(picture)


if __name__ == "__main__":
    unittest.main()
