#!/usr/bin/env python3
"""Tests of compare_engines.py and what it is made of, with stand_in/ in place of vLLM and SGLang. Some run the program
that TANDEM_BINARY names."""

import io
import json
import math
import os
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
import compare_engines  # noqa: E402
import comparison_plan  # noqa: E402
import comparison_report  # noqa: E402
import comparison_sides  # noqa: E402
import dummy_model  # noqa: E402
import offline_engine  # noqa: E402
import result_files  # noqa: E402
import sglang_model  # noqa: E402
import vllm_model  # noqa: E402
from comparison_results import Results, without_paths  # noqa: E402
from comparison_testing import WORKS, make_rows, offline_row  # noqa: E402

TANDEM = Path(os.environ.get("TANDEM_BINARY", ""))


class Plans(unittest.TestCase):
    def test_that_of_the_repository_can_be_read(self):
        path = HERE.parent / "comparisons/vllm_h200.json"
        anchor, rows = comparison_plan.read_plan(path)
        self.assertEqual([variant.side for variant in anchor.variants], ["vllm"])
        kinds = {row.name: row.kind for row in rows}
        self.assertEqual(set(kinds.values()), set(comparison_plan.KINDS))
        small = next(row for row in rows if row.fields["gpu_kv_tokens"])
        self.assertEqual(small.fields["gpu_kv_tokens"], 26400)
        self.assertEqual(small.variants[1].settings, {"kv_offload_gib": 32})
        self.assertIn("auto", small.variants[3].settings)
        for row in rows:
            # Every point of all variants fits into a call, with its anchor.
            seconds = len(row.variants) * (row.fields["start_s"] + row.fields["point_s"])
            self.assertLess(seconds, 540 - 95, row.name)

    def test_that_of_sglang_can_be_read(self):
        anchor, rows = comparison_plan.read_plan(HERE.parent / "comparisons/sglang_h100.json")
        self.assertEqual([variant.side for variant in anchor.variants], ["sglang"])
        self.assertEqual({row.kind for row in rows}, set(comparison_plan.KINDS) - {"online"})
        for row in rows:
            self.assertEqual({variant.side for variant in row.variants}, {"sglang", "tandem"}, row.name)

    def test_mistakes_are_named(self):
        for row, message in (
            ({"name": "a", "kind": "x"}, "row 'a': kind is one of offline"),
            ({"name": "a", "kind": "offline"}, "lacks works"),
            (offline_row(batches=[1]), "has batches"),
            (offline_row(works=[{"workload": "osc"}]), "a work has workload and num_requests"),
            (offline_row(works=WORKS[:1] * 2), "two of works are the same"),
            (offline_row(works=[]), "works is empty"),
            (offline_row(vllm={"vLLM": {"engine": 1}}), "a variant of vllm has"),
            (offline_row(sglang={"SGLang": {"kv_offload_gib": 1}}), "a variant of sglang has engine_args"),
            (offline_row(tandem={"vLLM": ""}), "different names"),
            ({"name": "a", "kind": "online", "rates": [1]}, "lacks work"),
            (
                {"name": "a", "kind": "online", "rates": [1], "work": WORKS[0], "sglang": {"SGLang": {}}},
                "online rows have no variants of sglang",
            ),
        ):
            with self.assertRaises(ValueError) as raised:
                make_rows(row)
            self.assertIn(message, str(raised.exception))

    def test_offset_and_flags(self):
        row = make_rows(offline_row(works=[{**WORKS[0], "offset": 7}], tandem_flags="--device cuda"))[0]
        self.assertEqual(row.points["osc x 10"]["offset"], 7)
        self.assertEqual(row.variants[1].settings, ["--device", "cuda", "--strategy", "gpu-only"])


