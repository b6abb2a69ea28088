#!/usr/bin/env python3
"""Tests of agents_on_gpu.py and its parts, one of them with the program that TANDEM_BINARY names."""

import asyncio
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import agents_load
import agents_on_gpu
import agents_streams
import agents_table
import condense_results
import repeats
import result_files
from agents_load import AgentLoad, AgentShape
from agents_testing import DEADLINE_S, turns_report, turns_row

HERE = pathlib.Path(__file__).resolve().parent
TANDEM = pathlib.Path(os.environ.get("TANDEM_BINARY", ""))
GPU_ONLY, AUTO, UNCACHED = agents_table.TANDEM_SIDES
SHAPE = AgentShape(system=1000, user=400, tool=80, out=20, turns=5)


class Load(unittest.TestCase):
    def test_sessions_hold_what_their_turns_left(self):
        # 420, 520, 620, 720 and 820.
        self.assertEqual(SHAPE.kv_tokens, 620)
        self.assertEqual(SHAPE.sessions_that_fill(1000 + 10 * 620), 10)

    def test_pauses_make_as_much_kv_as_is_wanted_at_the_same_rate(self):
        for times in (1, 3):
            load = AgentLoad(SHAPE, gpu_tokens=1000 + 10 * 620, sessions_per_s=0.5, turn_s=0.5, times=times)
            self.assertAlmostEqual(load.measured_times(mean_turn_s=0.5), times)
            self.assertAlmostEqual(load.session_s, 5 * 0.5 + 4 * load.pause_s)
        self.assertGreater(load.measured_times(mean_turn_s=1.5), times)

    def test_no_pause_is_negative(self):
        self.assertEqual(AgentLoad(SHAPE, 2000, 0.5, turn_s=100, times=1).pause_s, 0)

    def test_turns_that_were_cut_off_count_as_long(self):
        exact = agents_load.turn_percentiles_s(turns_report(1, p50_s=1, p99_s=3))
        self.assertEqual(exact, ((1, True), (3, True)))
        few = agents_load.turn_percentiles_s(turns_report(1, p50_s=1, p99_s=3, late=2))
        self.assertEqual(few, ((1, False), (DEADLINE_S, False)))
        many = agents_load.turn_percentiles_s(turns_report(1, p50_s=1, p99_s=30, late=60))
        self.assertEqual(many, ((DEADLINE_S, False), (30, False)))

    def test_what_is_computed_twice(self):
        report = turns_report(1, possible=1000, found=700, recomputed=11)
        self.assertEqual(agents_load.computed_twice(report), 311)

    def test_a_long_prompt_is_mostly_attention(self):
        shape = {
            "num_hidden_layers": 1,
            "hidden_size": 10,
            "intermediate_size": 20,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 5,
        }
        # Two operations for each of 10 * (5 * 12 + 60) weights, and for each of 4 * 5 * (n / 2) products of both kinds.
        self.assertAlmostEqual(agents_load.prefill_s(shape, 100, tflops=1e-12 * (2400 * 100 + 4000 * 100)), 1)

    def test_percentiles(self):
        self.assertEqual(repeats.percentile(range(1, 101), 0.99), 99)
        self.assertEqual(repeats.percentile(range(1, 17), 0.99), 16)
        self.assertEqual(repeats.percentile([3, 1, 2], 0.5), 2)
        self.assertIsNone(repeats.percentile([], 0.5))


class Streams(unittest.TestCase):
    def test_gaps_count_while_the_long_request_is_there(self):
        usage = {"prompt_tokens": 900, "completion_tokens": 3}
        long_stream = {"start": 10, "times": [14, 14.5, 15], "usage": usage}
        shorts = [
            {"start": 8, "first": 9, "times": [9, 9.9, 10.2, 10.3]},
            {"start": 14.0, "first": 14.5, "times": [14.5, 14.9, 15.9]},
        ]
        found = agents_streams.summarize_long(10, 15, long_stream, shorts)
        self.assertTrue(found["served"])
        self.assertEqual((found["prefill_s"], found["token_ms"]), (4, 500))
        self.assertEqual(found["short_gaps"], 3)
        self.assertAlmostEqual(found["short_gap_max_ms"], 400)
        self.assertAlmostEqual(found["short_ttft_max_ms"], 500)
        given_up = agents_streams.summarize_long(10, 15, None, shorts)
        self.assertFalse(given_up["served"])
        self.assertEqual(given_up["short_gap_max_ms"], found["short_gap_max_ms"])

    def test_what_goes_wrong_is_an_error_and_no_exit(self):
        async def exits(url, body):
            raise SystemExit("a stream ended early")

        with mock.patch.object(agents_streams, "stream_completion", exits):
            with self.assertRaisesRegex(RuntimeError, "ended early"):
                agents_streams.run_with_limit(agents_streams.Prompts("http://x", "x").first_tokens_s([[1]]), 5)
        with self.assertRaisesRegex(RuntimeError, "not done after 0 s"):
            agents_streams.run_with_limit(asyncio.sleep(10), 0.01)


