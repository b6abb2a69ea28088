"""How the figures look: the same strategy has the same colour and marker in all of them."""

import textwrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter  # noqa: E402

COLORS = {
    "gpu-only": "#4d4d4d",
    "asymmetric": "#1f77b4",
    "full-offload": "#e08214",
    "async": "#2ca02c",
    "apex": "#8c564b",
    "auto": "#c0392b",
    "vllm": "#7b3294",
}
MARKERS = {"gpu-only": "s", "asymmetric": "o", "full-offload": "D", "async": "^", "apex": "v", "auto": "P", "vllm": "X"}
# Shades of a strategy with flags of its own.
DASHES = ("--", ":", "-.")
PAPER = "#7b3294"
BOUND = "#8a8a8a"
# Inches. Legend and note come below the panels.
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_ROW_HEIGHT, NOTE_LINE_HEIGHT = 4.3, 3.2, 0.21, 0.13
# As many panels beside each other as stay readable at the width of a page.
MAX_COLUMNS = 2
LABEL_SIZE, TICK_SIZE, NOTE_SIZE = 8.5, 8, 7
NOTE_CHARACTERS_PER_INCH = 16


def new_figure(num_panels, title):
    # The same input gives the same file; text stays text, so that a browser draws it in a readable font.
    plt.rcParams.update({"svg.hashsalt": "tandem", "svg.fonttype": "none", "font.size": LABEL_SIZE})
    columns = min(num_panels, MAX_COLUMNS)
    rows = -(-num_panels // columns)
    width = max(PANEL_WIDTH * columns, 6.4)
    figure, axes = plt.subplots(rows, columns, figsize=(width, PANEL_HEIGHT * rows), squeeze=False)
    axes = list(axes.flat)
    for axis in axes[num_panels:]:
        axis.set_visible(False)
    axes = axes[:num_panels]
    figure.suptitle(title, fontsize=10)
    for axis in axes:
        axis.tick_params(labelsize=TICK_SIZE)
        axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def style_of(panel, strategy):
    name = strategy.split(":")[0]
    variants = [other for other in panel.strategies if other.split(":")[0] == name and ":" in other]
    dashes = DASHES[variants.index(strategy) % len(DASHES)] if strategy in variants else "-"
    return {"color": COLORS.get(name, "black"), "marker": MARKERS.get(name, "x"), "linestyle": dashes}


def ranges(spreads):
    """From the least to the most of repeats, for error bars; None where nothing was repeated."""
    if all(spread.count == 1 for spread in spreads):
        return None
    return [[s.median - s.minimum for s in spreads], [s.maximum - s.median for s in spreads]]


def draw_line(axis, panel, strategy, points, hollow):
    """points: [(x, repeats.Spread)]; hollow: the x whose numbers are doubtful."""
    style = style_of(panel, strategy)
    xs, ys = [x for x, _ in points], [spread.median for _, spread in points]
    errors = ranges([spread for _, spread in points])
    axis.errorbar(xs, ys, yerr=errors, label=panel.label(strategy), markersize=5, linewidth=1.4, capsize=2, **style)
    doubtful = [(x, y) for x, y in zip(xs, ys, strict=True) if x in hollow]
    if doubtful:
        axis.plot(
            *zip(*doubtful, strict=True),
            linestyle="none",
            marker=style["marker"],
            markersize=5,
            markerfacecolor="white",
            markeredgecolor=style["color"],
            zorder=5,
        )


def log_lengths(axis, xs):
    """Powers of two are far apart; the ticks are the lengths themselves."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(xs))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_xlim(min(xs) / 1.35, max(xs) * 1.35)


def finish(figure, axes, first_labels, note, paths):
    """The legends of all panels as one below them, its first labels first, and a note under it."""
    entries = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    entries = dict(sorted(entries.items(), key=lambda item: item[0] not in first_labels))
    columns = max(2, round(figure.get_figwidth() / 3.2))
    note_width = int(NOTE_CHARACTERS_PER_INCH * figure.get_figwidth())
    note_lines = [line for part in note.split("\n") for line in textwrap.wrap(part, note_width)]
    note_height = 0.08 + NOTE_LINE_HEIGHT * len(note_lines)
    below = LEGEND_ROW_HEIGHT * -(-len(entries) // columns) + note_height
    height = figure.get_figheight() + below
    figure.set_figheight(height)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="lower center",
        bbox_to_anchor=(0.5, note_height / height),
        ncol=columns,
        fontsize=TICK_SIZE,
        frameon=False,
        borderpad=0,
    )
    note = "\n".join(note_lines)
    figure.text(0.5, 0.04 / height, note, ha="center", va="bottom", fontsize=NOTE_SIZE, color="#555555")
    figure.tight_layout(rect=(0, below / height, 1, 1))
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    plt.close(figure)
