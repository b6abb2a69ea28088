#!/usr/bin/env python3
"""Tests of iteration_timeline.py with timelines in the form that the program writes. Drawing needs matplotlib."""

import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stdout

import iteration_timeline

LANES = {"engine": 1, "gpu": 2, "cpu attention": 3, "copy": 4}
LANES |= {"gpu 0": 5, "gpu 1": 6, "cpu attention 0": 7, "cpu attention 1": 8}
LANES |= {"copy: rows in 1": 9, "copy: rows out 1": 10, "copy: KV 0": 11}


class Trace:
    def __init__(self):
        self.events = []
        self.now = 10.0

    def add(self, lane, name, begin, length):
        if not any(event["tid"] == LANES[lane] for event in self.events):
            self.events.append({"ph": "M", "pid": 1, "tid": LANES[lane], "name": "thread_name", "args": {"name": lane}})
        self.events.append({"ph": "X", "pid": 1, "tid": LANES[lane], "name": name, "ts": begin, "dur": length})

    def on_gpu(self, name, length):
        self.add("gpu", name, self.now, length)
        self.now += length

    def add_iteration(self, num_layers, hybrid, wait=0.0):
        """A layer: 100 us of products, 50 of a visit, `wait`, 50 of attention; the CPU works 120 us from the visit."""
        self.add("engine", "start", self.now - 5, 5)
        self.on_gpu("embedding", 20)
        for layer in range(num_layers):
            self.on_gpu(f"pre-projection {layer}", 40)
            if hybrid:
                self.add("cpu attention", f"main {layer}", self.now, 120)
                self.on_gpu(f"visit of a cohort {layer}", 50)
                self.add("copy", f"swap out {layer}", self.now, 10)
                self.on_gpu(f"wait for cpu attention {layer}", wait)
            self.on_gpu(f"gpu attention {layer}", 50)
            self.on_gpu(f"post-projection {layer}", 60)
        self.on_gpu("logits and sampling", 30)
        self.on_gpu("end", 0)
        self.now += 15

    def write(self, folder):
        path = pathlib.Path(folder) / "trace.json"
        last = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "tandem"}}
        path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": [*self.events, last]}))
        return path


def lanes_of(trace):
    with tempfile.TemporaryDirectory() as folder:
        return iteration_timeline.read_trace(trace.write(folder))


def mixed_trace():
    trace = Trace()
    trace.add_iteration(4, hybrid=False)
    for wait in (20.0, 5.0, 10.0):
        trace.add_iteration(4, hybrid=True, wait=wait)
    trace.add_iteration(4, hybrid=False)
    return trace


def sharded_trace():
    """Two shards: the second is 10 us later at each sum, for which the first waits."""
    trace = Trace()
    for shard, late in ((1, 10), (0, 0)):
        now = 0.0
        for name, length in (("embedding", 20), ("pre-projection 0", 40 + late), ("sum over the shards 0", 15 - late)):
            trace.add(f"gpu {shard}", name, now, length)
            now += length
        trace.add(f"gpu {shard}", "end", now, 0)
        trace.add(f"cpu attention {shard}", "main 0", 10.0 + shard, 30)
    trace.add("copy: rows in 1", "main 0", 5.0, 10)
    trace.add("copy: rows out 1", "main 0", 10.0, 10)
    trace.add("copy: KV 0", "moves between tiers", 0.0, 75)
    return trace


class Shards(unittest.TestCase):
    def test_each_has_its_lanes(self):
        lanes = lanes_of(sharded_trace())
        index, begin, end = iteration_timeline.choose_iteration(lanes)
        self.assertEqual((index, begin, end), (0, 0.0, 75.0))
        description = iteration_timeline.describe(lanes, begin, end, index)
        self.assertEqual(
            list(description["lanes"]),
            ["gpu 0", "gpu 1", "cpu attention 0", "cpu attention 1", "copies 0", "copies 1"],
        )
        self.assertAlmostEqual(description["lanes"]["copies 1"]["busy"], 15 / 75)
        self.assertAlmostEqual(description["lanes"]["cpu attention 1"]["busy"], 30 / 75)
        self.assertAlmostEqual(description["gpu_us"]["sum over the shards"], 15)
        self.assertAlmostEqual(description["gpu_us_of_lanes"]["gpu 1"]["sum over the shards"], 5)
        self.assertEqual(iteration_timeline.middle_layers(lanes, begin, end), (0, 0))

    def test_the_tenth_comes_behind_the_second(self):
        lanes = {f"gpu {shard}": [] for shard in (10, 2, 0)}
        self.assertEqual(iteration_timeline.lanes_like(lanes, "gpu"), ["gpu 0", "gpu 2", "gpu 10"])


