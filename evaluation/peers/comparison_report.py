"""Tables of what compare_engines.py measured: medians over the rounds and, behind ±, half their range."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import repeats  # noqa: E402
from comparison_plan import PEER_NAMES  # noqa: E402

# A call whose anchor differs by more from the first call's ran on another kind of machine, or a disturbed one.
ANCHOR_TOLERANCE = 0.03


def prompt_throughput(result):
    return result["total_input_tokens"] / result["duration"]


# kind: (what a cell says, its value in a result, digits, whether more is better).
FIGURE_OF = {
    "offline": ("output tok/s", lambda result: result["output_throughput"], 1, True),
    "prefill": ("prompt tok/s", prompt_throughput, 0, True),
    "decode": ("ms a step", lambda result: result["step_ms"], 3, False),
}
ONLINE_COLUMNS = (
    ("TPOT p50 ms", "median_tpot_ms", 1),
    ("TPOT p99 ms", "p99_tpot_ms", 1),
    ("TTFT mean ms", "mean_ttft_ms", 0),
    ("TTFT p99 ms", "p99_ttft_ms", 0),
    ("output tok/s", "output_throughput", 0),
)


def say(kind, result):
    if kind == "online":
        return f"TPOT p99 {result['p99_tpot_ms']:.1f} ms, TTFT p99 {result['p99_ttft_ms']:.0f} ms"
    name, value, digits, _ = FIGURE_OF[kind]
    return f"{value(result):.{digits}f} {name}"


def results_of(entry, variant, key):
    runs = entry["variants"].get(variant, {}).get("runs", [])
    points = [run["points"].get(key, {}) for run in runs]
    return [point["result"] for point in points if "result" in point]


def errors_of(entry, variant, key):
    runs = entry["variants"].get(variant, {}).get("runs", [])
    return [run["points"][key]["error"] for run in runs if "error" in run["points"].get(key, {})]


def keys_of(entry):
    kind = entry["definition"]["kind"]
    return sorted(entry["points"], key=float) if kind in ("decode", "online") else list(entry["points"])


def with_spread(spread, digits):
    if spread is None:
        return "-"
    suffix = f" ±{spread.relative:.1%}" if spread.relative is not None else ""
    return f"{spread.median:.{digits}f}{suffix}"


@dataclass(frozen=True)
class HighestRate:
    rate: float | None  # None: not even the lowest
    exact: bool  # between two rates that were measured; otherwise at least, or at most, the rate
    text: str


def all_answered(results):
    return all(not result.get("failed") and not result.get("rejected") for result in results)


def highest_rate(points, limit):
    """The highest rate up to which a value stays within the limit. points: [(rate, value)], inf where requests failed.

    Between the last rate within it and the first beyond, the value is taken to grow linearly with the rate. What comes
    behind the first that is beyond does not count, whatever it is.
    """
    points = sorted(points)
    within = None
    for rate, value in points:
        if value <= limit:
            within = (rate, value)
            continue
        if within is None:
            return HighestRate(None, False, f"< {rate:g}")
        low_rate, low_value = within
        if math.isinf(value):
            return HighestRate(low_rate, False, f">= {low_rate:g}, < {rate:g}")
        between = low_rate + (rate - low_rate) * (limit - low_value) / (value - low_value)
        return HighestRate(between, True, f"{between:.1f}")
    return HighestRate(within[0], False, f">= {within[0]:g}") if within else HighestRate(None, False, "-")


def load_curve(entry, variant, field):
    """[(rate, repeats.Spread, whether all requests were answered)] of what was measured, by rate."""
    curve = []
    for key in keys_of(entry):
        results = results_of(entry, variant, key)
        spread = repeats.spread_of(result.get(field) for result in results)
        if spread:
            curve.append((float(key), spread, all_answered(results)))
    return curve


def highest_rate_of(entry, variant, limit):
    curve = load_curve(entry, variant, "p99_tpot_ms")
    return highest_rate([(rate, spread.median if answered else math.inf) for rate, spread, answered in curve], limit)


def markdown(columns, lines):
    text = ["| " + " | ".join(columns) + " |", "|" + "|".join("---" for _ in columns) + "|"]
    return text + ["| " + " | ".join(line) + " |" for line in lines]


def is_peer(entry, variant):
    return entry["variants"][variant]["side"] in PEER_NAMES


def peers_of(entries):
    """The sides beside Tandem that any variant is of."""
    sides = {variant["side"] for entry in entries for variant in entry["variants"].values()}
    return [side for side in PEER_NAMES if side in sides]


def best_of(entry, side, key):
    """The best median of a peer's variants: what Tandem is measured by."""
    _, value, _, more_is_better = FIGURE_OF[entry["definition"]["kind"]]
    spreads = [
        repeats.spread_of(value(result) for result in results_of(entry, name, key))
        for name, variant in entry["variants"].items()
        if variant["side"] == side
    ]
    medians = [spread.median for spread in spreads if spread]
    return (max if more_is_better else min)(medians) if medians else None


