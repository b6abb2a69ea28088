"""Draws one panel of each kind. data is a figure_data.PanelData, mark the paper's numbers for it or None."""

import figure_data
from figure_style import BOUND, LABEL_SIZE, NOTE_SIZE, PAPER, draw_line, log_lengths, ranges, style_of

STATISTICS = ("median", "p90", "p99")
NOTE = {"fontsize": NOTE_SIZE, "color": PAPER}
LATENCIES = (("ttft", "first token"), ("tpot", "each token after it"), ("e2el", "whole request"))


def draw_load_latency(axis, data, mark):
    panel = data.panel
    lines, spreads = {}, []
    for strategy, line in data.cells.items():
        points = [(x, line[x].spread("mean_per_token_latency_s")) for x in data.xs if x in line]
        points = [(x, spread) for x, spread in points if spread]
        if points:
            draw_line(axis, panel, strategy, points, {x for x in line if line[x].doubtful})
            lines[strategy] = [(x, spread.median) for x, spread in points]
            spreads += [spread for _, spread in points]
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel("latency over output tokens,\nmean over requests (s)")
    highest = max((s.maximum for s in spreads), default=1)
    axis.set_ylim(0, 1.15 * highest)
    axis.set_xlim(0, 1.1 * max(data.xs))
    if mark:
        mark_gain_at_latency(axis, data, lines, mark)


def mark_gain_at_latency(axis, data, lines, mark):
    """The latency at which the paper compares, and where its gain would lie over our own baseline."""
    level = mark["latency_s"]
    shown = level <= 1.6 * axis.get_ylim()[1]
    text = f"{on_hardware(mark)}: {mark['gain']:.2f}x the load at {level:g} s"
    if shown:
        axis.set_ylim(0, max(axis.get_ylim()[1], 1.3 * level))
        axis.axhline(level, color=PAPER, linewidth=0.8, linestyle=":")
    base = figure_data.crossing(lines.get(data.panel.baseline, []), level)
    for strategy, line in lines.items():
        rate = figure_data.crossing(line, level)
        if base and rate and strategy != data.panel.baseline:
            text += f"\n{data.panel.label(strategy)} here: {rate / base:.2f}x"
    if base is None:
        text += f"\n{data.panel.baseline} here does not pass {level:g} s between two points"
    elif shown and base * mark["gain"] <= 1.3 * max(data.xs):
        there = base * mark["gain"]
        axis.set_xlim(0, max(axis.get_xlim()[1], 1.05 * there))
        label = "the paper's gain, over our gpu-only"
        axis.plot(there, level, marker="*", markersize=11, color=PAPER, linestyle="none", label=label)
    axis.text(0.03, 0.98, text, transform=axis.transAxes, va="top", fontsize=NOTE_SIZE, color=PAPER)


def on_hardware(mark):
    """The paper and the card that it measured on."""
    return f"{mark['paper']}, {mark['hardware'].split(',')[0]}"


def draw_latency_quantiles(axis, data, mark):
    """Median, p90 and p99 of three latencies, a column for each."""
    panel = data.panel
    (x,) = data.xs
    positions = {
        (name, statistic): index * (len(STATISTICS) + 1) + column
        for index, (name, _) in enumerate(LATENCIES)
        for column, statistic in enumerate(STATISTICS)
    }
    shift = 0.22
    for index, (strategy, line) in enumerate(data.cells.items()):
        offset = (index - (len(data.cells) - 1) / 2) * shift
        points = []
        for (name, statistic), position in positions.items():
            spread = line[x].spread(f"{statistic}_{name}_ms")
            if spread:
                points.append((position + offset, spread))
        style = {**style_of(panel, strategy), "linestyle": "none"}
        axis.errorbar(
            [at for at, _ in points],
            [spread.median for _, spread in points],
            yerr=ranges([spread for _, spread in points]),
            label=panel.label(strategy),
            markersize=5,
            capsize=2,
            **style,
        )
    axis.set_yscale("log")
    axis.set_ylabel("latency (ms)")
    names = [statistic.replace("median", "p50") for _, statistic in positions]
    axis.set_xticks(list(positions.values()), names, fontsize=NOTE_SIZE)
    middle = (len(STATISTICS) - 1) / 2
    for index, (_, title) in enumerate(LATENCIES):
        axis.text(
            index * (len(STATISTICS) + 1) + middle,
            -0.19,
            title,
            transform=axis.get_xaxis_transform(),
            ha="center",
            fontsize=LABEL_SIZE,
        )


def draw_latency_distribution(axis, data, mark):
    """The share of requests below each latency."""
    panel = data.panel
    (x,) = data.xs
    for strategy, line in data.cells.items():
        percentiles = line[x].per_token_percentiles()
        if percentiles:
            style = {key: value for key, value in style_of(panel, strategy).items() if key != "marker"}
            axis.plot(percentiles, range(len(percentiles)), label=panel.label(strategy), **style)
    axis.set_xscale("log")
    axis.set_xlabel("latency over output tokens\nof a request (s)")
    axis.set_ylabel("requests (%)")
    axis.set_ylim(0, 100)


