"""What the checks of the repository's files have in common."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest


def run(doc, check):
    """The program: check(root) gives the lines that say what is wrong. Exit status."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


class TreeTest(unittest.TestCase):
    """Of a check, on trees that are good but for some files."""

    checker = None  # the module
    good = None  # {name: text}

    def write_tree(self, changes):
        """changes: {name: text}, None takes a file away."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name, text in {**self.good, **changes}.items():
            if text is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
        return root

    def errors(self, changes):
        return self.checker.check(self.write_tree(changes))

    def run_program(self, changes):
        return subprocess.run(
            [sys.executable, self.checker.__file__, self.write_tree(changes)], capture_output=True, text=True, check=False
        )
