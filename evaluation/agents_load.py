"""Numbers of the work that agents_on_gpu.py measures: how much KV, how often, for how long."""

from dataclasses import dataclass

# Products and attention on a slice of 16 SMs of an H200.
PREFILL_TFLOPS = 98


@dataclass(frozen=True)
class AgentShape:
    """Of one session of `agents:` (docs/bench_sessions.md); tokens, means where lengths are drawn."""

    system: int = 2000
    user: int = 2000
    tool: int = 100
    out: int = 24
    turns: int = 4

    def workload(self, sessions=None, pause_s=0.0):
        parts = [] if sessions is None else [f"sessions={sessions}"]
        parts += [f"{name}={getattr(self, name)}" for name in ("system", "user", "tool", "out", "turns")]
        return "agents:" + ",".join([*parts, f"pause={pause_s:.2f}"])

    @property
    def kv_tokens(self):
        """What a session holds besides the system prompt, which all share: the mean over its turns."""
        return self.user + self.out + (self.turns - 1) / 2 * (self.tool + self.out)

    @property
    def longest_turn(self):
        """No turn has more tokens, its answer included; a multiple of 1,024. Lengths are drawn within 10 %."""
        drawn = self.user + (self.turns - 1) * self.tool + self.turns * self.out
        return -(-int(self.system + 1.1 * drawn) // 1024) * 1024

    def sessions_that_fill(self, tokens):
        return (tokens - self.system) / self.kv_tokens


@dataclass(frozen=True)
class AgentLoad:
    """Sessions that begin at a rate, and pause so long that together they hold `times` the gpu tier."""

    shape: AgentShape
    gpu_tokens: int
    sessions_per_s: float
    turn_s: float  # of a session alone
    times: float

    @property
    def session_s(self):
        """From its start to its end, by Little's law."""
        return self.shape.sessions_that_fill(self.times * self.gpu_tokens) / self.sessions_per_s

    @property
    def pause_s(self):
        return max(0.0, (self.session_s - self.shape.turns * self.turn_s) / (self.shape.turns - 1))

    def measured_times(self, mean_turn_s):
        """KV over the gpu tier, with turns that take so long."""
        session_s = self.shape.turns * mean_turn_s + (self.shape.turns - 1) * self.pause_s
        return (self.shape.system + self.sessions_per_s * session_s * self.shape.kv_tokens) / self.gpu_tokens


def late_turns(report):
    """(turns of the window, those of them that were cut off)."""
    return report["counted_requests"], report["counted_requests"] - report["completed"]


def turn_percentiles_s(report):
    """((p50, exact), (p99, exact)) of all turns of the window. Not exact: at least so long, since some were cut off."""
    turns, late = late_turns(report)
    turn_ms = report["sessions"]["turn_ms"]
    deadline_s = report["deadline_s"]

    def of_all(share, name):
        # Of those that were done.
        done_s = 0.0 if turn_ms[name] is None else turn_ms[name] / 1e3
        return max(done_s, deadline_s) if late > (1 - share) * turns else done_s, late == 0

    return of_all(0.5, "median"), of_all(0.99, "p99")


def computed_twice(report):
    """Prompt tokens that an earlier turn had computed and the cache did not have, and tokens of preempted requests."""
    hits = report["prefix_hits"]
    return hits["possible_tokens"] - (hits["tokens"] or 0) + report["over_the_run"]["recomputed_tokens"]


def prefill_s(shape, num_tokens, tflops=PREFILL_TFLOPS):
    """Of a prompt alone; shape: of model_shapes.py."""
    hidden, head_dim = shape["hidden_size"], shape["head_dim"]
    heads, kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    linear = 2 * hidden * (head_dim * 2 * (heads + kv_heads) + 3 * shape["intermediate_size"])
    # Scores and values of half of all pairs.
    attention = 2 * 2 * heads * head_dim * num_tokens / 2
    return shape["num_hidden_layers"] * num_tokens * (linear + attention) / (tflops * 1e12)


def gaps_s(times):
    return [later - earlier for earlier, later in zip(times, times[1:])]