class HighestRate(unittest.TestCase):
    def test_is_linear_between_the_last_within_and_the_first_beyond(self):
        found = comparison_report.highest_rate([(4, 20), (8, 40), (12, 80)], 50)
        self.assertEqual((found.rate, found.exact, found.text), (9.0, True, "9.0"))

    def test_order_does_not_matter_and_a_later_dip_does_not_count(self):
        self.assertEqual(comparison_report.highest_rate([(12, 30), (8, 60), (4, 40)], 50).rate, 6.0)

    def test_the_limit_itself_is_within(self):
        self.assertEqual(comparison_report.highest_rate([(4, 50), (8, 60)], 50).rate, 4.0)

    def test_what_was_not_measured_is_a_bound(self):
        self.assertEqual(comparison_report.highest_rate([(4, 20), (8, 30)], 50).text, ">= 8")
        self.assertEqual(comparison_report.highest_rate([(4, 60), (8, 70)], 50).text, "< 4")
        self.assertIsNone(comparison_report.highest_rate([], 50).rate)
        failed = comparison_report.highest_rate([(4, 20), (8, math.inf)], 50)
        self.assertEqual((failed.rate, failed.exact, failed.text), (4, False, ">= 4, < 8"))

    def test_of_medians_over_rounds(self):
        row = make_rows({"name": "o", "kind": "online", "rates": [4, 8], "work": WORKS[0]})[0]
        results = Results()
        for values in ((20, 60), (30, 90), (40, 100)):
            points = {
                key: {"wall_s": 1, "result": {"p99_tpot_ms": value, "failed": 0, "rejected": 0}}
                for key, value in zip(("4", "8"), values, strict=True)
            }
            results.add(row, row.variants[0], {"call": 0, "round": 0, "start_s": 1, "engine": {}, "points": points})
        found = comparison_report.highest_rate_of(results.rows[0], "vLLM", 50)
        self.assertAlmostEqual(found.rate, 4 + 4 * 20 / 60)
        table = comparison_report.tables({"calls": [], "rows": results.rows}, 50)
        self.assertIn("| 4 | vLLM | - | 30.0 ±33.3% |", table)
        self.assertIn("| vLLM | 5.3 |", table)


class Report(unittest.TestCase):
    def call(self, throughput):
        point = {"wall_s": 1, "result": {"output_throughput": throughput}} if throughput else {"error": "no memory"}
        return {
            "date": "2026-01-01T00:00:00Z",
            "seconds": 500,
            "machine": {"cards": ["NVIDIA H200"], "driver": "580"},
            "versions": {"vllm": "0.26.0"},
            "anchor": {"name": "anchor", "kind": "offline", "points": {"x": point}},
        }

    def test_calls_have_their_card_and_their_anchor(self):
        text = "\n".join(
            comparison_report.calls_table([self.call(100.0), self.call(102.0), self.call(90.0), self.call(None)])
        )
        self.assertIn(
            "| 2 | 2026-01-01T00:00:00Z | NVIDIA H200 | 580 | vLLM 0.26.0 | 500 | 102.0 output tok/s | 1.020 |", text
        )
        self.assertIn("The anchor of call 3 is 0.90 of the first", text)
        self.assertNotIn("The anchor of call 2", text)
        self.assertIn("| 500 | - | - |", text)

    def test_of_a_file_there_may_be_several_engines(self):
        row = make_rows(offline_row(sglang={"SGLang": {}}))[0]
        results = Results()
        for variant, value in zip(row.variants, (100.0, 120.0, 150.0), strict=True):
            points = {"osc x 10": {"wall_s": 1, "result": {"output_throughput": value}}}
            results.add(row, variant, {"call": 0, "round": 0, "start_s": 1, "engine": {}, "points": points})
        table = comparison_report.tables({"calls": [], "rows": results.rows}, 50)
        self.assertIn("# Tandem beside vLLM and SGLang", table)
        self.assertIn("| output tok/s | x vLLM | x SGLang | runs |", table)
        self.assertIn("| osc x 10 | SGLang | 120.0 | - | - |", table)
        self.assertIn("| osc x 10 | Tandem | 150.0 | 1.50 | 1.25 |", table)

    def test_files_from_before_can_be_read(self):
        path = HERE.parent / "results/vllm_h200.json"
        content = result_files.expand(json.loads(path.read_text()))
        table = comparison_report.tables(content, 50)
        self.assertIn("# Tandem beside vLLM\n", table)
        self.assertIn("| x vLLM |", table)

    def test_tandem_is_measured_by_the_best_of_vllm(self):
        row = make_rows(offline_row(vllm={"vLLM": {}, "offload": {"kv_offload_gib": 1}}))[0]
        decode = make_rows({"name": "d", "kind": "decode", "batches": [8, 16]})[0]
        results = Results()
        for variant, value in zip(row.variants, (100.0, 80.0, 150.0), strict=True):
            points = {"osc x 10": {"wall_s": 1, "result": {"output_throughput": value}}}
            results.add(row, variant, {"call": 0, "round": 0, "start_s": 1, "engine": {}, "points": points})
        for variant, value in zip(decode.variants, (6.0, 5.0), strict=True):
            points = {"16": {"wall_s": 1, "result": {"step_ms": value}}}
            results.add(decode, variant, {"call": 0, "round": 0, "start_s": 1, "engine": {}, "points": points})
        table = comparison_report.tables({"calls": [], "rows": results.rows}, 50)
        self.assertIn("| osc x 10 | Tandem | 150.0 | 1.50 |", table)
        self.assertIn("| osc x 10 | offload | 80.0 | - |", table)
        self.assertIn("| batch 16 | Tandem | 5.000 | 1.20 |", table)

    def test_no_path_of_the_machine_is_kept(self):
        said = {"error": "ended with 1: /some/where/deep/vllm.py and /usr/lib/x.so", "url": "http://h:1/v1/models 1/2"}
        self.assertEqual(
            without_paths(said), {"error": "ended with 1: vllm.py and x.so", "url": "http://h:1/v1/models 1/2"}
        )
        self.assertEqual(without_paths({"a": ["--json=/a/b/c.json", 1.5, None]}), {"a": ["--json=c.json", 1.5, None]})