class Table(unittest.TestCase):
    ROWS = [
        turns_row(3, {AUTO: {"p99_s": 2}, GPU_ONLY: {"p99_s": 9, "late": 3}}),
        {"name": "turns 5x", "args": [], "runs": {AUTO: {"command": [], "error": "not done"}}},
    ]

    def test_sides_are_in_order_and_errors_below(self):
        lines = agents_table.tables(self.ROWS).splitlines()
        self.assertIn("| 3x | gpu-only with the cache | 3.1 | 100 | at least 1.00 | at least 20.00 |", lines[2])
        self.assertIn("| 3x | auto, both tiers | 3.1 | 100 | 1.00 | 2.00 |", lines[3])
        self.assertEqual(lines[-1], "- turns 5x, auto: not done")

    def test_tables_of_condensed_results_are_the_same(self):
        rows = [json.loads(json.dumps(self.ROWS[0]))]
        for side, run in rows[0]["runs"].items():
            run["command"] = ["tandem", "bench", "online", "--end-sessions", "--deadline", "20", "--strategy", side]
        condensed = condense_results.condense({"command": "", "rows": rows})
        expanded = result_files.expand(json.loads(json.dumps(condensed)))["rows"]
        self.assertEqual(agents_table.tables(expanded), agents_table.tables(rows))


class Words(unittest.TestCase):
    def parse(self, *words):
        return agents_on_gpu.parse_args(["--json", "x.json", *words, "--", "--dummy", "llama-3.1-8b"])

    def test_what_each_side_gets(self):
        plan = agents_on_gpu.Plan(self.parse("--gpu-tokens", "20000", "--cpu-tokens", "90000"))
        gpu_only, auto, uncached = (plan.sides.tandem_words(side) for side in agents_table.TANDEM_SIDES)
        self.assertEqual(
            gpu_only, ["serve", "--dummy", "llama-3.1-8b", "--gpu-kv-cache", "20000tok", "--strategy", "gpu-only"]
        )
        self.assertIn("90000tok", auto)
        self.assertEqual(auto[-4:], ["--kv-transit", "131072tok", "--strategy", "auto"])
        self.assertIn("--no-enable-prefix-caching", uncached)

    def test_only_what_is_wanted_and_the_same_rate_throughout(self):
        plan = agents_on_gpu.Plan(self.parse("--only", "3x", "--load", "0.5"))
        steps = plan.turn_steps(agents_on_gpu.FIRST_TURNS, {"sessions_per_minute": 120, "turn_s": 0.3})
        self.assertEqual([step.row["name"] for step in steps], ["turns 3x", "turns 3x"])
        self.assertIn("1.0000", steps[0].row["args"])

    def test_vllm_has_the_same_room(self):
        plan = agents_on_gpu.Plan(self.parse("--vllm", "--gpu-tokens", "26400", "--vllm-env", "/nowhere"))
        plain, offload = (plan.sides.server_command(side) for side in agents_table.VLLM_SIDES)
        for words in (plain, offload):
            self.assertIn("--enable-prefix-caching", words)
            # 1,650 blocks, and the one that it keeps for itself.
            self.assertEqual(words[words.index("--num-gpu-blocks-override") + 1], "1651")
        self.assertNotIn("--kv-offloading-size", plain)
        self.assertEqual(float(offload[offload.index("--kv-offloading-size") + 1]), 32)

    def test_mistakes_are_named(self):
        for words, message in (
            (["--parts", "turns,nothing"], "not nothing"),
            (["--turns", "1"], "--turns is at least 2"),
            (["--gpu-tokens", "1000"], "hold no session"),
        ):
            stderr = io.StringIO()
            with self.assertRaises(SystemExit), redirect_stderr(stderr):
                self.parse(*words)
            self.assertIn(message, stderr.getvalue())


