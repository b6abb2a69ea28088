"""The servers that agents_on_gpu.py loads: Tandem with strategies and flags of its own, and vLLM."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "peers"))
import agents_streams  # noqa: E402
import agents_table  # noqa: E402
import bench_runner  # noqa: E402
import comparison_plan  # noqa: E402
import engine_groups  # noqa: E402
from agents_table import BOTH_TIERS  # noqa: E402
from peer_sides import Vllm  # noqa: E402

# Seconds of a server's start and end, guessed.
TANDEM_START_S = 25
VLLM_START_S = 80


def is_vllm(side):
    return side in agents_table.VLLM_SIDES


def start_s(side):
    return VLLM_START_S if is_vllm(side) else TANDEM_START_S


class Sides:
    """Words of servers and of what loads them. args: those of agents_on_gpu.py."""

    def __init__(self, args):
        self._args = args

    @property
    def model(self):
        """A shape of `tandem --dummy`, or None."""
        name = engine_groups.value_of(self._args.engine, "--dummy")
        return name and name.partition(":")[0]

    def server_command(self, side):
        """With the program; {port} is still to be filled in."""
        if is_vllm(side):
            return [str(word) for word in self._vllm_command(side)]
        return [str(self._args.tandem), *self.tandem_words(side), "--port", "{port}"]

    def tandem_words(self, side):
        """Behind the program."""
        return ["serve", *self._bench_command([], side)[3:]]

    def recorded(self, row_words, side):
        """What a result was measured with: `tandem bench online` that does the same in one process where there is one;
        else the server's words, and what is asked."""
        if is_vllm(side):
            return ["vllm", *self._vllm_flags(side), "--", *row_words]
        if "--workload" not in row_words:
            return ["tandem", *self.tandem_words(side), "--", *row_words]
        return self._bench_command(row_words, side)

    def load_words(self, side, row_name):
        """More words of `tandem bench online` against the side's server."""
        if not is_vllm(side):
            return []
        # Lengths are forced by ignore_eos alone, as in compare_engines.py; its cache cannot be emptied while it runs.
        return ["--extra-body", json.dumps({"min_tokens": 0, "cache_salt": f"{side} {row_name}"})]

    def forget(self, side, url):
        """All rows have the same sessions: what the row before computed is not to be found."""
        if not is_vllm(side):
            agents_streams.reset_prefix_cache(url)

    def _engine_words(self):
        args = self._args
        tiers = ["--gpu-kv-cache", f"{args.gpu_tokens}tok", "--cpu-kv-cache", f"{args.cpu_tokens}tok"]
        # The longest context of the cpu tier.
        longest = max(args.long_lengths) if "long" in args.parts else 0
        return [*args.engine, *tiers, *(["--kv-transit", f"{longest}tok"] if longest > 16384 else [])]

    def _bench_command(self, row_words, side):
        words = [*self._engine_words(), *row_words]
        if side != BOTH_TIERS:
            words = bench_runner.without_flag(words, "--kv-transit")
        return bench_runner.bench_command("tandem", "online", words, side)

    def _vllm_settings(self, side):
        _, flags = bench_runner.split_strategy(side)
        offload = {"kv_offload_gib": float(value) for name, value in flags if name == "kv-offload-gib"}
        return {"prefix_caching": True, **offload}

    def _vllm_flags(self, side):
        words = ["--model", self.model, "--gpu-kv-tokens", str(self._args.gpu_tokens)]
        return words + [f"--{name}={value}" for name, value in self._vllm_settings(side).items()]

    def _vllm_command(self, side):
        args = self._args
        fields = {"gpu_kv_tokens": args.gpu_tokens, "max_model_len": args.shape.longest_turn}
        row = comparison_plan.Row("agents", "online", self.model, {}, [], fields)
        variant = comparison_plan.Variant("vllm", side, self._vllm_settings(side))
        environment = args.vllm_env if args.vllm_env.exists() else None
        vllm = Vllm(args.tandem, None, None, args.vllm_python, environment)
        return [*vllm.server_words(row, variant), "--enable-prompt-tokens-details"]
