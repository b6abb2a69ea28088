"""What agents_on_gpu.py measured, as Markdown. Rows are those of its JSON file."""

from agents_load import computed_twice, late_turns, turn_percentiles_s

# The sides, as strategies with flags of their own.
TANDEM_SIDES = CACHED_GPU_ONLY, BOTH_TIERS, UNCACHED = ("gpu-only", "auto", "gpu-only:no-enable-prefix-caching")
VLLM_SIDES = ("vllm", "vllm:kv-offload-gib=32")
SIDES = (*TANDEM_SIDES, *VLLM_SIDES)
SIDE_NAMES = {
    CACHED_GPU_ONLY: "gpu-only with the cache",
    BOTH_TIERS: "auto, both tiers",
    UNCACHED: "gpu-only without a cache",
    VLLM_SIDES[0]: "vLLM with its cache",
    VLLM_SIDES[1]: "vLLM, and 32 GiB of KV offload",
}
SUSTAINED = "sustained"
RESUME = "resume"
LONG = "long"
TURNS = "turns"
RESUME_NAMES = {
    "resumed": "at once, resumed",
    "in_full": "at once, in full",
    "alone_resumed": "alone, resumed",
    "alone_in_full": "alone, in full",
}
# Of a result: what is read of it, here and in figures.
FIELDS = (
    "sessions_at_once",
    "sessions_per_minute",
    "turn_s",
    "counted_requests",
    "deadline_s",
    *(f"sessions.{name}" for name in ("begun", "finished", "turns_per_minute", "later_turn_ttft_ms.p99")),
    *(f"sessions.turn_ms.{name}" for name in ("mean", "median", "p99")),
    *(f"prefix_hits.{name}" for name in ("possible_tokens", "tokens", "share_of_possible")),
    *(f"over_the_run.{name}" for name in ("recomputed_tokens", "preemptions", "cpu_tier_tokens", "generated_tokens")),
    "kv_over_gpu_tier.wanted",
    "kv_over_gpu_tier.measured",
    "agents",
    "shared_tokens",
    "history_tokens",
    "new_tokens",
    *(f"{key}.{what}" for key in RESUME_NAMES for what in ("requests", "median_ttft_ms", "p99_ttft_ms")),
    *(f"{key}.cached_tokens" for key in RESUME_NAMES),
    "tokens",
    "served",
    "seconds",
    "prefill_s",
    "token_ms",
    *(f"short_{name}" for name in ("gap_max_ms", "gap_p99_ms", "gap_median_ms", "ttft_max_ms", "requests", "streams")),
)


def turns_name(times):
    return f"{TURNS} {times:g}x"


def long_name(num_tokens):
    return f"{LONG} {num_tokens}"


