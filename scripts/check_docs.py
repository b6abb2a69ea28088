#!/usr/bin/env python3
"""Checks the Markdown pages: those at the root, README.md and CONTRIBUTING.md among them, and docs/, and the size of the results behind them.

- Every relative link names a file or folder that exists, and its anchor a heading of that page.
- Every path in backticks (`src/kv/`, `docs/bench.md`, `src/*/*_test.cc`) names something; a reader's own file is my_...
- No page is longer than people read. docs/lab_notes and the changelog, which are to be searched, may be of any length.
- The results that pages are made from stay small, since every clone has them and all that there were.

Prints one line for each violation and exits with 1 if there is any. Standard library only.

    scripts/check_docs.py [ROOT]
"""

import re
import sys

import checking

MAX_LINES = 220
# Pages with a limit of their own.
MAX_LINES_OF = {
    "README.md": 125,
    "docs/performance.md": 165,
    "docs/evaluation_tables.md": 300,  # written by evaluation/figures/figure.py
}
LAB_NOTES = "docs/lab_notes/"
ANY_LENGTH = (LAB_NOTES, "CHANGELOG.md")
RESULTS = "evaluation/results"
MAX_RESULTS_BYTES = 650_000
PATH_FOLDERS = ("src", "docs", "scripts", "tests", "evaluation", "web", "cmake", "bench", "packaging", "deploy")

FENCE = re.compile(r"^ {0,3}(```|~~~)")
CODE = re.compile(r"(`+)(.+?)\1")
# [text](target) and ![text](target "title"); not what stands in code.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:|^//", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$")
PATH = re.compile(rf"^(?:{'|'.join(PATH_FOLDERS)})/[\w./+*-]*$")
LINK_TEXT = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def prose_lines(text):
    """(number, line) of what is neither in a fenced nor in an indented block of code."""
    fence = None
    blank_before = True
    in_code = False
    for number, line in enumerate(text.split("\n"), start=1):
        mark = FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
            continue
        if fence:
            continue
        # Indented text is code behind an empty line, and as long as it stays indented.
        in_code = line.startswith("    ") and (blank_before or in_code) or (in_code and not line.strip())
        blank_before = not line.strip()
        if not in_code:
            yield number, line


def slug(heading):
    """The anchor that a heading gets: lower case, without punctuation, with hyphens for spaces."""
    text = LINK_TEXT.sub(r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(text):
    found, counts = set(), {}
    for _, line in prose_lines(text):
        heading = HEADING.match(line)
        if heading:
            name = slug(heading[1])
            count = counts.get(name, 0)
            counts[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def check_link(root, page, target):
    """What is wrong with a relative link of a page, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    if not file.resolve().is_relative_to(root.resolve()):
        return f"link '{target}' leads out of the repository"
    if not file.exists():
        return f"link '{target}': there is no {path}"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
        return f"link '{target}': {file.name} has no heading '#{anchor}'"
    return None


def names_nothing(root, text):
    """Whether text in backticks claims to be a file or folder of the repository, or a pattern of some, and is none."""
    last = text.rsplit("/", 1)[-1]
    if not PATH.match(text) or last.startswith("my_") or not (last == "" or "." in last):
        return False
    return not any(root.glob(text)) if "*" in text else not (root / text).exists()


def check_page(root, page):
    name = page.relative_to(root).as_posix()
    text = page.read_text()
    for number, line in prose_lines(text):
        for _, code in CODE.findall(line):
            if names_nothing(root, code):
                yield f"{name}:{number}: `{code}` does not exist"
        for target in LINK.findall(CODE.sub("", line)):
            wrong = None if EXTERNAL.match(target) else check_link(root, page, target)
            if wrong:
                yield f"{name}:{number}: {wrong}"
    if not name.startswith(ANY_LENGTH):
        num_lines, limit = len(text.splitlines()), MAX_LINES_OF.get(name, MAX_LINES)
        if num_lines > limit:
            yield f"{name}: {num_lines} lines, {limit} at most; history belongs into {LAB_NOTES}"


def check_results(root):
    num_bytes = sum(file.stat().st_size for file in (root / RESULTS).rglob("*") if file.is_file())
    if num_bytes > MAX_RESULTS_BYTES:
        yield f"{RESULTS}: {num_bytes:,} bytes, {MAX_RESULTS_BYTES:,} at most: evaluation/condense_results.py makes them small"


def check(root):
    required = {root / "README.md", root / "CONTRIBUTING.md"}
    pages = sorted(required.union(root.glob("*.md"), (root / "docs").rglob("*.md")))
    errors = [f"{page.name} is missing" for page in pages if not page.is_file()]
    errors += [
        f"{name} has a limit of lines and is not there" for name in MAX_LINES_OF if not (root / name).is_file()
    ]
    for page in pages:
        if page.is_file():
            errors += check_page(root, page)
    return [*errors, *check_results(root)]


if __name__ == "__main__":
    sys.exit(checking.run(__doc__, check))
