#!/usr/bin/env python3
"""Tests of check_docs.py: good pages pass, and every kind of bad page fails with a message that says where."""

import unittest

import check_docs
import checking

GOOD = {
    "README.md": "# Title\n\n[a page](docs/page.md#what-it-is), [here](#title), [there](https://example.org/x.md)\n",
    "CONTRIBUTING.md": "`src/base/` has tests, `src/*/*_test.cc`; write `src/base/my_file.cc`, read `docs/`.\n",
    "docs/page.md": '# Page\n\n## What `it` is?\n\n![picture](img/a.svg "title") and `src/base/a.h`\n\n'
    "## Same\n\n## Same\n\n[2](#same-1)\n",
    "docs/performance.md": "",
    "docs/evaluation_tables.md": "",
    "docs/img/a.svg": "",
    "docs/lab_notes/README.md": "[up](../page.md)\n" + "long ago\n" * 1000,
    "src/base/a.h": "",
    "src/base/a_test.cc": "",
}


class CheckDocsTest(checking.TreeTest):
    checker = check_docs
    good = GOOD

    def test_good_pages_pass(self):
        self.assertEqual(self.errors({}), [])

    def test_program_says_what_is_wrong_and_fails(self):
        run = self.run_program({"docs/page.md": None})
        self.assertEqual(run.returncode, 1)
        self.assertIn("README.md:3: link 'docs/page.md#what-it-is': there is no docs/page.md", run.stderr)

    def test_link_to_no_file(self):
        errors = self.errors({"docs/lab_notes/README.md": "one\n[a](page.md)\n"})
        self.assertEqual(errors, ["docs/lab_notes/README.md:2: link 'page.md': there is no page.md"])

    def test_picture_that_is_missing(self):
        errors = self.errors({"docs/img/a.svg": None})
        self.assertEqual(errors, ["docs/page.md:5: link 'img/a.svg': there is no img/a.svg"])

    def test_link_to_no_heading(self):
        errors = self.errors({"CONTRIBUTING.md": "[a](docs/page.md#what)\n[b](#here)\n[c](docs/page.md#same-2)\n"})
        self.assertEqual(
            errors,
            [
                "CONTRIBUTING.md:1: link 'docs/page.md#what': page.md has no heading '#what'",
                "CONTRIBUTING.md:2: link '#here': CONTRIBUTING.md has no heading '#here'",
                "CONTRIBUTING.md:3: link 'docs/page.md#same-2': page.md has no heading '#same-2'",
            ],
        )

    def test_link_out_of_the_repository(self):
        errors = self.errors({"CONTRIBUTING.md": "[a](../other/page.md)\n"})
        self.assertEqual(errors, ["CONTRIBUTING.md:1: link '../other/page.md' leads out of the repository"])

    def test_headings_in_code_are_none(self):
        errors = self.errors({"CONTRIBUTING.md": "```\n# A comment\n```\n[a](#a-comment)\n"})
        self.assertEqual(errors, ["CONTRIBUTING.md:4: link '#a-comment': CONTRIBUTING.md has no heading '#a-comment'"])

    def test_path_that_is_not_there(self):
        for path in ("src/base/b.h", "src/none/", "docs/none.md", "tests/*/x_test.cc"):
            with self.subTest(path):
                errors = self.errors({"CONTRIBUTING.md": f"one\nSee `{path}`.\n"})
                self.assertEqual(errors, [f"CONTRIBUTING.md:2: `{path}` does not exist"])

    def test_what_is_no_path_of_the_repository(self):
        for text in ("build/x.txt", "kv/none.h", "src/base", "docs/FILE.json FILE", "src/<name>.cc"):
            with self.subTest(text):
                self.assertEqual(self.errors({"CONTRIBUTING.md": f"`{text}`\n"}), [])

    def test_code_is_left_alone(self):
        text = "Text:\n\n    see [a](none.md) and `src/none.cc`\n\n    more `src/none.cc`\n\n`[a](none.md)`\n"
        self.assertEqual(self.errors({"CONTRIBUTING.md": text}), [])
        self.assertEqual(len(self.errors({"CONTRIBUTING.md": text + "[a](none.md)\n"})), 1)

    def test_text_that_goes_on_indented_is_read(self):
        self.assertEqual(len(self.errors({"CONTRIBUTING.md": "- item\n    [a](none.md)\n"})), 1)

    def test_a_page_that_is_too_long(self):
        self.assertEqual(self.errors({"docs/other.md": "line\n" * 220}), [])
        errors = self.errors({"docs/other.md": "line\n" * 221, "docs/performance.md": "line\n" * 166})
        self.assertEqual(
            errors,
            [
                "docs/other.md: 221 lines, 220 at most; history belongs into docs/lab_notes/",
                "docs/performance.md: 166 lines, 165 at most; history belongs into docs/lab_notes/",
            ],
        )

    def test_results_that_are_too_large(self):
        half = {"evaluation/results/a.json": "x" * 325_000}
        self.assertEqual(self.errors({**half, "evaluation/results/old/b.json": "x" * 325_000}), [])
        errors = self.errors({**half, "evaluation/results/old/b.json": "x" * 325_001})
        message = "evaluation/results: 650,001 bytes, 650,000 at most: evaluation/condense_results.py makes them small"
        self.assertEqual(errors, [message])

    def test_a_limit_of_no_page(self):
        errors = self.errors({"docs/performance.md": None})
        self.assertEqual(errors, ["docs/performance.md has a limit of lines and is not there"])


if __name__ == "__main__":
    unittest.main()
