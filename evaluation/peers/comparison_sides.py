"""Runs points of a row on one side: one start of an engine or of a server each. Here what all sides share, and
Tandem; peer_sides.py has the others.

What compares with what:

    offline, prefill  a peer's generate from its begin to its end; `tandem bench offline`, from the first request to the
                      last token. All requests are there at the start, all are warm; of prefill outputs have one token.
    decode            offline_engine.py: the time that 128 more steps of the whole batch take. bench_engine: an
                      iteration by the device's clock and the gap to the next: what a step takes in such a run.
    online            the servers of both, loaded by `tandem bench online` with the same arrivals.
"""

import csv
import json
import os
import re
import subprocess
import sys
import time

import bench_runner
from server_process import START_TIMEOUT_S, Server, ServerCommand

# What is kept of a report.
FIELDS = (
    "duration",
    "completed",
    "failed",
    "rejected",
    "counted_requests",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    *(f"{which}_{what}_ms" for what in ("ttft", "tpot", "itl") for which in ("mean", "median", "p99")),
    "preemptions",
    "cpu_tier_tokens",
    "strategy_iterations",
    "peak_concurrency",
    "client_cpu_share",
)
# Lengths are forced by ignore_eos alone: what forbids the end of text costs vLLM a step of its sampler.
EXTRA_BODY = '{"min_tokens":0}'
STOP_SECONDS = 35


class Failure(Exception):
    """What went wrong, as a sentence for the table."""


def kept(report):
    return {field: report[field] for field in FIELDS if report.get(field) is not None}


def engine_of(report):
    """Settings of Tandem's engine that a table names."""
    names = ("gpu_kv_tokens", "cpu_kv_tokens", "max_num_seqs", "max_num_batched_tokens", "dtype", "device")
    return {name: report[name] for name in names if report.get(name) is not None}