def number(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def seconds(value, exact):
    """With a sign where it may be more."""
    return f"{'' if exact else 'at least '}{value:.2f}"


def markdown(header, lines):
    return "\n".join(["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *lines)]) + "\n"


def results_of(row):
    return {side: run["result"] for side, run in row["runs"].items() if "result" in run}


def turn_cells(report):
    (median, median_exact), (p99, p99_exact) = turn_percentiles_s(report)
    turns, late = late_turns(report)
    sessions, hits = report["sessions"], report["prefix_hits"]
    counted = report["over_the_run"]
    first_token_ms = sessions["later_turn_ttft_ms"]["p99"]
    cpu_share = counted["cpu_tier_tokens"] / counted["generated_tokens"] if counted["generated_tokens"] else None
    return [
        number(report["kv_over_gpu_tier"]["measured"], 1),
        str(turns),
        seconds(median, median_exact),
        seconds(p99, p99_exact),
        number(None if first_token_ms is None else first_token_ms / 1e3, 2),
        number(sessions["turns_per_minute"], 0),
        str(late),
        number(computed_twice(report), 0),
        number(hits["share_of_possible"], 3),
        number(counted["preemptions"], 0),
        number(cpu_share, 2),
    ]


TURN_HEADER = [
    "KV",
    "",
    "measured",
    "turns",
    "turn p50, s",
    "p99, s",
    "later first tokens p99, s",
    "turns a minute",
    "cut off",
    "tokens computed twice",
    "hits of possible",
    "preemptions",
    "decoded in the cpu tier",
]


def turn_rows(rows):
    return sorted((row for row in rows if row["name"].startswith(TURNS)), key=lambda row: row["name"])


def turns_table(rows):
    lines = []
    for row in turn_rows(rows):
        name = row["name"].removeprefix(TURNS).strip()
        for side, report in sorted(results_of(row).items(), key=lambda item: SIDES.index(item[0])):
            lines.append([name, SIDE_NAMES[side], *turn_cells(report)])
    return markdown(TURN_HEADER, lines) if lines else ""


def resume_table(report):
    header = ["", "requests", "first token p50, ms", "p99, ms", "cached tokens"]
    lines = [
        [
            name,
            str(report[key]["requests"]),
            number(report[key]["median_ttft_ms"], 0),
            number(report[key]["p99_ttft_ms"], 0),
            number(report[key]["cached_tokens"], 0),
        ]
        for key, name in RESUME_NAMES.items()
    ]
    title = (
        f"{report['agents']} agents, {report['history_tokens']:,} tokens of history, {report['shared_tokens']:,} shared, "
        f"and {report['new_tokens']} new: {report['kv_over_gpu_tier']['measured']:.1f} times the gpu tier"
    )
    return f"{title}\n\n{markdown(header, lines)}"


def long_table(reports):
    header = ["tokens", "prefill, s", "a token, ms", "longest gap beside it, ms", "gaps p99, ms", "p50, ms"]
    header += ["longest wait for a first token, ms", "short requests served", "short streams"]
    lines = [
        [
            f"{report['tokens']:,}",
            number(report.get("prefill_s"), 1) if report["served"] else f"not done in {report['seconds']:.0f} s",
            number(report.get("token_ms"), 0),
            number(report["short_gap_max_ms"], 0),
            number(report["short_gap_p99_ms"], 0),
            number(report["short_gap_median_ms"], 0),
            number(report["short_ttft_max_ms"], 0),
            str(report["short_requests"]),
            str(report["short_streams"]),
        ]
        for report in sorted(reports, key=lambda report: report["tokens"])
    ]
    return markdown(header, lines) if lines else ""


def say_sustained(report):
    sustained = f"gpu-only sustains {report['sessions_per_minute']:.1f} sessions a minute"
    return f"{sustained}, {report['sessions_at_once']} at once; a turn alone takes {report['turn_s']:.2f} s"


def say(name, report):
    """One line of what a step found."""
    if name == SUSTAINED:
        return say_sustained(report)
    if name.startswith(TURNS):
        cells = dict(zip(TURN_HEADER[2:], turn_cells(report), strict=True))
        return ", ".join(f"{title} {cell}" for title, cell in cells.items())
    if name == RESUME:
        return ", ".join(f"{text} p99 {report[key]['p99_ttft_ms']:.0f} ms" for key, text in RESUME_NAMES.items())
    return f"prefill {number(report.get('prefill_s'), 1)} s, longest gap {number(report['short_gap_max_ms'], 0)} ms"


def tables(rows):
    by_name = {row["name"]: list(results_of(row).values()) for row in rows}
    parts = [say_sustained(report) + "\n" for report in by_name.get(SUSTAINED, [])]
    parts.append(turns_table(rows))
    parts += [resume_table(report) for report in by_name.get(RESUME, [])]
    parts.append(long_table([each for name, found in by_name.items() if name.startswith(LONG) for each in found]))
    runs = [(f"{row['name']}, {side}", run) for row in rows for side, run in row["runs"].items()]
    errors = [f"- {what}: {run['error']}" for what, run in runs if "error" in run]
    return "\n".join(part for part in [*parts, "\n".join(errors)] if part)