class Memory(unittest.TestCase):
    def test_waits_until_it_is_free(self):
        used = iter([["100"], ["90000"], ["300"]])
        self.assertIsNone(compare_engines.GpuMemory(lambda what: next(used), patience_s=10).wait_until_free())

    def test_says_what_is_still_taken(self):
        used = iter([["100"], ["9100"], ["9100"]])
        said = compare_engines.GpuMemory(lambda what: next(used), patience_s=0.1).wait_until_free()
        self.assertIn("9000 MiB", said)

    def test_asks_for_visible_gpus_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "nvidia-smi"
            tool.write_text('#!/bin/sh\necho "$@"\n')
            tool.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "1"}):
                self.assertTrue(compare_engines.query_gpus("memory.used")[0].endswith("-i 1"))
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}):
                self.assertNotIn("-i", compare_engines.query_gpus("memory.used")[0].split())

    def test_without_a_tool_nothing_is_waited_for(self):
        self.assertIsNone(compare_engines.GpuMemory(lambda what: []).wait_until_free())


class EngineWords(unittest.TestCase):
    def test_room_and_offload_of_vllm(self):
        arguments = vllm_model.engine_arguments("tiny", 8192, gpu_kv_tokens=26400, kv_offload_gib=32)
        self.assertEqual(arguments["num_gpu_blocks_override"], 1651)
        words = vllm_model.server_words(arguments | {"compilation_config": {"mode": 0}, "enforce_eager": True})
        text = " ".join(words)
        for part in (
            "--skip-tokenizer-init",
            "--no-enable-prefix-caching",
            "--kv-offloading-size 32",
            "--enforce-eager",
        ):
            self.assertIn(part, text)
        self.assertIn('--compilation-config {"mode": 0}', text)

    def test_room_and_settings_of_sglang(self):
        arguments = sglang_model.engine_arguments("tiny", 512, 4096, more={"disable_prefill_cuda_graph": True})
        self.assertEqual(arguments["max_total_tokens"], 4096)
        self.assertTrue(arguments["disable_radix_cache"] and arguments["disable_prefill_cuda_graph"])
        # A request of 512 tokens fits, and the model is said to be made for as many.
        self.assertGreater(arguments["context_length"], 512)
        config = json.loads((Path(arguments["model_path"]) / "config.json").read_text())
        self.assertGreaterEqual(config["max_position_embeddings"], arguments["context_length"])
        self.assertNotIn("max_total_tokens", sglang_model.engine_arguments("tiny", 512))

    def test_half_of_the_70b_keeps_its_heads(self):
        config = dummy_model.model_config("llama-3.1-70b-half", 8192)
        self.assertEqual(
            (config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]), (128, 32, 4)
        )
        self.assertEqual(dummy_model.model_config("tiny", 8192)["max_position_embeddings"], 8192)


@unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
class WrittenRequests(unittest.TestCase):
    def lengths(self, folder, work, **fields):
        row = make_rows(offline_row(works=[work], **fields))[0]
        path, count = comparison_sides.Requests(TANDEM, folder).file(row, next(iter(row.points.values())))
        lengths = offline_engine.read_lengths(path)
        self.assertEqual(len(lengths), count)
        return lengths

    def test_are_a_part_of_a_trace_by_offset_without_what_is_too_long(self):
        trace = offline_engine.read_lengths(HERE.parent / "workloads/osc.csv")
        with tempfile.TemporaryDirectory() as name:
            part = self.lengths(Path(name), {"workload": "osc", "num_requests": 20, "offset": 30})
            self.assertEqual(part, trace[30:50])
            short = self.lengths(Path(name), {"workload": "osc", "num_requests": 20, "offset": 30}, max_model_len=400)
            self.assertEqual(short, [pair for pair in trace[30:50] if sum(pair) <= 400])
            self.assertLess(len(short), 20)
            with self.assertRaises(comparison_sides.Failure) as raised:
                self.lengths(Path(name), {"workload": "osc", "num_requests": 2}, max_model_len=9)
            self.assertIn("no request fits into 9 tokens", str(raised.exception))

    def test_may_all_have_one_length(self):
        with tempfile.TemporaryDirectory() as name:
            exact = self.lengths(Path(name), {"workload": "exact:in=64,out=3", "num_requests": 4})
            self.assertEqual(exact, [(64, 3)] * 4)