@unittest.skipUnless(TANDEM.is_file(), "TANDEM_BINARY names no program")
class EndToEnd(unittest.TestCase):
    def run_script(self, folder, *words):
        (folder / "env.sh").write_text(f"export PYTHONPATH={HERE / 'peers/stand_in'}\n")
        own = ["--vllm-python", sys.executable, "--vllm-env", str(folder / "env.sh")]
        own += ["--tandem", str(TANDEM), "--json", str(folder / "out.json"), "--table", str(folder / "out.md"), *words]
        own += ["--gpu-tokens", "1600", "--cpu-tokens", "12000", "--system", "64", "--user", "128", "--tool", "32"]
        own += ["--out", "4", "--turns", "2", "--window", "1", "--sustained", "600,0.1", "--agents", "2"]
        own += ["--history", "600", "--new", "40", "--rounds", "1", "--long-tokens", "1200", "--short-streams", "2"]
        engine = ["--dummy", "tiny", "--device", "host", "--cpu-threads", "1", "--profile-seconds", "1"]
        stdout = io.StringIO()
        with redirect_stdout(stdout):
            code = agents_on_gpu.main([*own, "--", *engine])
        return code, stdout.getvalue()

    def test_calls_go_on_where_the_file_ends(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            code, said = self.run_script(folder, "--seconds", "1", "--parts", "resume")
            self.assertEqual(code, agents_on_gpu.LEFT_OVER, said)
            code, said = self.run_script(folder, "--parts", "resume,long", "--resume")
            self.assertEqual(code, 0, said)
            code, said = self.run_script(folder, "--parts", "resume,long", "--resume")
            self.assertEqual(code, 0, said)
            self.assertNotIn("started", said)
            rows = {row["name"]: row for row in json.loads((folder / "out.json").read_text())["rows"]}
            resumed = rows["resume"]["runs"][AUTO]["result"]
            # Two histories of 600 tokens: 18 blocks each.
            self.assertEqual(resumed["resumed"]["cached_tokens"], 2 * 18 * 32)
            self.assertEqual(resumed["in_full"]["cached_tokens"], 0)
            long_one = rows["long 1200"]["runs"][AUTO]["result"]
            self.assertTrue(long_one["served"])
            self.assertEqual(long_one["prompt_tokens"], 1200 - agents_streams.LONG_OUTPUT_TOKENS)
            table = (folder / "out.md").read_text()
            self.assertIn("at once, resumed", table)
            self.assertIn("| 1,200 |", table)

    def test_turns_of_both_tiers(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            code, said = self.run_script(folder, "--parts", "turns", "--only", "1x")
            self.assertEqual(code, 0, said)
            (row,) = json.loads((folder / "out.json").read_text())["rows"]
            self.assertEqual(set(row["runs"]), set(agents_table.TANDEM_SIDES))
            uncached = row["runs"][UNCACHED]["result"]
            self.assertEqual(uncached["prefix_hits"]["tokens"], 0)
            self.assertGreater(agents_load.computed_twice(uncached), 0)

    def test_turns_beside_vllm_find_what_earlier_ones_left(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            code, said = self.run_script(folder, "--parts", "turns", "--only", "3x", "--vllm")
            self.assertEqual(code, 0, said)
            (row,) = json.loads((folder / "out.json").read_text())["rows"]
            self.assertEqual(set(row["runs"]), set(agents_table.SIDES))
            for side in agents_table.VLLM_SIDES:
                result = row["runs"][side]["result"]
                self.assertEqual(result["failed"], 0)
                self.assertGreater(result["prefix_hits"]["tokens"], 0)
                self.assertGreaterEqual(result["over_the_run"]["hit_tokens"], result["prefix_hits"]["tokens"])
            self.assertIn("| 3x | vLLM, and 32 GiB of KV offload |", (folder / "out.md").read_text())


if __name__ == "__main__":
    unittest.main()
