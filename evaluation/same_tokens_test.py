#!/usr/bin/env python3
"""Tests of same_tokens.py."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import same_tokens


class SameTokens(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, digests):
        result = {"model": "m", "dtype": "fp32", "workload": "w", "num_requests": 2, "tensor_parallel_size": 1}
        runs = [{"result": {**result, "strategy": who, "output_digest": digest}} for who, digest in digests.items()]
        path = self.folder / name
        path.write_text(json.dumps({"runs": runs}))
        return str(path)

    def main(self, *paths):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = same_tokens.main(paths)
        return code, out.getvalue()

    def test_runs_with_one_digest_are_the_same(self):
        code, out = self.main(
            self.write("a.json", {"gpu-only": "12", "async": "12"}), self.write("b.json", {"auto": "12"})
        )
        self.assertEqual(code, 0)
        self.assertIn("12: gpu-only (1), async (1), auto (1)", out)

    def test_another_digest_or_none_is_found(self):
        self.assertEqual(self.main(self.write("a.json", {"gpu-only": "12", "async": "13"}))[0], 1)
        self.assertEqual(self.main(self.write("b.json", {"gpu-only": None}))[0], 1)
        self.assertEqual(self.main()[0], 1)


if __name__ == "__main__":
    unittest.main()