@unittest.skipUnless(TANDEM.is_file(), "there is no program to run")
class Program(unittest.TestCase):
    PLAN = {
        "defaults": {
            "model": "tiny",
            "max_model_len": 512,
            "num_warmup": 2,
            "gpu_kv_tokens": 4096,
            "tandem_flags": "--device host --cpu-threads 1 --dtype fp32",
            "vllm": {"vLLM": {}},
            "sglang": {"SGLang": {"engine_args": {"disable_prefill_cuda_graph": True}}},
            "tandem": {"Tandem": "--strategy gpu-only"},
            "start_s": 1,
            "point_s": 1,
        },
        "anchor": {
            "name": "anchor",
            "kind": "offline",
            "vllm": {"vLLM": {}},
            "works": [{"workload": "exact:in=20,out=9", "num_requests": 4}],
        },
        "rows": [
            {
                "name": "offline",
                "kind": "offline",
                "works": [{"workload": "osc:in=30,out=9", "num_requests": 4, "offset": 2}],
            },
            {"name": "prefill", "kind": "prefill", "works": [{"workload": "exact:in=64,out=1", "num_requests": 2}]},
            {
                "name": "online",
                "kind": "online",
                "sglang": {},
                "rates": [20],
                "duration_s": 1,
                "warm_up_s": 0,
                "work": {"workload": "exact:in=20,out=5", "num_requests": 9},
            },
            {"name": "decode", "kind": "decode", "batches": [1, 2], "context": 200},
        ],
    }

    def compare(self, folder, *words, fail=""):
        (folder / "plan.json").write_text(json.dumps(self.PLAN))
        (folder / "env.sh").write_text(f"export PYTHONPATH={HERE / 'stand_in'} STAND_IN_FAIL={fail}\n")
        command = ["--plan", str(folder / "plan.json"), "--json", str(folder / "out.json"), "--repeat", "1"]
        command += ["--table", str(folder / "out.md"), "--tandem", str(TANDEM), "--seconds", "300", *words]
        for side in comparison_plan.PEER_NAMES:
            command += [f"--{side}-env", str(folder / "env.sh"), f"--{side}-python", sys.executable]
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            status = compare_engines.main(command)
        return status, stdout.getvalue(), stderr.getvalue()

    def results(self, folder, row, variant):
        content = json.loads((folder / "out.json").read_text())
        entry = next(entry for entry in content["rows"] if entry["name"] == row)
        return {key: comparison_report.results_of(entry, variant, key) for key in entry["points"]}

    def test_all_sides_do_all_their_kinds(self):
        words = (
            []
            if TANDEM.with_name("bench_engine").exists()
            else ["--only", "offline", "--only", "prefill", "--only", "online"]
        )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            status, said, errors = self.compare(folder, *words)
            self.assertEqual(status, 0, said + errors)
            for side in ("vLLM", "SGLang", "Tandem"):
                ((offline,),) = self.results(folder, "offline", side).values()
                self.assertEqual(offline["completed"], 4)
                ((prefill,),) = self.results(folder, "prefill", side).values()
                self.assertEqual((prefill["total_input_tokens"], prefill["total_output_tokens"]), (128, 2))
                if side == "SGLang":
                    continue
                ((online,),) = self.results(folder, "online", side).values()
                self.assertEqual(online["total_output_tokens"], 5 * online["completed"])
                self.assertFalse(online.get("failed"))
            # The same requests.
            inputs = [
                list(self.results(folder, "offline", side).values())[0][0]["total_input_tokens"]
                for side in ("vLLM", "SGLang", "Tandem")
            ]
            self.assertEqual(inputs, inputs[:1] * 3)
            content = json.loads((folder / "out.json").read_text())
            versions = content["calls"][0]["versions"]
            self.assertEqual((versions["vllm"], versions["sglang"]), ("0.0-stand-in", "0.0-stand-in-sglang"))
            of_sglang = content["rows"][0]["variants"]["SGLang"]["runs"][0]["engine"]
            self.assertEqual((of_sglang["gpu_kv_tokens"], of_sglang["max_num_seqs"]), (4096, 1000))
            self.assertTrue(of_sglang["disable_prefill_cuda_graph"] and not of_sglang["prefix_caching"])
            self.assertIn("result", content["calls"][0]["anchor"]["points"]["exact:in=20,out=9 x 4"])
            self.assertNotIn(name, json.dumps(content))
            status, again, _ = self.compare(folder, "--resume", *words)
            self.assertEqual(status, 0)
            self.assertNotIn("round 1", again)
            self.assertEqual(len(json.loads((folder / "out.json").read_text())["calls"]), 2)

    def test_a_peer_that_does_not_start_is_reported_and_passed_over(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            status, said, errors = self.compare(folder, "--only", "offline", fail="load")
            self.assertEqual(status, 1)
            self.assertIn("there is no memory for the KV cache", errors)
            self.assertIn("there is no memory for the KV pool", errors)
            self.assertIn("- vLLM, osc:in=30,out=9 x 4: vllm_offline, vLLM, ended with 1", said)
            self.assertIn("- SGLang, osc:in=30,out=9 x 4: sglang_offline, SGLang, ended with 1", said)
            self.assertEqual(len(self.results(folder, "offline", "Tandem")["osc:in=30,out=9 x 4"]), 1)
            status, said, errors = self.compare(folder, "--only", "online", "--no-anchor", "--resume", fail="server")
            self.assertEqual(status, 1)
            self.assertIn("there is no memory for the KV cache", said)
            self.assertEqual(len(self.results(folder, "online", "Tandem")["20"]), 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