class Requests:
    """The files with the requests of works, as Tandem writes them."""

    def __init__(self, tandem, folder):
        self._tandem = tandem
        self._folder = folder
        self._files = {}

    def file(self, row, work, output_tokens=None):
        """(CSV file, how many): without requests beyond the row's context; output_tokens: in place of the work's."""
        key = (row.model, row.fields["max_model_len"], json.dumps(work, sort_keys=True), output_tokens)
        if key not in self._files:
            self._files[key] = self._write(row, work, output_tokens, self._folder / f"requests_{len(self._files)}.csv")
        return self._files[key]

    def _write(self, row, work, output_tokens, path):
        lengths = exact_lengths(work) or self._dumped_lengths(row, work)
        most = row.fields["max_model_len"]
        lengths = [(prompt, output) for prompt, output in lengths if prompt + output <= most]
        if not lengths:
            raise Failure(f"{work['name']}: behind the offset {work['offset']} no request fits into {most} tokens")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["prompt_tokens", "output_tokens"])
            writer.writerows([prompt, output_tokens or output] for prompt, output in lengths)
        return path, len(lengths)

    def _dumped_lengths(self, row, work):
        dumped = self._folder / "dumped.json"
        count = work["offset"] + work["num_requests"]
        words = ["bench", "offline", "--dummy", row.model, "--workload", work["workload"], "--num-requests", count]
        words += ["--dump-workload", dumped]
        done = subprocess.run([str(self._tandem), *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"--dump-workload of {work['name']}: {bench_runner.last_lines(done.stderr)}")
        requests = json.loads(dumped.read_text())["requests"][work["offset"] :]
        return [(request["prompt_tokens"], request["output_tokens"]) for request in requests]


def exact_lengths(work):
    """Of exact:in=2048,out=1; None of any other workload."""
    kind, _, text = work["workload"].partition(":")
    if kind != "exact":
        return None
    lengths = dict(pair.split("=") for pair in text.split(","))
    return [(int(lengths["in"]), int(lengths["out"]))] * work["num_requests"]


class Side:
    """measure() is what the schedule calls; a side has _offline(), and server_words() for online rows."""

    def __init__(self, tandem, requests, log_folder):
        self.tandem = tandem
        self.requests = requests
        self._log_folder = log_folder
        self._num_logs = 0

    def measure(self, row, variant, keys, seconds):
        """{"start_s", "engine", "points": {key: {"wall_s", "result"} or {"error"}}} of one start."""
        begin = time.monotonic()
        run = {"start_s": 0.0, "engine": {}, "points": {}}
        try:
            if row.kind == "online":
                self._online(row, variant, keys, begin + seconds, run)
            else:
                self._offline(row, variant, keys, begin + seconds, run)
            reason = None
        except (Failure, OSError) as failure:
            # A program that is not there is an OSError.
            reason = str(failure)
        for key in keys:
            run["points"].setdefault(key, {"error": reason or "nothing was measured"})
        # To load, to warm up, to end.
        walls = sum(point.get("wall_s", 0) for point in run["points"].values())
        run["start_s"] = time.monotonic() - begin - walls
        return run

    def log_path(self, what):
        self._num_logs += 1
        return self._log_folder / f"{self._num_logs:02}_{re.sub(r'[^A-Za-z0-9]+', '_', what)}.log"

    def program(self, words, deadline, what):
        """What it wrote to --json, or None, and why there is no more."""
        log = self.log_path(what)
        seconds = max(1, deadline - time.monotonic())
        wall_s, result, reason = bench_runner.run_program([str(word) for word in words], seconds, log)
        if result is None or not reason.startswith("ended with 0"):
            show_end(log)
        return wall_s, result, f"{what} {reason}"

    def _online(self, row, variant, keys, deadline, run):
        csv_file, _ = self.requests.file(row, row.fields["work"])
        log = self.log_path(f"serve {variant.name}")
        command = ServerCommand([str(word) for word in self.server_words(row, variant)])
        patience_s = min(START_TIMEOUT_S, max(1, deadline - STOP_SECONDS - time.monotonic()))
        try:
            with Server(command, os.cpu_count(), log, patience_s) as server:
                for key in keys:
                    left = deadline - STOP_SECONDS - time.monotonic()
                    if left <= 0:
                        raise Failure("the time was over")
                    run["points"][key] = self._load(row, server.url, csv_file, row.points[key]["rate"], left)
        except SystemExit as error:
            show_end(log)
            raise Failure(bench_runner.last_lines(str(error))) from None

    def _load(self, row, url, csv_file, rate, seconds):
        fields = row.fields
        words = [self.tandem, "bench", "online", "--url", url, "--dummy", row.model, "--workload", csv_file]
        words += ["--rate", f"{rate:g}", "--duration", fields["duration_s"], "--warm-up", fields["warm_up_s"]]
        words += ["--cool-down", fields["cool_down_s"], "--num-warmup", fields["num_warmup"]]
        words += ["--extra-body", EXTRA_BODY]
        wall_s, result, reason = self.program(words, time.monotonic() + seconds, f"load at {rate:g} a second:")
        if result is None or not result.get("completed"):
            return {"error": reason}
        return {"wall_s": wall_s, "result": kept(result)}


def show_end(log, num_lines=30):
    print("\n".join(log.read_text(errors="replace").splitlines()[-num_lines:]), file=sys.stderr, flush=True)


class Tandem(Side):
    def _engine_words(self, row, variant):
        words = ["--dummy", row.model]
        if "--dtype" not in variant.settings:
            words += ["--dtype", "bf16"]
        # Nor do the others have one, unless a variant asks for it.
        if not any(word.endswith("enable-prefix-caching") for word in variant.settings):
            words.append("--no-enable-prefix-caching")
        if row.fields["gpu_kv_tokens"]:
            words += ["--gpu-kv-cache", f"{row.fields['gpu_kv_tokens']}tok"]
        return words + list(variant.settings)

    def _offline(self, row, variant, keys, deadline, run):
        if row.kind == "decode":
            self._decode(row, variant, keys, deadline, run)
            return
        # Each point starts an engine of its own: that is in its time.
        for key in keys:
            try:
                csv_file, num_requests = self.requests.file(row, row.points[key], 1 if row.kind == "prefill" else None)
            except Failure as failure:
                run["points"][key] = {"error": str(failure)}
                continue
            words = [self.tandem, "bench", "offline", *self._engine_words(row, variant), "--workload", csv_file]
            words += ["--num-requests", num_requests, "--num-warmup", row.fields["num_warmup"]]
            words += ["--max-model-len", row.fields["max_model_len"]]
            wall_s, result, reason = self.program(words, deadline, f"bench offline, {variant.name},")
            if result is None or result.get("failed") or not result.get("completed"):
                run["points"][key] = {"error": reason}
                continue
            run["engine"] = engine_of(result)
            run["points"][key] = {"wall_s": wall_s, "result": kept(result)}

    def _decode(self, row, variant, keys, deadline, run):
        program = self.tandem.with_name("bench_engine")
        words = [program, *self._engine_words(row, variant), "--batches", ",".join(keys)]
        words += ["--context", row.fields["context"], "--max-model-len", row.fields["max_model_len"]]
        # The least that it does besides.
        words += ["--prefills", 1, "--prompt-len", 16]
        _, result, reason = self.program(words, deadline, f"bench_engine, {variant.name},")
        if result is None:
            raise Failure(reason)
        run["engine"] = engine_of(result)
        for decode in result["decode"]:
            step_ms = (decode["iteration_us"] + decode["gap_us"]) / 1e3
            values = {"step_ms": step_ms, "gap_ms": decode["gap_us"] / 1e3, "context": decode["mean_context"]}
            run["points"][f"{decode['batch']:g}"] = {"wall_s": 0.0, "result": values}

    def server_words(self, row, variant):
        words = [self.tandem, "serve", *self._engine_words(row, variant), "--port", "{port}", "--log-level", "warn"]
        # vLLM queues without a limit.
        return [*words, "--max-model-len", row.fields["max_model_len"], "--max-num-queued-reqs", 1_000_000]
