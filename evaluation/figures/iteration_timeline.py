#!/usr/bin/env python3
"""Draws one iteration of a timeline: GPU, CPU attention and copies side by side, and how much of it each was busy.

    build/cuda-release/tandem bench offline ... --strategy asymmetric --timeline trace.json
    python3 evaluation/figures/iteration_timeline.py trace.json --out docs/img/asymmetric_iteration.svg

The iteration is --iteration N (counted from 0, those without cpu attention too), or among those with cpu attention the
one of median length. The panel above shows all of it, the panel below --layers FIRST-LAST. White is idle: on the GPU
what lies between spans and spans that wait (their names begin with "wait"). With shards there are lanes for each, its
copies in one; the iteration is that of shard 0, and a sum over the shards has the time until the last of them is there.
Prints and, with --json, writes the shares. Needs matplotlib, but not for --json alone.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

GPU = "gpu"
CPU = "cpu attention"
COPY = "copy"
# The last span of an iteration on the GPU.
LAST_SPANS = ("end", "sampling")
COLORS = {
    "pre-projection": "#4c72b0",
    "post-projection": "#8fb1de",
    "gpu attention": "#c44e52",
    "visit of a cohort": "#55a868",
    "sum over the shards": "#e3a72f",
    "logits gathered": "#e3a72f",
    "embedding": "#937860",
    "logits": "#937860",
    "sampling": "#937860",
}
OTHER_COLORS = ("#dd8452", "#8172b3", "#ccb974", "#64b5cd", "#da8bc3", "#8c8c8c")


@dataclass(frozen=True)
class Span:
    lane: str
    kind: str  # the name without the number behind it
    number: int | None  # of a layer
    begin: float  # microseconds
    end: float

    @property
    def waits(self):
        return self.kind.startswith("wait")


def read_trace(path):
    """Spans of each lane in the order of their begin."""
    events = json.loads(Path(path).read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    lanes = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        kind, number = re.fullmatch(r"(.*?)(?: (\d+))?", event["name"]).groups()
        lane = names[event["tid"]]
        begin = event["ts"]
        span = Span(lane, kind, None if number is None else int(number), begin, begin + event["dur"])
        lanes[lane].append(span)
    for shard in {shard_of(lane) for lane in lanes} - {None}:
        copies = [lane for lane in lanes if lane.startswith(COPY) and shard_of(lane) == shard]
        spans = [span for lane in copies for span in lanes.pop(lane)]
        if spans:
            lanes[f"copies {shard}"] = spans
    for spans in lanes.values():
        spans.sort(key=lambda span: span.begin)
    return dict(lanes)


def shard_of(lane):
    """None for a lane of a whole model."""
    match = re.fullmatch(r".* (\d+)", lane)
    return int(match[1]) if match else None


def lanes_like(lanes, name):
    """Those of the shards, or the one of a whole model."""
    found = [lane for lane in lanes if lane.startswith(f"{name} ") and shard_of(lane) is not None]
    return sorted(found, key=shard_of) or [name]


def copy_lanes(lanes):
    """Of a whole model one a stream, of a shard one."""
    return sorted((lane for lane in lanes if lane.startswith("cop")), key=lambda lane: (shard_of(lane) or 0, lane))


def drawn_lanes(lanes):
    """The GPUs, the CPU pools, the copies; shard 0 first in each."""
    return (*lanes_like(lanes, GPU), *lanes_like(lanes, CPU), *copy_lanes(lanes))


def split_iterations(gpu_spans):
    """(begin, end) of each whole iteration on the GPU."""
    iterations = []
    begin = None
    for span in gpu_spans:
        if begin is None:
            begin = span.begin
        if span.kind in LAST_SPANS:
            iterations.append((begin, span.end))
            begin = None
    return iterations


def clip(spans, begin, end):
    """Those that have a part in the time, cut to it."""
    return [
        Span(span.lane, span.kind, span.number, max(span.begin, begin), min(span.end, end))
        for span in spans
        if span.begin < end and span.end > begin
    ]


def idle_gaps(spans, begin, end):
    """(begin, end) of the time in which no span runs. A lane's spans may overlap."""
    gaps = []
    now = begin
    for span in clip(spans, begin, end):
        if span.begin > now:
            gaps.append((now, span.begin))
        now = max(now, span.end)
    if end > now:
        gaps.append((now, end))
    return gaps


