#!/usr/bin/env python3
"""Draws what hybrid serving gains over gpu-only, with the upper bound of the machine beside it.

    python3 evaluation/figures/readme_gain.py --out docs/img/readme_gain.svg    # the few cases of the README
    python3 evaluation/figures/readme_gain.py --table                           # all cases, for docs/performance.md

The newest measurement of each piece of work, in balance (docs/bench.md); medians where it was run several times.
Drawing needs matplotlib.
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import repeats  # noqa: E402
import result_files  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = REPOSITORY / "evaluation" / "results"
BASELINE, HYBRID = "gpu-only", "auto"
THROUGHPUT, BOUND = "balanced_output_throughput", "upper_bound_throughput"

T4_CLASS = "8 SMs, gpu tier of 2,240 tokens, Llama-2-7B, 372 in"
A10_CLASS = "16 SMs, gpu tier of 26,400 tokens, Llama-3.1-8B, 1000 in"
WHOLE_GPU = "whole GPU, gpu tier of 26,400 tokens, Llama-3.1-8B, 1000 in"


@dataclass(frozen=True)
class Case:
    group: str
    file: str
    row: str
    output_tokens: int
    readme_label: str = ""
    call: int = 0  # of a file of records, which has those of several calls


RUN_15, RUN_19, RUN_20, RUN_21 = (f"hybrid_h200_run{number}.json" for number in (15, 19, 20, 21))
RECORDS = "auto_h200.json"
SYNTHETIC = "{}, llama-3.1-8b, synthetic:in=1000,out={}"

CASES = [
    Case(T4_CLASS, RUN_20, "8 SMs, llama-2-7b, osc:out=25", 25),
    Case(T4_CLASS, RECORDS, "8 SMs, Llama-2-7B, osc", 45, call=19),
    Case(T4_CLASS, RUN_15, "8 SMs, Llama-2-7B, osc:out=50", 50),
    Case(T4_CLASS, RUN_20, "8 SMs, llama-2-7b, osc:out=100", 100),
    Case(
        T4_CLASS,
        RUN_20,
        "8 SMs, llama-2-7b, osc:out=200",
        200,
        "8 SMs,\nroom for 2,240 tokens:\n372 in, 200 out",
    ),
    Case(
        A10_CLASS,
        RUN_19,
        SYNTHETIC.format("16 SMs", 50),
        50,
        "16 SMs, room for\n26,400, mostly prefill:\n1000 in, 50 out",
    ),
    Case(A10_CLASS, RUN_19, SYNTHETIC.format("16 SMs", 100), 100),
    Case(
        A10_CLASS,
        RUN_19,
        SYNTHETIC.format("16 SMs", 200),
        200,
        "16 SMs,\nroom for 26,400:\n1000 in, 200 out",
    ),
    Case(A10_CLASS, RUN_21, SYNTHETIC.format("16 SMs", 400), 400),
    Case(
        A10_CLASS,
        RUN_20,
        SYNTHETIC.format("16 SMs", 800),
        800,
        "16 SMs,\nroom for 26,400:\n1000 in, 800 out",
    ),
    Case(A10_CLASS, RUN_15, "16 SMs, Llama-3.1-8B, 1000/1600", 1600),
    Case(WHOLE_GPU, RUN_19, SYNTHETIC.format("whole GPU", 50), 50),
    Case(WHOLE_GPU, RECORDS, "whole GPU, Llama-3.1-8B, 1000/100", 100, call=24),
    Case(WHOLE_GPU, RECORDS, "whole GPU, Llama-3.1-8B, 1000/200", 200, call=24),
    Case(WHOLE_GPU, RUN_19, SYNTHETIC.format("whole GPU", 400), 400),
    Case(WHOLE_GPU, RUN_15, "full GPU, Llama-3.1-8B, 1000/800", 800),
]


@dataclass(frozen=True)
class Gain:
    """Output tokens a second; the bound is of GPU and CPU together."""

    case: Case
    gpu_only: float
    hybrid: float
    bound: float

    @property
    def ratio(self):
        return self.hybrid / self.gpu_only

    @property
    def bound_ratio(self):
        return self.bound / self.gpu_only


def median_of(reports, field, where):
    spread = repeats.spread_of(report.get(field) for report in reports)
    if spread is None:
        raise ValueError(f"{where}: no {field}")
    return spread.median


def reports_of(case, folder):
    """{strategy: its reports}, or None if the file has no such row."""
    content = result_files.read_content(folder / case.file)
    if case.call:
        of_strategy = {}
        for report in content:
            if (report["call"], report["row"]) == (case.call, case.row):
                of_strategy.setdefault(report["strategy"], []).append(report)
        return of_strategy or None
    runs = next((row["runs"] for row in content["rows"] if row["name"] == case.row), None)
    return runs and {strategy: repeats.reports_of(entry) for strategy, entry in runs.items()}


def read_gain(case, folder=RESULTS):
    reports = reports_of(case, folder)
    if reports is None:
        raise ValueError(f"{case.file}: no row '{case.row}'")
    throughputs = []
    for strategy in (BASELINE, HYBRID):
        where = f"{case.file}: '{case.row}', {strategy}"
        throughputs.append(median_of(reports.get(strategy, []), THROUGHPUT, where))
    return Gain(case, *throughputs, median_of(reports[HYBRID], BOUND, where))


def read_readme_gains(folder=RESULTS):
    """Those that the README shows, the largest first."""
    gains = [read_gain(case, folder) for case in CASES if case.readme_label]
    return sorted(gains, key=lambda gain: -gain.ratio)


def to_table(gains):
    lines = ["| work | out | gpu-only, tok/s | auto, tok/s | gain | the most that is possible |", "|" + "---|" * 6]
    group = ""
    for gain in gains:
        title = gain.case.group if gain.case.group != group else ""
        group = gain.case.group
        numbers = f"{gain.gpu_only:,.0f} | {gain.hybrid:,.0f} | **{gain.ratio:.2f}x** | {gain.bound_ratio:.2f}x"
        lines.append(f"| {title} | {gain.case.output_tokens} | {numbers} |")
    return "\n".join(lines)


def draw(gains, out):
    import figure_style

    figure, axes = figure_style.new_figure(1, "The same GPU with and without the CPU (slices of one H200)")
    axis, width = axes[0], 0.38
    for index, gain in enumerate(gains):
        bars = ((-width / 2, gain.gpu_only, BASELINE, "gpu-only"), (width / 2, gain.hybrid, HYBRID, "hybrid (auto)"))
        for offset, value, name, label in bars:
            axis.bar(index + offset, value, width, color=figure_style.COLORS[name], label=label)
        ends = [index - width, index + width]
        label = "upper bound of GPU and CPU together"
        axis.plot(ends, [gain.bound] * 2, "--", color="black", linewidth=1.1, label=label)
        for text, x, y, points_above, color in (
            (f"{gain.ratio:.2f}x", index + width / 2, gain.hybrid, -14, "white"),
            (f"at most {gain.bound_ratio:.2f}x", index, gain.bound, 3, "black"),
        ):
            place = {"xytext": (0, points_above), "textcoords": "offset points", "ha": "center"}
            weight = "bold" if color == "white" else "normal"
            axis.annotate(text, (x, y), color=color, fontsize=figure_style.LABEL_SIZE + 1, fontweight=weight, **place)
    axis.set_xticks(range(len(gains)), [gain.case.readme_label for gain in gains], fontsize=figure_style.TICK_SIZE)
    axis.set_ylim(top=1.12 * max(gain.bound for gain in gains))
    axis.set_ylabel("output tokens a second")
    figure_style.finish(figure, axes, ["gpu-only", "hybrid (auto)"], "", [out])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print all cases as a Markdown table")
    parser.add_argument("--out", type=pathlib.Path, help="the .svg to write, of the few cases of the README")
    args = parser.parse_args()
    if args.table:
        print(to_table([read_gain(case) for case in CASES]))
    if args.out:
        draw(read_readme_gains(), args.out)


if __name__ == "__main__":
    main()
