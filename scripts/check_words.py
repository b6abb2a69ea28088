#!/usr/bin/env python3
"""Looks for words that must not be in the tree: unfinished work, and paths of one person's machine."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORBIDDEN = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "unfinished work belongs into an issue, not into the tree"),
    (re.compile(r"(?<![\w.$}/-])/(work|home|root|Users)/\w"), "a path of one machine"),
    (re.compile(r"(?<![\w.$}/-])/tmp/\w"), "a fixed path below /tmp; use mktemp or testing::TempDir()"),
    (re.compile(r"^(<{7}|>{7}|={7})( |$)"), "a merge conflict"),
    (re.compile(r"[ \t]+$"), "white space at the end of a line"),
]
SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md", ".json", ".html", ".css", ".js", ".yml"}
# Files that must name the words themselves, and captured data.
EXEMPT = re.compile(r"^(scripts/check_words\.py|LICENSE|tests/fixtures/.*)$")


def main():
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    errors = 0
    for name in sorted(filter(None, listed.split("\0"))):
        file = ROOT / name
        if file.suffix not in SUFFIXES or EXEMPT.match(name) or not file.is_file():
            continue
        for number, line in enumerate(file.read_text(errors="replace").split("\n"), start=1):
            for pattern, reason in FORBIDDEN:
                if pattern.search(line):
                    print(f"{name}:{number}: {reason}: {line.strip()[:100]}", file=sys.stderr)
                    errors += 1
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