def draw_bounds(axis, data, positions, width=None):
    """The most that the machine's measured costs allow, and a gpu-only that loses nothing: lines, or ticks on bars."""
    for name, title, linestyle in (
        ("upper_bound_throughput", "bound from measured costs", "--"),
        ("ideal_gpu_only_throughput", "ideal gpu-only", ":"),
    ):
        points = []
        for x, position in positions.items():
            base = data.cells.get(data.panel.baseline, {}).get(x)
            bound = data.bound(x, name)
            if base and bound and base.median(base.throughput_name):
                points.append((position, bound / base.median(base.throughput_name)))
        if not points:
            continue
        xs, ys = zip(*points, strict=True)
        if width or len(points) == 1:
            low, high = (
                [x - width for x in xs] if width else xs[0] / 1.08,
                [x + width for x in xs] if width else xs[0] * 1.08,
            )
            axis.hlines(ys, low, high, color=BOUND, linestyle=linestyle, linewidth=1.3, label=title, zorder=4)
        else:
            axis.plot(xs, ys, color=BOUND, linestyle=linestyle, linewidth=1.3, label=title, zorder=1)


def draw_relative_throughput(axis, data, mark):
    panel = data.panel
    xs = data.xs
    log_lengths(axis, xs)
    draw_bounds(axis, data, {x: x for x in xs})
    for strategy, line in data.cells.items():
        points = [(x, data.ratio(strategy, x)) for x in xs if x in line and data.ratio(strategy, x)]
        if points:
            draw_line(axis, panel, strategy, points, {x for x in line if line[x].doubtful})
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(f"throughput relative to {panel.baseline}")
    if mark and mark["kind"] == "levels":
        mark_levels(axis, mark)
    if mark and mark["kind"] == "boxes":
        mark_boxes(axis, mark)
    axis.set_ylim(0, 1.08 * axis.get_ylim()[1])


def mark_levels(axis, mark):
    """Numbers that the paper gives without the length they belong to. One that is far off stands as text at the top."""
    top = axis.get_ylim()[1]
    label_y = -top
    for level in sorted(mark["levels"], key=lambda level: level["value"]):
        value = level["value"]
        text = f"{level['label']} {value:.2f}x"
        if value > 1.6 * top:
            axis.text(
                0.98, 0.98, f"{on_hardware(mark)}: {text}", transform=axis.transAxes, **NOTE, ha="right", va="top"
            )
            continue
        axis.axhline(value, color=PAPER, linewidth=0.9, linestyle=(0, (1, 2)), label=on_hardware(mark), zorder=1)
        # Behind the end of the line, one above the other where lines are close.
        label_y = max(value, label_y + 0.07 * top)
        axis.text(1.01, label_y, text, transform=axis.get_yaxis_transform(), **NOTE, ha="left", va="center")


def mark_boxes(axis, mark):
    """Gains over ranges of lengths."""
    first, last = axis.get_xlim()
    for box in mark["boxes"]:
        low, high = box["low"], box["high"]
        begin, end = max(box["from"], first), min(box["to"] or last, last)
        if high > low:
            axis.fill_between([begin, end], low, high, color=PAPER, alpha=0.15, linewidth=0, zorder=1)
        for value in {low, high}:
            axis.hlines(value, begin, end, color=PAPER, linewidth=1.2, label=f"{on_hardware(mark)}, over NEO", zorder=1)


def draw_relative_bars(axis, data, mark):
    panel = data.panel
    xs = data.xs
    strategies = list(data.cells)
    width = 0.8 / len(strategies)
    positions = {x: index for index, x in enumerate(xs)}
    centers = {}
    for index, strategy in enumerate(strategies):
        offset = (index - (len(strategies) - 1) / 2) * width
        style = style_of(panel, strategy)
        for x in xs:
            ratio = data.ratio(strategy, x)
            if ratio is None:
                continue
            at = centers[strategy, x] = positions[x] + offset
            cell = data.cells[strategy][x]
            axis.bar(
                at,
                ratio.median,
                0.9 * width,
                yerr=ranges([ratio]),
                capsize=2,
                color="white" if cell.doubtful else style["color"],
                edgecolor=style["color"],
                hatch="///" if ":" in strategy else None,
                alpha=0.6 if ":" in strategy else 0.9,
                label=panel.label(strategy),
            )
            inside = "black" if cell.doubtful or ":" in strategy else "white"
            text = f"{cell.median(cell.throughput_name):.0f}"
            axis.text(at, 0.03, text, ha="center", va="bottom", fontsize=6.5, color=inside)
    draw_bounds(axis, data, positions, width=0.42)
    if mark and mark["kind"] == "ranges":
        for entry in mark["ranges"]:
            label = f"{on_hardware(mark)}: {entry['label']}"
            axis.axhspan(entry["low"], entry["high"], color=PAPER, alpha=0.15, linewidth=0, label=label, zorder=0)
    for bar in mark["bars"] if mark and mark["kind"] == "bars" else ():
        at = centers.get((bar["strategy"], bar["x"]))
        if at is not None:
            star = {"marker": "*", "markersize": 9, "color": PAPER, "markeredgecolor": "white", "linestyle": "none"}
            axis.plot(at, bar["value"], **star, label=f"{on_hardware(mark)}: over vLLM", zorder=6)
    axis.set_xticks(list(positions.values()), [str(x) for x in xs])
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(f"throughput relative to {panel.baseline}\n(in the bars: output tokens/s)")
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])


DRAW = {
    "load_latency": draw_load_latency,
    "latency_quantiles": draw_latency_quantiles,
    "latency_distribution": draw_latency_distribution,
    "relative_throughput": draw_relative_throughput,
    "relative_bars": draw_relative_bars,
}
