#!/usr/bin/env python3
"""Tests of check_papers.py: a good table passes, and every kind of bad row fails with a message that says where."""

import unittest

import check_papers
import checking

HEAD = "| claim | where | what we have | verdict | shown by |\n|---|---|---|---|---|\n"
ROW = "| gains 26 % | 5.4 | 1.02x, `planning/a.cc` | contradicted | `load.json`, [figure](evaluation.md) |\n"
NEO = "# Papers\n\n| a | b |\n|---|---|\n| other | table |\n\n## NEO\n\n1 rows: 1 contradicted.\n\n" + HEAD + ROW
APEX = (
    "\n## APEX\n\n2 rows: 1 shown, 1 later.\n\n"
    + HEAD
    + "| (5) | 3.2 | `--flag`, a \\| b | shown | `ApexModel.Is*`, `PaperTest.test_it`, "
    "`all_test --gtest_filter=Apex*`, `apex.txt: algorithm 1`, `planning/` |\n"
    + "| LiveBench | 5.1 | nothing | later | its lengths |\n"
)
GOOD = {
    "docs/papers.md": NEO + APEX,
    "src/planning/a.cc": "",
    "src/planning/a_test.cc": "TEST_F(ApexModel, IsThat) {\n",
    "src/planning/CMakeLists.txt": "tandem_test(all\n  SOURCES a_test.cc)\n",
    "scripts/paper_test.py": "class PaperTest(Case):\n    def test_it(self):\n",
    "evaluation/results/load.json": "",
    "tests/scenarios/apex.txt": "strategy apex\n\nscenario algorithm 1: no cpu decodes\n",
}


class CheckPapersTest(checking.TreeTest):
    checker = check_papers
    good = GOOD

    def errors_of_row(self, row):
        """Of a page whose only row of NEO is this one, whatever it counts."""
        found = self.errors({"docs/papers.md": NEO.replace(ROW, row + "\n") + APEX})
        return [error for error in found if "does not say" not in error]

    def test_a_good_page_passes(self):
        self.assertEqual(self.errors({}), [])

    def test_program_says_what_is_wrong_and_fails(self):
        run = self.run_program({"evaluation/results/load.json": None})
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr, "docs/papers.md:13: no file `load.json`\n")

    def test_a_page_that_is_missing(self):
        self.assertEqual(self.errors({"docs/papers.md": None}), ["docs/papers.md is missing"])

    def test_cells_that_are_missing_or_empty(self):
        errors = self.errors_of_row("| gain | 5.4 | 1.02x | later |")
        self.assertEqual(errors[0], "docs/papers.md:13: 4 cells, 5 wanted: gain | 5.4 | 1.02x | later")
        for i, column in enumerate(check_papers.COLUMNS):
            with self.subTest(column):
                cells = ["gain", "5.4", "1.02x", "shown", "`load.json`"]
                cells[i] = " "
                errors = self.errors_of_row(f"| {' | '.join(cells)} |")
                self.assertEqual(errors, [f"docs/papers.md:13: nothing in '{column}': {cells[0].strip()}"])

    def test_a_verdict_that_there_is_not(self):
        errors = self.errors_of_row("| gain | 5.4 | 1.02x | nearly | `load.json` |")
        self.assertEqual(
            errors,
            [
                "docs/papers.md:13: no verdict 'nearly': "
                "shown, beaten, contradicted, differs, later, not applicable"
            ],
        )

    def test_verdicts_that_nothing_shows(self):
        for verdict in ("shown", "beaten", "contradicted", "differs"):
            with self.subTest(verdict):
                errors = self.errors_of_row(f"| gain | 5.4 | 1.02x | {verdict} | we saw it |")
                wanted = f"docs/papers.md:13: '{verdict}' by no file, test, scenario or link: gain"
                self.assertEqual(errors, [wanted])
        for verdict in ("later", "not applicable"):
            with self.subTest(verdict):
                self.assertEqual(self.errors_of_row(f"| gain | 5.4 | 1.02x | {verdict} | two GPUs |"), [])

    def test_names_of_nothing(self):
        for name, wrong in {
            "none.json": "no file `none.json`",
            "docs/none.md": "no file `docs/none.md`",
            "none/": "no file `none/`",
            "ApexModel.IsNot": "no test `ApexModel.IsNot`",
            "PaperTest.test_that": "no test `PaperTest.test_that`",
            "none_test --gtest_filter=Apex*": "no test `none_test --gtest_filter=Apex*`",
            "all_test --gtest_filter=None*": "no test `all_test --gtest_filter=None*`",
            "apex.txt: algorithm 2": "no scenario `apex.txt: algorithm 2`",
            "none.txt: algorithm 1": "no scenario `none.txt: algorithm 1`",
            "measure neo9": "`measure neo9` is neither a file nor a test nor a scenario",
        }.items():
            with self.subTest(name):
                errors = self.errors_of_row(f"| gain | 5.4 | 1.02x | later | `load.json`, `{name}` |")
                self.assertEqual(errors, [f"docs/papers.md:13: {wrong}"])

    def test_files_of_what_we_have(self):
        errors = self.errors_of_row("| gain | 5.4 | `--flag`, `planning/b.cc` | shown | `load.json` |")
        self.assertEqual(errors, ["docs/papers.md:13: no file `planning/b.cc`"])

    def test_columns_of_another_table(self):
        errors = self.errors({"docs/papers.md": NEO.replace("| verdict |", "| end |") + APEX})
        self.assertEqual(errors[0], "docs/papers.md:11: the columns are claim | where | what we have | verdict | shown by")

    def test_a_section_without_rows(self):
        errors = self.errors({"docs/papers.md": NEO})
        self.assertEqual(errors, ["docs/papers.md: no rows below '## APEX'"])

    def test_a_count_that_is_not_so(self):
        errors = self.errors({"docs/papers.md": NEO.replace("1 rows", "2 rows") + APEX})
        self.assertEqual(errors, ["docs/papers.md: '## NEO' does not say '1 rows: 1 contradicted.'"])


if __name__ == "__main__":
    unittest.main()