def measure(spans, begin, end):
    """Shares of a lane in the time from begin to end, and its bubbles."""
    gaps = idle_gaps([span for span in spans if not span.waits], begin, end)
    # What the clock cannot tell apart is no bubble.
    bubbles = [stop - start for start, stop in gaps if stop - start > 0.01]
    idle = sum(bubbles)
    return {
        "busy": 1 - idle / (end - begin),
        "idle_us": idle,
        "bubbles": len(bubbles),
        "longest_bubble_us": max(bubbles, default=0.0),
    }


def describe(lanes, begin, end, index):
    """What is drawn, in numbers: each lane, and where the GPU's time goes."""
    result = {"iteration": index, "us": end - begin, "lanes": {}}
    for lane in drawn_lanes(lanes):
        result["lanes"][lane] = measure(lanes.get(lane, []), begin, end)
    gpus = lanes_like(lanes, GPU)
    result["gpu_us"] = kinds_us(lanes[gpus[0]], begin, end)
    if len(gpus) > 1:
        result["gpu_us_of_lanes"] = {lane: kinds_us(lanes[lane], begin, end) for lane in gpus}
    return result


def kinds_us(spans, begin, end):
    """Microseconds of each kind of span."""
    times = defaultdict(float)
    for span in clip(spans, begin, end):
        times[span.kind] += span.end - span.begin
    return dict(times)


