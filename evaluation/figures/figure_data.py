"""What a figure draws: the runs of result files, sorted by panel, strategy and point. No matplotlib."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from figure_spec import FOLDER, REPOSITORY, WORK_KEY  # puts the folder above on the path, too

import repeats  # noqa: E402
import result_files  # noqa: E402

# Beyond these, prompts of the window were done before it or are left for later, and its tokens flatter or look worse.
PREFILL_SHARES = (0.85, 1.15)
# Below it a mean latency leaves out those that waited longest.
DONE_SHARE = 0.99


@dataclass
class Cell:
    """The runs of one strategy at one point."""

    runs: list
    # All cells of the point say what their windows would have made in balance (bench report): that is compared.
    balanced: bool = False

    @property
    def throughput_name(self):
        return "balanced_output_throughput" if self.balanced else "output_throughput"

    def spread(self, name="output_throughput"):
        return repeats.spread_of(run.get(name) for run in self.runs)

    def median(self, name="output_throughput"):
        spread = self.spread(name)
        return spread.median if spread else None

    def per_token_percentiles(self):
        """0 to 100 of latency over output tokens, each the median over the runs; empty if no run has them."""
        found = [run.get("per_token_latency_percentiles_s") for run in self.runs]
        return [median(values) for values in zip(*filter(None, found), strict=True)]

    @property
    def window_s(self):
        return self.median("window_s")

    @property
    def prefill_share(self):
        """Of a window amid the work. A whole run has all of its prompts, and arrivals bring theirs."""
        offline = all(run.flags.get("mode") == "offline" for run in self.runs)
        return self.median("steady_prefill_share") if self.window_s and offline else None

    @property
    def done_share(self):
        """Of the requests that had to be done, in the repeat with the fewest."""
        shares = []
        for run in self.runs:
            done, lost = run.get("completed") or 0, (run.get("failed") or 0) + (run.get("rejected") or 0)
            shares.append(done / (done + lost) if done + lost else 0.0)
        return min(shares)

    @property
    def doubtful(self):
        """Something is to be said beside the number; doubts() says what."""
        return bool(self.doubts())

    def doubts(self):
        found = []
        if self.done_share < DONE_SHARE:
            found.append(f"{self.done_share:.0%} of the requests were done in time")
        share = self.prefill_share
        if not self.balanced and share is not None and not PREFILL_SHARES[0] <= share <= PREFILL_SHARES[1]:
            found.append(f"the window has {share:.2f} of the prompts of its outputs")
        if dropped := max(run.get("dropped") or 0 for run in self.runs):
            found.append(f"{dropped} requests were too long for it and were left out")
        return found


@dataclass
class PanelData:
    panel: object  # figure_spec.Panel
    cells: dict = field(default_factory=dict)  # strategy -> {x: Cell}
    missing: list = field(default_factory=list)  # (strategy, x)

    @property
    def xs(self):
        return [point.x for point in self.panel.points if any(point.x in line for line in self.cells.values())]

    def ratio(self, strategy, x):
        """Spread of throughput relative to the baseline's median, or None."""
        cell, base = self.cells.get(strategy, {}).get(x), self.cells.get(self.panel.baseline, {}).get(x)
        if cell is None or base is None:
            return None
        name = cell.throughput_name
        if not base.median(name) or cell.spread(name) is None:
            return None
        spread, scale = cell.spread(name), base.median(name)
        return repeats.Spread(spread.median / scale, spread.minimum / scale, spread.maximum / scale, spread.count)

    def bound(self, x, name="upper_bound_throughput"):
        """Of the machine and the work: the median of what the runs of this point computed from their costs.

        Runs of the cpu tier only: what gpu-only computes has no CPU in it.
        """
        spread = repeats.spread_of(
            run.get(name)
            for line in self.cells.values()
            if x in line
            for run in line[x].runs
            if run.get("cpu_kv_tokens")
        )
        return spread.median if spread else None

    def runs(self):
        return [run for line in self.cells.values() for cell in line.values() for run in cell.runs]

    def kinds_of_run(self):
        """ "whole runs and windows of 8 s" """
        return kinds_of_run([self])

    def title(self):
        """The panel's, with the name of the GPU that the runs were on."""
        devices = [(run.get("machine") or {}).get("gpu") or {} for run in self.runs()]
        names = sorted({each["name"] for device in devices for each in device.get("devices") or []})
        return self.panel.title.format(gpu=" or ".join(names) or "GPU")

    def machines(self):
        return sorted({result_files.describe_machine(run.report) for run in self.runs()})

    def files(self):
        return sorted({Path(run.file).name for run in self.runs()})


def kinds_of_run(panels):
    kinds = {
        f"windows of {run.get('window_s'):.3g} s" if run.get("window_s") else "whole runs"
        for data in panels
        for run in data.runs()
    }
    return " and ".join(sorted(kinds))


def read_all(paths):
    """[runs of the last file, of the one before, ...]: what is newer comes first."""
    return [result_files.read_runs(path) for path in reversed(paths)]


def runs_of_point(panel, point, files):
    """{strategy: [runs]}, all of them of one file and all windowed or none: only these may be put in relation.

    Of several such sets the one with the most strategies, else that of the newer file, else the windowed one.
    """
    best = {}
    for runs in files:
        for windowed in (True, False):
            found = {}
            for strategy in panel.strategies:
                key = panel.work_key(point, strategy)
                mine = [run for run in runs if ("windowed" in run.flags) == windowed and run.identity(WORK_KEY) == key]
                if mine:
                    found[strategy] = mine
            if len(found) > len(best):
                best = found
    return best


def collect(panel, files):
    data = PanelData(panel, {strategy: {} for strategy in panel.strategies})
    for point in panel.points:
        found = runs_of_point(panel, point, files)
        for strategy in panel.strategies:
            if strategy in found:
                data.cells[strategy][point.x] = Cell(found[strategy])
            else:
                data.missing.append((strategy, point.x))
    data.cells = {strategy: line for strategy, line in data.cells.items() if line}
    for point in panel.points:
        cells = [line[point.x] for line in data.cells.values() if point.x in line]
        balanced = all(run.get("balanced_output_throughput") for cell in cells for run in cell.runs)
        for cell in cells:
            cell.balanced = balanced
    return data


def result_paths(figure, given=()):
    return [Path(path) for path in given] or [REPOSITORY / path for path in figure.results]


def read_marks(path=FOLDER / "paper_figures.json"):
    return json.loads(path.read_text())["marks"]


def crossing(points, level):
    """The x at which a line of (x, y) first reaches the level, between its points; None if it does not."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if y0 <= level <= y1 and y1 > y0:
            return x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return None