def plain_table(entry):
    """A line for each point and variant."""
    kind = entry["definition"]["kind"]
    name, value, digits, more_is_better = FIGURE_OF[kind]
    peers = peers_of([entry])
    lines = []
    for key in keys_of(entry):
        best = [best_of(entry, side, key) for side in peers]
        for variant, of_variant in entry["variants"].items():
            results = results_of(entry, variant, key)
            if not results:
                continue
            spread = repeats.spread_of(value(result) for result in results)
            ratios = ["-"] * len(peers)
            if spread.median and not is_peer(entry, variant):
                better = [one and (spread.median / one if more_is_better else one / spread.median) for one in best]
                ratios = [text_of(one, 2) for one in better]
            engine = next((run["engine"] for run in of_variant["runs"] if run["engine"]), {})
            middle = repeats.median_report(results)
            cells = [key if kind != "decode" else f"batch {key}", variant, with_spread(spread, digits), *ratios]
            cells += [str(len(results)), text_of(middle.get("preemptions"), 0), text_of(engine.get("gpu_kv_tokens"), 0)]
            cells.append(text_of(middle.get("p99_ttft_ms"), 0))
            lines.append(cells)
    columns = ["", "", name, *(f"x {PEER_NAMES[side]}" for side in peers)]
    columns += ["runs", "preemptions", "KV tokens", "TTFT p99 ms"]
    return markdown(columns, lines) if lines else []


def text_of(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def online_table(entry, limit):
    lines = []
    for key in keys_of(entry):
        for variant in entry["variants"]:
            results = results_of(entry, variant, key)
            if not results:
                continue
            cells = [key, variant]
            for _, field, digits in ONLINE_COLUMNS:
                cells.append(with_spread(repeats.spread_of(result.get(field) for result in results), digits))
            unanswered = sum(result.get("failed", 0) + result.get("rejected", 0) for result in results)
            lines.append([*cells, f"{unanswered}", str(len(results))])
    if not lines:
        return []
    columns = ["requests/s", "", *(name for name, _, _ in ONLINE_COLUMNS), "not answered", "runs"]
    text = [
        *markdown(columns, lines),
        "",
        f"Highest rate with p99 TPOT <= {limit:g} ms, linear between measured rates:",
        "",
    ]
    rates = [[variant, highest_rate_of(entry, variant, limit).text] for variant in entry["variants"]]
    return text + markdown(["", "requests/s"], rates)


def describe(definition):
    room = definition["gpu_kv_tokens"]
    text = f"{definition['model']}, bf16, KV room " + (f"{room} tokens" if room else "what memory has")
    if definition["kind"] == "decode":
        return f"{text}, decode steps at a mean context of {definition['context']}."
    if definition["kind"] == "online":
        return f"{text}, {definition['work']['name']}, Poisson arrivals for {definition['duration_s']:g} s."
    return f"{text}, all requests at the start."


def row_section(entry, limit):
    online = entry["definition"]["kind"] == "online"
    text = [f"## {entry['name']}", "", describe(entry["definition"]), ""]
    text += online_table(entry, limit) if online else plain_table(entry)
    errors = [
        f"- {variant}, {key}: {error}"
        for variant in entry["variants"]
        for key in keys_of(entry)
        for error in errors_of(entry, variant, key)
    ]
    return text + (["", *errors] if errors else []) + [""]


def anchor_value(call):
    """Of the first point of the anchor, with which way is better, or None."""
    anchor = call.get("anchor")
    results = [point["result"] for point in anchor["points"].values() if "result" in point] if anchor else []
    return FIGURE_OF[anchor["kind"]][1](results[0]) if results and anchor["kind"] in FIGURE_OF else None


def calls_table(calls):
    first = next((value for value in map(anchor_value, calls) if value), None)
    lines, notes = [], []
    for index, call in enumerate(calls, start=1):
        value = anchor_value(call)
        relative = value / first if value and first else None
        if relative and abs(relative - 1) > ANCHOR_TOLERANCE:
            notes.append(f"- The anchor of call {index} is {relative:.2f} of the first: compare within calls only.")
        machine = call["machine"]
        cells = [str(index), call["date"], ", ".join(machine["cards"]) or "no GPU", machine["driver"] or "-"]
        peers = [f"{name} {call['versions'][side]}" for side, name in PEER_NAMES.items() if call["versions"].get(side)]
        cells += [", ".join(peers) or "-", text_of(call.get("seconds"), 0)]
        said = "-"
        if value:
            said = say(
                call["anchor"]["kind"], next(p["result"] for p in call["anchor"]["points"].values() if "result" in p)
            )
        lines.append([*cells, said, text_of(relative, 3)])
    columns = ["call", "date", "card", "driver", "peers", "seconds", "anchor", "of the first call"]
    return [*markdown(columns, lines), *(["", *notes] if notes else []), ""]


def title(content):
    names = [PEER_NAMES[side] for side in peers_of(content["rows"])]
    return f"Tandem beside {' and '.join(names)}" if names else "Tandem"


def tables(content, limit):
    text = [f"# {title(content)}", ""]
    if content["calls"]:
        text += calls_table(content["calls"])
    for entry in content["rows"]:
        text += row_section(entry, limit)
    text.append(
        "Medians over the runs; ± is half their range. x an engine: better than the best of its variants above 1."
    )
    return "\n".join(text) + "\n"


def dry_run(anchor, rows, repeat):
    lines, total_s = [], 0.0
    for row in rows:
        rounds = row.fields["repeat"] or repeat
        seconds = len(row.variants) * (row.fields["start_s"] + len(row.points) * row.fields["point_s"])
        total_s += rounds * seconds
        variants = ", ".join(variant.name for variant in row.variants)
        lines.append(
            f"{row.name} ({row.kind}): {', '.join(row.points)}; {variants}; {rounds} rounds of about {seconds:.0f} s"
        )
    if anchor:
        seconds = anchor.fields["start_s"] + len(anchor.points) * anchor.fields["point_s"]
        lines.append(f"each call first {anchor.name}, about {seconds:.0f} s")
    return "\n".join([*lines, f"about {total_s / 60:.0f} minutes in all, without the anchors"])