def choose_iteration(lanes, wanted=None):
    """(index, begin, end)."""
    iterations = split_iterations(lanes.get(lanes_like(lanes, GPU)[0], []))
    if not iterations:
        raise ValueError("there is no whole iteration on the GPU in it")
    if wanted is not None:
        if not 0 <= wanted < len(iterations):
            raise ValueError(f"there is no iteration {wanted}: it has {len(iterations)}")
        return (wanted, *iterations[wanted])
    hybrid = [
        (end - begin, index)
        for index, (begin, end) in enumerate(iterations)
        if any(begin <= span.begin < end for lane in lanes_like(lanes, CPU) for span in lanes.get(lane, []))
    ]
    if not hybrid:
        raise ValueError(f"none of its {len(iterations)} iterations has cpu attention; name one with --iteration")
    index = sorted(hybrid)[len(hybrid) // 2][1]
    return (index, *iterations[index])


def layer_range(lanes, begin, end, first, last):
    """From the first to the last span of these layers on the GPU."""
    spans = [
        span
        for span in clip(lanes[lanes_like(lanes, GPU)[0]], begin, end)
        if span.number is not None and first <= span.number <= last and not span.waits
    ]
    if not spans:
        raise ValueError(f"the iteration has no spans of layers {first} to {last}")
    return min(span.begin for span in spans), max(span.end for span in spans)


def middle_layers(lanes, begin, end):
    gpu = lanes[lanes_like(lanes, GPU)[0]]
    numbers = [span.number for span in clip(gpu, begin, end) if span.number is not None]
    if not numbers:
        raise ValueError("the iteration has no spans of layers: was it made with --timeline?")
    first = max(numbers) // 2
    return first, min(first + 2, max(numbers))


def lane_title(lane, shares):
    busy = f"{100 * shares['busy']:.0f} % busy"
    if not lane.startswith(GPU) and shares["busy"] == 0:
        return f"{lane}\nidle"
    if lane.startswith("cop"):
        return f"{lane}\n{busy}"
    bubbles = "1 bubble" if shares["bubbles"] == 1 else f"{shares['bubbles']} bubbles"
    return f"{lane}\n{busy}\n{bubbles}, {shares['idle_us'] / 1e3:.2f} ms"


def draw_panel(panel, lanes, names, begin, end, colors, with_labels):
    height = 0.8
    for row, lane in enumerate(names):
        spans = clip(lanes.get(lane, []), begin, end)
        # Behind the spans: what nothing covers is idle.
        panel.broken_barh(
            [(0, (end - begin) / 1e3)], (-row - height / 2, height), facecolors="white", edgecolor="grey", linewidth=0.5
        )
        for span in spans:
            if span.waits:
                continue
            left, width = (span.begin - begin) / 1e3, (span.end - span.begin) / 1e3
            panel.broken_barh(
                [(left, width)],
                (-row - height / 2, height),
                facecolors=colors[span.kind],
                edgecolor="white" if with_labels else "none",
                linewidth=0.4,
            )
            if with_labels and span.number is not None and span.end - span.begin > 0.02 * (end - begin):
                panel.text(
                    left + width / 2, -row, str(span.number), ha="center", va="center", fontsize=6, color="white"
                )
    panel.set_xlim(0, (end - begin) / 1e3)
    panel.set_ylim(-len(names) + 0.5, 0.5)
    panel.tick_params(labelsize=7)


def choose_colors(kinds):
    colors = {}
    others = iter(OTHER_COLORS * (1 + len(kinds) // len(OTHER_COLORS)))
    for kind in kinds:
        known = next((color for name, color in COLORS.items() if kind.startswith(name)), None)
        colors[kind] = known or next(others)
    return colors


def draw(lanes, description, begin, end, layers, title, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    names = list(description["lanes"])
    shown = [span for lane in names for span in clip(lanes.get(lane, []), begin, end) if not span.waits]
    colors = choose_colors(list(dict.fromkeys(span.kind for span in shown)))
    plt.rcParams["svg.hashsalt"] = "tandem"  # the same input gives the same file
    figure, panels = plt.subplots(2, 1, figsize=(11, 1.4 + 1.3 * len(names)))
    zoom = layer_range(lanes, begin, end, *layers)
    draw_panel(panels[0], lanes, names, begin, end, colors, with_labels=False)
    draw_panel(panels[1], lanes, names, *zoom, colors, with_labels=True)
    panels[0].set_title(title, fontsize=9)
    panels[1].set_title(f"layers {layers[0]} to {layers[1]}", fontsize=8)
    panels[0].axvspan((zoom[0] - begin) / 1e3, (zoom[1] - begin) / 1e3, color="grey", alpha=0.25, zorder=0)
    shares_of_panels = (description["lanes"], {lane: measure(lanes.get(lane, []), *zoom) for lane in names})
    for panel, shares in zip(panels, shares_of_panels, strict=True):
        panel.set_yticks([-row for row in range(len(names))])
        panel.set_yticklabels([lane_title(lane, shares[lane]) for lane in names], fontsize=7)
    panels[1].set_xlabel("ms", fontsize=8)
    figure.legend(
        handles=[Patch(color=color, label=kind) for kind, color in colors.items()],
        loc="lower center",
        ncol=min(len(colors), 6),
        fontsize=7,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0.04 + 0.03 * ((len(colors) - 1) // 6), 1, 1))
    figure.savefig(out, metadata={"Date": None} if str(out).endswith(".svg") else None, dpi=150)


def parse_layers(text):
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is not FIRST-LAST")
    return int(match[1]), int(match[2])


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace", type=Path, help="the file of --timeline")
    parser.add_argument("--out", type=Path, help="SVG or PNG")
    parser.add_argument("--json", type=Path, help="the shares")
    parser.add_argument("--iteration", type=int)
    parser.add_argument("--layers", type=parse_layers, help="FIRST-LAST; default: three in the middle")
    parser.add_argument("--title", default="", help="before what the iteration says of itself")
    args = parser.parse_args(words)
    try:
        lanes = read_trace(args.trace)
        index, begin, end = choose_iteration(lanes, args.iteration)
        layers = args.layers or middle_layers(lanes, begin, end)
        description = describe(lanes, begin, end, index)
        description["layers"] = layers
        if args.out:
            title = f"{args.title}{': ' if args.title else ''}iteration {index}, {(end - begin) / 1e3:.2f} ms"
            draw(lanes, description, begin, end, layers, title, args.out)
    except (OSError, ValueError) as error:
        sys.exit(f"{args.trace}: {error}")
    for lane, shares in description["lanes"].items():
        print(
            f"{lane:16} {shares['busy']:6.1%} busy, {shares['bubbles']} bubbles, {shares['idle_us']:.0f} us idle, "
            f"the longest {shares['longest_bubble_us']:.0f} us"
        )
    for gpu, kinds in description.get("gpu_us_of_lanes", {"the GPU": description["gpu_us"]}).items():
        for kind, time in sorted(kinds.items(), key=lambda item: -item[1]):
            print(f"  {kind:20} {time:8.0f} us on {gpu}")
    if args.json:
        args.json.write_text(json.dumps(description, indent=1) + "\n")


if __name__ == "__main__":
    main()
