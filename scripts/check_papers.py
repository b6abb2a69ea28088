#!/usr/bin/env python3
"""Checks docs/papers.md, the table of the papers' claims.

- Every row has all cells, a verdict that there is, and, where something was shown, what shows it.
- Each file, test, scenario and figure that it names exists; so do the files that "what we have" names.
- The line that counts verdicts counts right.

What the last column may name in backticks:

    file        `docs/held_out.md`, from the root or one of FOLDERS: `load_h200.json`, `planning/choice.cc`
    test        `Suite.Name` of GoogleTest or unittest, `*` for any letters; `NAME_test --gtest_filter=PATTERN`
    scenario    `FILE.txt: how its name begins`, of tests/scenarios

A link counts as well; where it leads is for check_docs.py. Prints one line for each violation and exits with 1 if there is
any. Standard library only.

    scripts/check_papers.py [ROOT]
"""

import collections
import fnmatch
import re
import sys

import checking

PAGE = "docs/papers.md"
SECTIONS = ("NEO", "APEX")
COLUMNS = ["claim", "where", "what we have", "verdict", "shown by"]
VERDICTS = ("shown", "beaten", "contradicted", "differs", "later", "not applicable")
# Of the others the row itself says what is missing, or why there is nothing.
NEED_EVIDENCE = ("shown", "beaten", "contradicted", "differs")
FOLDERS = ("", "src", "docs", "tests", "evaluation", "evaluation/results", "evaluation/figures")
SCENARIOS = "tests/scenarios"

CELL_END = re.compile(r"(?<!\\)\|")
RULE = re.compile(r"^:?-+:?$")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\([^)]+\)")
FILE = re.compile(r"^[\w./-]+\.(?:cc|cu|h|cuh|py|sh|txt|md|json|svg|csv)$|^[\w.-]+(?:/[\w.-]+)*/$")
TEST = re.compile(r"^[A-Z]\w*\*?\.[\w*]+$")
FILTER = re.compile(r"^(\w+)_test --gtest_filter=(\S+)$")
SCENARIO = re.compile(r"^([\w.]+\.txt): (.+)$")
GOOGLE_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^class (\w+)\(|^ {4}def (test_\w+)\(", re.MULTILINE)
PROGRAM = re.compile(r"tandem_test\((\w+)")


class Tree:
    """What there is to name."""

    def __init__(self, root):
        self.root = root
        self.tests = set()
        self.programs = set()
        for file in [*root.glob("src/**/*_test.cc"), *root.glob("tests/**/*_test.cc")]:
            self.tests.update(f"{suite}.{name}" for suite, name in GOOGLE_TEST.findall(file.read_text()))
        for folder in ("scripts", "evaluation", "tests"):
            for file in [*root.glob(f"{folder}/**/*_test.py"), *root.glob(f"{folder}/**/test_*.py")]:
                suite = None
                for class_name, test in PYTHON_TEST.findall(file.read_text()):
                    suite = class_name or suite
                    if test:
                        self.tests.add(f"{suite}.{test}")
        for file in [*root.glob("src/**/CMakeLists.txt"), *root.glob("tests/**/CMakeLists.txt")]:
            self.programs.update(PROGRAM.findall(file.read_text()))

    def has_file(self, name):
        return any((self.root / folder / name).exists() for folder in FOLDERS)

    def has_test(self, pattern):
        return any(fnmatch.fnmatchcase(test, pattern) for test in self.tests)

    def has_scenario(self, file, beginning):
        path = self.root / SCENARIOS / file
        return path.is_file() and any(
            line.startswith(f"scenario {beginning}") for line in path.read_text().split("\n")
        )

    def wrong_evidence(self, text):
        """What is wrong with a name in the last column, or None."""
        scenario, filtered = SCENARIO.match(text), FILTER.match(text)
        if scenario:
            there = self.has_scenario(scenario[1], scenario[2])
            return None if there else f"no scenario `{text}`"
        if filtered:
            program, pattern = filtered[1], filtered[2]
            there = program in self.programs and self.has_test(pattern if "." in pattern else pattern + ".*")
            return None if there else f"no test `{text}`"
        if FILE.match(text):
            return None if self.has_file(text) else f"no file `{text}`"
        if TEST.match(text):
            return None if self.has_test(text) else f"no test `{text}`"
        return f"`{text}` is neither a file nor a test nor a scenario"


def cells_of(line):
    return [cell.strip() for cell in CELL_END.split(line.strip())[1:-1]]


def check_row(tree, cells):
    if len(cells) != len(COLUMNS):
        yield f"{len(cells)} cells, {len(COLUMNS)} wanted: {' | '.join(cells)[:60]}"
        return
    for column, cell in zip(COLUMNS, cells):
        if not cell:
            yield f"nothing in '{column}': {cells[0][:60]}"
    _, _, ours, verdict, evidence = cells
    if verdict and verdict not in VERDICTS:
        yield f"no verdict '{verdict}': {', '.join(VERDICTS)}"
    for name in CODE.findall(ours):
        if FILE.match(name) and not tree.has_file(name):
            yield f"no file `{name}`"
    for name in CODE.findall(evidence):
        wrong = tree.wrong_evidence(name)
        if wrong:
            yield wrong
    if verdict in NEED_EVIDENCE and evidence and not CODE.search(evidence) and not LINK.search(evidence):
        yield f"'{verdict}' by no file, test, scenario or link: {cells[0][:60]}"


def tally(counts):
    """The line of a section that says how its rows end."""
    parts = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    return f"{sum(counts.values())} rows: {', '.join(parts)}."


def check(root):
    page = root / PAGE
    if not page.is_file():
        return [f"{PAGE} is missing"]
    tree = Tree(root)
    errors, section = [], None
    counts = {name: collections.Counter() for name in SECTIONS}
    lines_of = {name: [] for name in SECTIONS}
    columns = None
    for number, line in enumerate(page.read_text().split("\n"), start=1):
        if line.startswith("## "):
            section = line[3:].strip() if line[3:].strip() in SECTIONS else None
        if section:
            lines_of[section].append(line.strip())
        if not line.startswith("|"):
            columns = None
            continue
        cells = cells_of(line)
        if columns is None:
            columns = cells
            if section and columns != COLUMNS:
                errors.append(f"{PAGE}:{number}: the columns are {' | '.join(COLUMNS)}")
        elif section and not all(RULE.match(cell) for cell in cells):
            errors += [f"{PAGE}:{number}: {wrong}" for wrong in check_row(tree, cells)]
            if len(cells) == len(COLUMNS):
                counts[section][cells[COLUMNS.index("verdict")]] += 1
    for name in SECTIONS:
        if not counts[name]:
            errors.append(f"{PAGE}: no rows below '## {name}'")
        elif tally(counts[name]) not in lines_of[name]:
            errors.append(f"{PAGE}: '## {name}' does not say '{tally(counts[name])}'")
    return errors


if __name__ == "__main__":
    sys.exit(checking.run(__doc__, check))
