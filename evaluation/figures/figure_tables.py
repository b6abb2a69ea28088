"""The numbers of a figure as Markdown tables, and a page that has them between comments:

<!-- figure neo9 -->
<!-- end of figure neo9 -->
"""

import re

import figure_data

QUANTILES = [f"{statistic} {name}" for name in ("ttft", "tpot", "e2el") for statistic in ("median", "p90", "p99")]


def format_spread(spread, form):
    if spread is None:
        return "-"
    suffix = f" ±{spread.relative:.1%}" if spread.relative is not None else ""
    return f"{spread.median:{form}}{suffix}"


def throughput_cell(data, strategy, x):
    """tok/s, in balance where that is another number (times the baseline), with * where something is to be said."""
    cell = data.cells.get(strategy, {}).get(x)
    if cell is None:
        return "not measured"
    text = format_spread(cell.spread(), ".0f")
    in_balance = format_spread(cell.spread(cell.throughput_name), ".0f")
    if in_balance != text:
        text += f" → {in_balance}"
    ratio = data.ratio(strategy, x)
    if ratio and strategy != data.panel.baseline:
        text += f" (**{ratio.median:.2f}x**)"
    return text + ("*" if cell.doubtful else "")


def latency_cell(data, strategy, x):
    cell = data.cells.get(strategy, {}).get(x)
    if cell is None:
        return "not measured"
    return format_spread(cell.spread("mean_per_token_latency_s"), ".3g") + ("*" if cell.doubtful else "")


def to_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def throughput_table(data):
    panel = data.panel
    head = [panel.x_label, *(f"{panel.label(name)}, tok/s" for name in panel.strategies), "ideal gpu-only", "bound"]
    rows = []
    for x in data.xs:
        limits = [data.bound(x, name) for name in ("ideal_gpu_only_throughput", "upper_bound_throughput")]
        rows.append(
            [
                str(x),
                *(throughput_cell(data, strategy, x) for strategy in panel.strategies),
                *("-" if limit is None else f"{limit:.0f}" for limit in limits),
            ]
        )
    return to_table(head, rows)


def load_table(data):
    panel = data.panel
    head = [panel.x_label, *(f"{panel.label(name)}, s a token" for name in panel.strategies)]
    rows = [[str(x), *(latency_cell(data, name, x) for name in panel.strategies)] for x in data.xs]
    return to_table(head, rows)


def quantile_table(data):
    panel = data.panel
    head = ["ms", *(panel.label(name) for name in panel.strategies)]
    rows = []
    for title in QUANTILES:
        statistic, name = title.split()
        cells = [data.cells.get(strategy, {}).get(panel.points[0].x) for strategy in panel.strategies]
        rows.append(
            [title, *(format_spread(cell.spread(f"{statistic}_{name}_ms"), ".1f") if cell else "-" for cell in cells)]
        )
    return to_table(head, rows)


def distribution_table(data):
    panel = data.panel
    rows = []
    for percent in (10, 50, 90, 99):
        row = [f"p{percent}"]
        for strategy in panel.strategies:
            cell = data.cells.get(strategy, {}).get(panel.points[0].x)
            percentiles = cell.per_token_percentiles() if cell else []
            row.append(f"{percentiles[percent]:.4f}" if percentiles else "-")
        rows.append(row)
    return to_table(["s a token", *(panel.label(name) for name in panel.strategies)], rows)


TABLES = {
    "load_latency": load_table,
    "latency_quantiles": quantile_table,
    "latency_distribution": distribution_table,
    "relative_throughput": throughput_table,
    "relative_bars": throughput_table,
}


def notes_of(data):
    for strategy, line in data.cells.items():
        for x, cell in line.items():
            for doubt in cell.doubts():
                yield f"- \\* {data.panel.label(strategy)} at {x}: {doubt}."


def panel_text(data, mark):
    panel = data.panel
    title = f"**{data.title()}, {panel.work}**"
    if not data.cells:
        return [f"{title}: not measured.", ""]
    lines = [f"{title}. {data.kinds_of_run().capitalize()}, {'; '.join(data.machines())}.", ""]
    lines += TABLES[panel.kind](data) + [""]
    notes = list(notes_of(data))
    if mark:
        notes.append(f"- {mark['paper']} {mark['place']}, on {mark['hardware']}, over {mark['over']}: {mark['text']}.")
    return lines + (notes + [""] if notes else [])


def figure_text(figure):
    files = figure_data.read_all(figure_data.result_paths(figure))
    marks = figure_data.read_marks()
    lines = []
    for panel in figure.panels:
        lines += panel_text(figure_data.collect(panel, files), marks.get(panel.marks))
    return "\n".join(lines)


def filled(page, figures):
    """The page's text with every table as the results give it."""

    def replace(match):
        name = match[1]
        if name not in figures:
            raise ValueError(f"the page wants a figure '{name}', which there is not")
        return f"<!-- figure {name} -->\n\n{figure_text(figures[name])}\n<!-- end of figure {name} -->"

    return re.sub(r"<!-- figure (\w+) -->.*?<!-- end of figure \1 -->", replace, page, flags=re.DOTALL)


def fill(path, figures):
    path.write_text(filled(path.read_text(), figures))
