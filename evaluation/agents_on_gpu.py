#!/usr/bin/env python3
"""Measures what the prefix cache over both tiers does for agents whose KV is more than the gpu tier holds.

    python3 evaluation/agents_on_gpu.py --seconds 540 --resume --json OUT.json --table OUT.md
        -- --dummy llama-3.1-8b --device cuda --gpu-sm-limit 16 --profile-seconds 15

turns   `agents` (docs/bench_sessions.md) at --load of the sessions a minute that gpu-only sustains with as many at
        once as fill its tier; longer pauses make KV together 1, 2, 3 and 5 times the gpu tier. Three sides: gpu-only
        with the cache, auto with both tiers, gpu-only without a cache; with --vllm two more, vLLM with its prefix cache,
        without and with KV offload to the CPU's memory
resume  agents that send something new behind a long history, at once and alone, against the same prompts with nothing
        cached
long    one request as long as --long-tokens says (several: 32768,131072) beside short streams

Behind -- are the words of the engine but for the tiers. Steps of one side that follow each other share a server. A step
that does not fit into what is left of --seconds is not begun; --resume keeps what the JSON file has, with the same
commands, and measures what it lacks. --only TEXT: steps with TEXT in their name. Files are written after every step.
What fails is told and passed over. Exit code: 0 all done, 1 something failed, 3 nothing failed and steps are left over.
"""

import argparse
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "evaluation"), str(REPOSITORY / "evaluation/peers")]
import agents_sides  # noqa: E402
import agents_streams  # noqa: E402
import agents_table  # noqa: E402
import bench_runner  # noqa: E402
from agents_load import AgentLoad, AgentShape, prefill_s  # noqa: E402
from agents_table import BOTH_TIERS, CACHED_GPU_ONLY, UNCACHED  # noqa: E402
from completion_client import model_name  # noqa: E402
from model_shapes import SHAPES  # noqa: E402
from server_process import Server, ServerCommand  # noqa: E402

LEFT_OVER = 3
# In the order of their worth. Without a cache pauses change nothing.
FIRST_TURNS = ((CACHED_GPU_ONLY, (1, 3)), (BOTH_TIERS, (1, 3)))
LATER_TURNS = ((UNCACHED, (1, 3)), (BOTH_TIERS, (5, 2)), (CACHED_GPU_ONLY, (5, 2)))
VLLM_TURNS = tuple((side, (3, 1)) for side in agents_table.VLLM_SIDES)
# What a client's run takes besides, and how much longer than expected a step may take.
CLIENT_S = 3
PATIENCE = 1.5
COUNTERS = {
    "recomputed_tokens": "tandem:recomputed_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "queried_tokens": "vllm:prefix_cache_queries_total",
    "hit_tokens": "vllm:prefix_cache_hits_total",
    "cpu_tier_tokens": "tandem:cpu_tier_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
    "swapped_tokens": "tandem:swapped_tokens_total",
}
KEPT = (
    "duration",
    "window_s",
    "deadline_s",
    "counted_requests",
    "completed",
    "failed",
    "rejected",
    "unsent",
    "errors",
    "output_throughput",
    "sessions",
    "prefix_hits",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "peak_concurrency",
    "client_cpu_share",
    "machine",
)


@dataclass
class Step:
    """A row and one of its sides. measure(server, seconds) gives its result or raises RuntimeError."""

    row: dict
    strategy: str
    expected_s: float
    measure: callable


