#!/usr/bin/env python3
"""Tests of launch_time.py with a timeline in the form that the program writes."""

import io
import json
import pathlib
import tempfile
import unittest
from contextlib import redirect_stdout

import launch_time


def span(lane, name, begin, length):
    return {"ph": "X", "pid": 1, "tid": lane, "name": name, "ts": begin, "dur": length}


def table_of(events):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ops.json"
        path.write_text(json.dumps({"traceEvents": events}))
        output = io.StringIO()
        with redirect_stdout(output):
            launch_time.main(["--layers", "4", str(path)])
        return [line.split() for line in output.getvalue().splitlines()]


class LaunchTimeTest(unittest.TestCase):
    def test_spans_of_the_engine_by_name(self):
        events = [
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "gpu"}},
            {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "engine"}},
            span(1, "start", 0, 7000),
            *(span(2, "start", 100 * at, 10) for at in range(98)),
            *(span(2, "start", at, 410) for at in (9800, 10300)),
            span(2, "plan", 20000, 3),
        ]
        head, plan, start = table_of(events)
        self.assertEqual(head[2:], ["n", "mean", "median", "p99", "a", "layer"])
        self.assertEqual(plan, ["ops", "plan", "1", "3.0", "3.0", "3.0", "0.75"])
        self.assertEqual(start, ["ops", "start", "100", "18.0", "10.0", "410.0", "4.50"])

    def test_a_timeline_without_the_engine_is_refused(self):
        events = [{"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "gpu"}}, span(1, "x", 0, 1)]
        with self.assertRaisesRegex(SystemExit, "no lane 'engine'"):
            table_of(events)


if __name__ == "__main__":
    unittest.main()