class Choice(unittest.TestCase):
    def test_the_hybrid_iteration_of_median_length(self):
        lanes = lanes_of(mixed_trace())
        index, begin, end = iteration_timeline.choose_iteration(lanes)
        self.assertEqual(index, 3)
        self.assertAlmostEqual(end - begin, 20 + 4 * 210 + 30)

    def test_any_iteration_by_number(self):
        lanes = lanes_of(mixed_trace())
        index, begin, end = iteration_timeline.choose_iteration(lanes, 0)
        self.assertEqual((index, begin), (0, 10.0))
        self.assertAlmostEqual(end - begin, 20 + 4 * 150 + 30)
        with self.assertRaisesRegex(ValueError, "no iteration 5: it has 5"):
            iteration_timeline.choose_iteration(lanes, 5)

    def test_what_is_missing_is_named(self):
        trace = Trace()
        trace.add_iteration(2, hybrid=False)
        with self.assertRaisesRegex(ValueError, "none of its 1 iterations has cpu attention"):
            iteration_timeline.choose_iteration(lanes_of(trace))
        with self.assertRaisesRegex(ValueError, "no whole iteration"):
            iteration_timeline.choose_iteration({})
        with self.assertRaisesRegex(ValueError, "no spans of layers 7 to 9"):
            iteration_timeline.layer_range(lanes_of(trace), 0, 1e9, 7, 9)

    def test_an_iteration_that_the_file_cuts_off_does_not_count(self):
        trace = Trace()
        trace.add_iteration(2, hybrid=True)
        trace.on_gpu("embedding", 20)
        self.assertEqual(len(iteration_timeline.split_iterations(lanes_of(trace)["gpu"])), 1)


class Shares(unittest.TestCase):
    def test_waiting_is_idle(self):
        lanes = lanes_of(mixed_trace())
        index, begin, end = iteration_timeline.choose_iteration(lanes)
        description = iteration_timeline.describe(lanes, begin, end, index)
        gpu = description["lanes"]["gpu"]
        self.assertAlmostEqual(gpu["busy"], 1 - 40 / 890)
        self.assertEqual(gpu["bubbles"], 4)
        self.assertAlmostEqual(gpu["longest_bubble_us"], 10)
        cpu = description["lanes"]["cpu attention"]
        self.assertAlmostEqual(cpu["busy"], 4 * 120 / 890)
        # Before the first task, between two, after the last.
        self.assertEqual(cpu["bubbles"], 5)
        self.assertAlmostEqual(cpu["longest_bubble_us"], 90)
        self.assertAlmostEqual(description["lanes"]["copy"]["idle_us"], 890 - 40)
        self.assertAlmostEqual(description["gpu_us"]["gpu attention"], 200)
        self.assertAlmostEqual(description["gpu_us"]["wait for cpu attention"], 40)

    def test_spans_that_overlap_count_once(self):
        spans = [
            iteration_timeline.Span("cpu attention", "main", 0, 0.0, 50.0),
            iteration_timeline.Span("cpu attention", "cohort", 0, 20.0, 30.0),
            iteration_timeline.Span("cpu attention", "cohort", 1, 60.0, 200.0),
        ]
        shares = iteration_timeline.measure(spans, 0.0, 100.0)
        self.assertAlmostEqual(shares["busy"], 0.9)
        self.assertEqual(shares["bubbles"], 1)

    def test_a_lane_without_spans_is_idle(self):
        self.assertEqual(iteration_timeline.measure([], 0.0, 100.0)["busy"], 0)

    def test_layers_in_the_middle(self):
        lanes = lanes_of(mixed_trace())
        _, begin, end = iteration_timeline.choose_iteration(lanes)
        self.assertEqual(iteration_timeline.middle_layers(lanes, begin, end), (1, 3))
        first, last = iteration_timeline.layer_range(lanes, begin, end, 1, 2)
        self.assertAlmostEqual(first - begin, 20 + 210)
        self.assertAlmostEqual(last - begin, 20 + 3 * 210)


class Command(unittest.TestCase):
    def test_writes_the_shares(self):
        with tempfile.TemporaryDirectory() as folder:
            path = mixed_trace().write(folder)
            out = pathlib.Path(folder) / "shares.json"
            stdout = io.StringIO()
            with redirect_stdout(stdout):
                iteration_timeline.main([str(path), "--json", str(out)])
            self.assertEqual(json.loads(out.read_text())["iteration"], 3)
            self.assertIn("gpu", stdout.getvalue())
            with self.assertRaisesRegex(SystemExit, "no iteration 99"):
                iteration_timeline.main([str(path), "--iteration", "99"])

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "there is no matplotlib")
    def test_draws_the_same_picture_each_time(self):
        with tempfile.TemporaryDirectory() as folder:
            path = mixed_trace().write(folder)
            pictures = []
            for name in ("a.svg", "b.svg"):
                with redirect_stdout(io.StringIO()):
                    iteration_timeline.main([str(path), "--out", str(pathlib.Path(folder) / name), "--layers", "1-2"])
                pictures.append((pathlib.Path(folder) / name).read_text())
            self.assertEqual(*pictures)
            self.assertIn("<svg", pictures[0])


if __name__ == "__main__":
    sys.exit(unittest.main())