def parse_args(words=None):
    words = sys.argv[1:] if words is None else words
    end = words.index("--") if "--" in words else len(words)
    own, engine = words[:end], words[end + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parts", default="turns,resume,long", help="separated by commas")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="steps with TEXT in their name")
    parser.add_argument("--seconds", type=float, default=540, help="of this call, all that it does included")
    parser.add_argument("--gpu-tokens", type=int, default=16000, help="the gpu tier")
    parser.add_argument("--cpu-tokens", type=int, default=200000, help="the cpu tier, of auto")
    shape = AgentShape()
    parser.add_argument("--system", type=int, default=shape.system, help="tokens that all share, agents and histories")
    for name in ("user", "tool", "out", "turns"):
        parser.add_argument(f"--{name}", type=int, default=getattr(shape, name), help="of `agents`")
    parser.add_argument("--load", type=float, default=0.6, help="of what gpu-only sustains")
    parser.add_argument(
        "--sustained", metavar="R,S", help="sessions a minute and seconds of a turn alone: not measured then"
    )
    parser.add_argument("--window", type=float, default=30, help="seconds that count, behind one session's length")
    parser.add_argument("--deadline", type=float, default=20, help="seconds of turns that are under way at the end")
    parser.add_argument("--agents", type=int, default=8, help="that resume at once")
    parser.add_argument("--history", type=int, default=8000, help="tokens of each")
    parser.add_argument("--new", type=int, default=300, help="tokens behind it")
    parser.add_argument("--rounds", type=int, default=2, help="of resuming")
    parser.add_argument("--long-tokens", default="32768,131072", help="prompt and output, separated by commas")
    parser.add_argument("--long-seconds", type=float, default=240, help="of one of them at most")
    parser.add_argument("--short-streams", type=int, default=8, help="beside it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tandem", type=Path, default=REPOSITORY / "build/cuda-release/tandem")
    parser.add_argument("--vllm", action="store_true", help="turns beside vLLM; the engine has --dummy")
    parser.add_argument("--vllm-python", default="python3")
    environment = Path(tempfile.gettempdir()) / "vllm_env.sh"
    parser.add_argument("--vllm-env", type=Path, default=environment, help="a shell file that its processes source")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    parser.add_argument("--logs", type=Path, help="folder for what servers say (default: of failures, their end)")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and their expected seconds, and stop")
    args = parser.parse_args(own)
    args.engine = engine
    args.parts = args.parts.split(",")
    args.long_lengths = [int(text) for text in args.long_tokens.split(",")]
    args.shape = AgentShape(args.system, args.user, args.tool, args.out, args.turns)
    if unknown := set(args.parts) - {"turns", "resume", "long"}:
        parser.error(f"--parts are turns, resume and long, not {', '.join(sorted(unknown))}")
    if args.vllm and agents_sides.Sides(args).model not in SHAPES:
        parser.error("--vllm: behind -- stands no --dummy with a shape that vLLM can have as well")
    if args.turns < 2:
        parser.error("--turns is at least 2: agents pause between two")
    if args.history < args.system:
        parser.error(f"--history {args.history} is less than --system {args.system}, with which it begins")
    if args.shape.sessions_that_fill(args.gpu_tokens) < 1:
        tokens = args.system + args.shape.kv_tokens
        parser.error(f"--gpu-tokens {args.gpu_tokens} hold no session of {tokens:.0f} tokens")
    return args


class Plan:
    """The steps of a call. Rows of turns are known once it is known what gpu-only sustains."""

    def __init__(self, args):
        self.args = args
        self.rows = []
        self.steps = []
        self.sides = agents_sides.Sides(args)
        # Others are files, which are small.
        self._model_shape = SHAPES.get(self.sides.model, SHAPES["tiny"])

    def command(self, row, side):
        return self.sides.recorded(row["args"], side)

    def later_turns(self):
        return [*(VLLM_TURNS if self.args.vllm else ()), *LATER_TURNS]

    def _step(self, name, words, strategy, expected_s, measure):
        row = next((row for row in self.rows if row["name"] == name), None)
        if row is None:
            row = {"name": name, "args": words, "runs": {}, "strategies": list(agents_table.SIDES)}
            self.rows.append(row)
        return Step(row, strategy, expected_s, measure)

    def wanted(self, steps):
        only = self.args.only
        return [step for step in steps if not only or any(text in step.row["name"] for text in only)]

    def sustained_step(self):
        sessions = int(self.args.shape.sessions_that_fill(self.args.gpu_tokens))
        words = ["--workload", self.args.shape.workload(sessions), "--rate", "inf", "--seed", str(self.args.seed)]

        def measure(server, seconds):
            return measure_sustained(self.args, server, sessions, seconds)

        return self._step(agents_table.SUSTAINED, words, CACHED_GPU_ONLY, 30, measure)

    def turn_steps(self, sides, sustained):
        return self.wanted(
            self._turn_step(strategy, times, sustained) for strategy, all_times in sides for times in all_times
        )

    def _turn_step(self, strategy, times, sustained):
        args = self.args
        rate = args.load * sustained["sessions_per_minute"] / 60
        load = AgentLoad(args.shape, args.gpu_tokens, rate, sustained["turn_s"], times)
        duration_s = load.session_s + args.window
        words = ["--workload", args.shape.workload(pause_s=load.pause_s), "--rate", f"{rate:.4f}"]
        words += ["--duration", f"{duration_s:.1f}", "--warm-up", f"{load.session_s:.1f}", "--end-sessions"]
        words += ["--deadline", f"{args.deadline:g}", "--seed", str(args.seed)]
        late_s = CLIENT_S if strategy == BOTH_TIERS else args.deadline

        def measure(server, seconds):
            self.sides.forget(strategy, server.url)
            own_words = self.sides.load_words(strategy, agents_table.turns_name(times))
            result = measure_online(args, server, [*words, *own_words], seconds)
            mean_turn_s = result["sessions"]["turn_ms"]["mean"]
            measured = None if mean_turn_s is None else load.measured_times(mean_turn_s / 1e3)
            return {**result, "kv_over_gpu_tier": {"wanted": times, "measured": measured}}

        expected_s = duration_s + late_s + CLIENT_S
        return self._step(agents_table.turns_name(times), words, strategy, expected_s, measure)

    def resume_step(self):
        args = self.args
        full_s = prefill_s(self._model_shape, args.history + args.new)

        def measure(server, seconds):
            prompts = agents_streams.Prompts(server.url, model_name(server.url))
            lengths = (args.system, args.history, args.new)
            work = agents_streams.resume(prompts, server.url, args.agents, *lengths, args.rounds, args.seed)
            held = args.system + args.agents * (args.history - args.system + args.new)
            result = {"agents": args.agents, "shared_tokens": args.system}
            result |= {"history_tokens": args.history, "new_tokens": args.new}
            result["kv_over_gpu_tier"] = {"measured": held / args.gpu_tokens}
            return result | agents_streams.run_with_limit(work, seconds)

        # All twice in full and two alone, and something is lost.
        expected_s = 1.3 * args.rounds * full_s * (2 * args.agents + 2)
        words = [f"{name}={getattr(args, name)}" for name in ("agents", "system", "history", "new", "rounds", "seed")]
        return self._step(agents_table.RESUME, words, BOTH_TIERS, expected_s + CLIENT_S, measure)

    def long_step(self, num_tokens):
        args = self.args

        def measure(server, seconds):
            prompts = agents_streams.Prompts(server.url, model_name(server.url))
            agents_streams.reset_prefix_cache(server.url)
            limit_s = min(seconds, args.long_seconds)
            work = agents_streams.long_request(prompts, num_tokens, args.short_streams, args.seed, limit_s)
            result = agents_streams.run_with_limit(work, limit_s + 30)
            return {"tokens": num_tokens, "short_streams": args.short_streams, **result}

        # Twice the time of the prompt alone: the short ones have their share.
        expected_s = min(args.long_seconds, 2 * prefill_s(self._model_shape, num_tokens) + 10)
        words = [f"tokens={num_tokens}", f"short_streams={args.short_streams}", f"seed={args.seed}"]
        return self._step(agents_table.long_name(num_tokens), words, BOTH_TIERS, expected_s + CLIENT_S, measure)


def counters_of(server):
    found = agents_streams.read_counters(server.url, COUNTERS.values())
    return {name: found[metric] for name, metric in COUNTERS.items()}


def measure_online(args, server, words, seconds):
    """What is kept of the report of `tandem bench online` against the server, and what the server counted meanwhile."""
    before = counters_of(server)
    command = [str(args.tandem), "bench", "online", "--url", server.url, *words]
    command += ["--vocab-size", str(agents_streams.PROMPT_VOCAB_SIZE)]
    _, report, reason = bench_runner.run_program(command, seconds)
    if report is None:
        raise RuntimeError(reason)
    after = counters_of(server)
    kept = {field: report[field] for field in KEPT if report.get(field) is not None}
    return {**kept, "over_the_run": {name: after[name] - before[name] for name in before}}


def measure_sustained(args, server, sessions, seconds):
    """Sessions a minute with as many at once as fill the tier, without pauses, and seconds of a turn of one alone."""
    end = time.monotonic() + seconds
    shape = args.shape
    only_the_beginning = AgentShape(system=shape.system, user=1, tool=1, out=1, turns=1)

    def online(workload, seed):
        words = ["--workload", workload, "--rate", "inf", "--seed", str(seed)]
        return measure_online(args, server, words, end - time.monotonic())

    def with_known_beginning(workload, seed):
        agents_streams.reset_prefix_cache(server.url)
        online(only_the_beginning.workload(1), seed)
        return online(workload, seed)

    # The first one warms up.
    with_known_beginning(shape.workload(sessions), args.seed)
    runs = [with_known_beginning(shape.workload(sessions), args.seed + 1 + index) for index in range(3)]
    alone = with_known_beginning(shape.workload(1), args.seed)
    minutes = sum(run["duration"] for run in runs) / 60
    return {
        "sessions_at_once": sessions,
        "sessions_per_minute": sum(run["sessions"]["finished"] for run in runs) / minutes,
        "turn_s": alone["sessions"]["turn_ms"]["mean"] / 1e3,
    }


class Call:
    """Runs steps while there is time, and keeps the files up to date."""

    def __init__(self, args, plan):
        self._args = args
        self._plan = plan
        self._begin = time.monotonic()
        self._other_rows = []
        self._taken_over = set()
        self.failed = 0
        self.left_over = 0

    def left_s(self):
        return self._args.seconds - (time.monotonic() - self._begin)

    def lacking(self, steps):
        """Of the steps, those that the file does not have."""
        rows = [row for row in self._plan.rows if row["name"] not in self._taken_over]
        path = self._args.json if self._args.resume else None
        others = bench_runner.take_over(path, rows, self._plan.command)
        if not self._taken_over:
            self._other_rows = others
        self._taken_over |= {row["name"] for row in rows}
        self._other_rows = [row for row in self._other_rows if row["name"] not in self._taken_over]
        return [step for step in steps if step.strategy not in step.row["runs"]]

    def run(self, steps, and_then):
        """Steps of one side that follow each other share a server. and_then(step): more steps, which come next."""
        steps = list(steps)
        while steps:
            strategy = steps[0].strategy
            if agents_sides.start_s(strategy) + steps[0].expected_s > self.left_s():
                self._leave_over(steps.pop(0))
                continue
            with tempfile.TemporaryDirectory() as temporary:
                folder = self._args.logs or Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                log = folder / f"server_{re.sub('[^a-z0-9-]', '_', strategy)}_{self.left_s():.0f}.log"
                words = self._plan.sides.server_command(strategy)
                begin = time.monotonic()
                try:
                    with Server(ServerCommand(words), os.cpu_count(), log, max(1, self.left_s())) as server:
                        print(f"{strategy}: started in {time.monotonic() - begin:.0f} s", flush=True)
                        while steps and steps[0].strategy == strategy:
                            step = steps.pop(0)
                            self._run_step(step, server, log)
                            steps[:0] = and_then(step)
                except (SystemExit, OSError) as error:
                    while steps and steps[0].strategy == strategy:
                        self._keep(steps.pop(0), {"error": f"the server: {error}"}, begin)

    def _run_step(self, step, server, log):
        if step.expected_s > self.left_s():
            return self._leave_over(step)
        begin = time.monotonic()
        try:
            done = {"result": step.measure(server, min(self.left_s(), PATIENCE * step.expected_s + 20))}
        except (RuntimeError, OSError, KeyError, TypeError, ValueError) as error:
            said = bench_runner.last_lines(log.read_text(errors="replace"))
            done = {"error": f"{type(error).__name__}: {error}; the server: {said}"}
        return self._keep(step, done, begin)

    def _keep(self, step, done, begin):
        command = self._plan.command(step.row, step.strategy)
        wall_s = time.monotonic() - begin
        step.row["runs"][step.strategy] = {"command": command, "wall_s": wall_s, **done}
        step.row["runs"] = bench_runner.in_order(step.row)
        self.failed += "error" in done
        said = done.get("error") or agents_table.say(step.row["name"], done["result"])
        print(f"{step.row['name']}, {step.strategy}: {said} ({wall_s:.0f} of {step.expected_s:.0f} s)", flush=True)
        self.write()

    def _leave_over(self, step):
        self.left_over += 1
        print(f"{step.row['name']}, {step.strategy}: left over, {step.expected_s:.0f} s", flush=True)

    def write(self):
        rows = [*self._other_rows, *self._plan.rows]
        bench_runner.write_rows(self._args.json, rows)
        if self._args.table:
            bench_runner.replace_file(self._args.table, agents_table.tables(rows))


def sustained_of(args, row):
    """What gpu-only sustains, as given or measured; None if it is not known."""
    if args.sustained:
        sessions_per_minute, turn_s = map(float, args.sustained.split(","))
        return {"sessions_per_minute": sessions_per_minute, "turn_s": turn_s}
    return row["runs"].get(CACHED_GPU_ONLY, {}).get("result")


def main(words=None):
    args = parse_args(words)
    # The server is stopped by its context.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = Plan(args)
    call = Call(args, plan)
    sustained_step = plan.sustained_step()
    measured_first = call.lacking([sustained_step]) if "turns" in args.parts and not args.sustained else []

    def turns(sides):
        sustained = sustained_of(args, sustained_step.row)
        if "turns" not in args.parts or sustained is None:
            return []
        return call.lacking(plan.turn_steps(sides, sustained))

    def rest():
        steps = []
        if "resume" in args.parts:
            steps.append(plan.resume_step())
        if "long" in args.parts:
            steps += [plan.long_step(length) for length in args.long_lengths]
        return call.lacking(plan.wanted(steps))

    known = [*measured_first, *turns(FIRST_TURNS), *rest(), *turns(plan.later_turns())]
    if args.dry_run:
        for step in known:
            command = shlex.join(plan.command(step.row, step.strategy))
            print(f"{step.row['name']}, {step.strategy}: {step.expected_s:.0f} s: {command}")
        return 0
    later = []

    def and_then(step):
        if step is not sustained_step:
            return []
        later.extend(turns(plan.later_turns()))
        return turns(FIRST_TURNS)

    call.run(known, and_then)
    call.run(later, and_then)
    call.write()
    print(agents_table.tables(plan.rows))
    if call.failed:
        return 1
    return LEFT_OVER if call.left_over else 0


if __name__ == "__main__":
    sys.exit(main())
