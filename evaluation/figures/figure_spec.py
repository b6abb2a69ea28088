"""What each figure shows and measures: figures.json, read and checked.

A figure has panels. A panel is one slice of a GPU with one kind of work: `points` along x (a number or name, or [x,
text] where the text is not that of x), whose text replaces {} in `args`, and strategies, which may have flags of
their own (bench_runner.split_strategy) and are called otherwise by `labels`, of the panel or of all. `slice` and
`measure` name the flags that panels share; `durations_s` has, by row_name, longer windows of points at which gpu-only
would not end 50 requests in that of the measure. `quick` are the points of --quick. `results` are the files that the figure
in docs/ is drawn from, later ones before earlier ones.
"""

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER.parent))

import bench_runner  # noqa: E402
import result_files  # noqa: E402

KINDS = ("load_latency", "latency_quantiles", "latency_distribution", "relative_throughput", "relative_bars")
# Loading, measuring of costs and pinning of memory before a run, and what a rate leaves to be done behind it.
START_UP_S = 8
DRAIN_S = 4
WINDOW_FLAGS = ("--duration", "--warm-up", "--cool-down")


@dataclass(frozen=True)
class Point:
    x: float | str
    text: str


@dataclass
class Panel:
    kind: str
    title: str
    stands_for: str
    work: str
    mode: str
    args: list  # words with {} for the point
    points: list
    quick: list  # of x
    strategies: list
    x_label: str = "request rate (requests/s)"
    baseline: str = bench_runner.BASELINE
    labels: dict = field(default_factory=dict)
    marks: str | None = None
    durations_s: dict = field(default_factory=dict)  # by row_name, where not that of args

    def words(self, point):
        words = [word.replace("{}", point.text) for word in self.args]
        duration_s = self.durations_s.get(row_name(words))
        return words if duration_s is None else bench_runner.with_own_flags(words, [("duration", f"{duration_s:g}")])

    def label(self, strategy):
        return self.labels.get(strategy, strategy)

    def work_key(self, point, strategy):
        """The part of Run.identity() that a run of this point has."""
        command = bench_runner.bench_command("tandem", self.mode, self.words(point), strategy)
        flags = result_files.flags_of(command[1:])
        return result_files.Run({}, flags, "").identity(WORK_KEY)


# Whether it was a window does not matter here: a figure says which it draws.
WORK_KEY = ("mode", *result_files.WORK_FLAGS, *result_files.WAY_FLAGS)


@dataclass
class Figure:
    name: str
    title: str
    paper: str
    panels: list
    results: list


def make_point(given):
    x, text = given if isinstance(given, list) else (given, f"{given:g}" if not isinstance(given, str) else given)
    return Point(x, text)


def make_panel(raw, content):
    raw = dict(raw)
    part, measure = content["slices"][raw.pop("slice")], content["measures"][raw.pop("measure")]
    words = shlex.split(" ".join((part["args"], raw.pop("args"), measure["args"])))
    points = [make_point(given) for given in raw.pop("points")]
    panel = Panel(
        title=part["title"],
        stands_for=part["stands_for"],
        mode=measure["mode"],
        args=words,
        points=points,
        quick=raw.pop("quick"),
        labels={**content["labels"], **raw.pop("labels", {})},
        durations_s=content["durations_s"],
        **raw,
    )
    if panel.kind not in KINDS:
        raise ValueError(f"there is no kind of panel '{panel.kind}'")
    if not set(panel.quick) <= {point.x for point in points}:
        raise ValueError(f"{panel.title}, {panel.work}: the quick points {panel.quick} are not all points")
    return panel


def read_figures(path=FOLDER / "figures.json"):
    """{name: Figure}"""
    content = json.loads(path.read_text())
    figures = {}
    for name, raw in content["figures"].items():
        panels = [make_panel(panel, content) for panel in raw["panels"]]
        figures[name] = Figure(name, raw["title"], raw["paper"], panels, raw["results"])
    return figures


def row_name(words):
    """The work and the slice: the same for figures that share a run."""
    flags = result_files.flags_of(words)
    where = f"{flags['gpu-sm-limit']} SMs" if "gpu-sm-limit" in flags else "whole GPU"
    rate = f", {flags['rate']} requests/s" if "rate" in flags else ""
    return f"{where}, {flags.get('dummy') or flags.get('model')}, {flags['workload']}{rate}"


def scale_windows(words, factor):
    scaled = list(words)
    for index, word in enumerate(words[:-1]):
        if word in WINDOW_FLAGS:
            scaled[index + 1] = f"{float(words[index + 1]) * factor:g}"
    return scaled


def rows_of(figures, quick=False, window_scale=1.0):
    """Rows for bench_runner, without those that several figures share twice."""
    rows = {}
    for figure in figures:
        for panel in figure.panels:
            for point in panel.points:
                if quick and point.x not in panel.quick:
                    continue
                words = scale_windows(panel.words(point), window_scale)
                row = rows.setdefault(
                    row_name(words), {"name": row_name(words), "args": words, "mode": panel.mode, "strategies": []}
                )
                if row["args"] != words or row["mode"] != panel.mode:
                    raise ValueError(f"{figure.name}: '{row['name']}' is in other figures with other flags")
                row["strategies"] += [name for name in panel.strategies if name not in row["strategies"]]
    return list(rows.values())


def expected_seconds(row):
    """Of one run."""
    flags = result_files.flags_of(row["args"])
    return START_UP_S + float(flags.get("duration", 0)) + (DRAIN_S if row["mode"] == "online" else 0)
