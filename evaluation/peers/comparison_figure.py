"""Latency against load of all sides, of the online rows of compare_engines.py. Needs matplotlib."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "figures"), str(Path(__file__).resolve().parent)]
import figure_style  # noqa: E402
import comparison_report  # noqa: E402

PEER_COLORS = ("#7b3294", "#c2a5cf")
PANELS = (("p99_tpot_ms", "p99 time per output token, ms"), ("mean_ttft_ms", "mean time to first token, ms"))


def style_of(entry, variant):
    peers = [name for name in entry["variants"] if comparison_report.is_peer(entry, name)]
    if variant in peers:
        color = PEER_COLORS[peers.index(variant) % len(PEER_COLORS)]
        return {"color": color, "marker": "X", "linestyle": "--"}
    # Tandem's variants have the colour of the strategy that their name has.
    strategy = next((name for name in figure_style.COLORS if name in variant), None)
    return {
        "color": figure_style.COLORS.get(strategy, "black"),
        "marker": figure_style.MARKERS.get(strategy, "o"),
        "linestyle": "-",
    }


def draw(content, limit, path):
    """False if there is nothing to draw."""
    entries = [entry for entry in content["rows"] if entry["definition"]["kind"] == "online"]
    entries = [
        entry
        for entry in entries
        if any(comparison_report.load_curve(entry, variant, "p99_tpot_ms") for variant in entry["variants"])
    ]
    if not entries:
        return False
    figure, axes = figure_style.new_figure(
        len(PANELS) * len(entries), f"{comparison_report.title({'rows': entries})}: latency against load"
    )
    for index, entry in enumerate(entries):
        for (field, label), axis in zip(PANELS, axes[len(PANELS) * index :], strict=False):
            for variant in entry["variants"]:
                curve = comparison_report.load_curve(entry, variant, field)
                if not curve:
                    continue
                rates, spreads = [rate for rate, _, _ in curve], [spread for _, spread, _ in curve]
                axis.errorbar(
                    rates,
                    [spread.median for spread in spreads],
                    yerr=figure_style.ranges(spreads),
                    label=variant,
                    markersize=5,
                    linewidth=1.4,
                    capsize=2,
                    **style_of(entry, variant),
                )
            if field == "p99_tpot_ms":
                axis.axhline(limit, color=figure_style.BOUND, linewidth=1, linestyle=":", label=f"{limit:g} ms")
            axis.set_yscale("log")
            for ticks in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
                ticks("{x:g}")
            axis.set_title(entry["name"], fontsize=figure_style.LABEL_SIZE)
            axis.set_xlabel("requests a second")
            axis.set_ylabel(label)
    cards = sorted({card for call in content["calls"] for card in call["machine"]["cards"]})
    note = (
        f"{entries[0]['definition']['model']}, bf16, {', '.join(cards) or 'no GPU'}; medians, bars from least to most"
    )
    figure_style.finish(figure, axes, [], note, [path])
    return True
