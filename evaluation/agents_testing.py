"""Results as agents_on_gpu.py has them, for tests."""

from agents_load import AgentShape
from agents_table import turns_name

DEADLINE_S = 20


def turns_report(times, p50_s=1.0, p99_s=2.0, late=0, per_minute=60.0, possible=1000, found=1000, recomputed=0):
    """Of 100 turns."""
    turn_ms = {"mean": 1e3 * p50_s, "median": 1e3 * p50_s, "p90": 1e3 * p99_s, "p99": 1e3 * p99_s}
    return {
        "counted_requests": 100,
        "completed": 100 - late,
        "deadline_s": DEADLINE_S,
        "output_throughput": 10.0,
        "sessions": {"turn_ms": turn_ms, "later_turn_ttft_ms": turn_ms, "turns_per_minute": per_minute},
        "prefix_hits": {"possible_tokens": possible, "tokens": found, "share_of_possible": found / possible},
        "over_the_run": {
            "recomputed_tokens": recomputed,
            "preemptions": 0,
            "cpu_tier_tokens": 5,
            "generated_tokens": 20,
        },
        "kv_over_gpu_tier": {"wanted": times, "measured": times + 0.1},
    }


def turns_row(times, sides):
    """sides: {side: arguments of turns_report}"""
    runs = {
        side: {"command": ["tandem"], "wall_s": 1, "result": turns_report(times, **own)} for side, own in sides.items()
    }
    return {"name": turns_name(times), "args": ["--workload", AgentShape().workload()], "runs": runs}
