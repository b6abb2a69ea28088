"""Several runs of the same point: medians and spread, and percentiles of many values.

The relative spread is half the range over the median: 100 ±2 % says that all runs lie between about 98 and 102.
"""

from dataclasses import dataclass
from statistics import median

# What a file says the spread of.
SPREAD_FIELDS = (
    "output_throughput",
    "steady_output_throughput",
    "request_throughput",
    "mean_per_token_latency_s",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "median_itl_ms",
    "p99_itl_ms",
)


@dataclass(frozen=True)
class Spread:
    median: float
    minimum: float
    maximum: float
    count: int

    @property
    def relative(self):
        """None for a single run, which says nothing of it."""
        return (self.maximum - self.minimum) / 2 / abs(self.median) if self.count > 1 and self.median else None


def percentile(values, share):
    """The smallest value that `share` of them do not exceed; None of none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * 1000) * len(ranked) // 1000) - 1))] if ranked else None


def spread_of(values):
    """None if there is no value."""
    values = [value for value in values if is_number(value)]
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def median_report(reports):
    """A report whose numbers are medians over the reports; anything else is that of the first."""
    first = reports[0]
    if len(reports) == 1:
        return first
    if isinstance(first, dict):
        return {
            key: median_report([report[key] for report in reports if isinstance(report, dict) and key in report])
            for key in first
        }
    numbers = [report for report in reports if is_number(report)]
    return median(numbers) if numbers else first


def runs_of(entry):
    """[{"wall_s", "result" or "error"}, ...] of an entry of a row's "runs", or of None."""
    if entry is None:
        return []
    return entry["repeats"] if "repeats" in entry else [entry]


def reports_of(entry):
    return [done["result"] for done in runs_of(entry) if "result" in done]


def errors_of(entry):
    return [done["error"] for done in runs_of(entry) if "error" in done]


def succeeded(entry):
    return [{"command": entry["command"], **done} for done in runs_of(entry) if "result" in done]


def add_all(runs, strategy, done):
    """Adds runs of one command to the entry of a strategy."""
    everything = [*runs_of(runs.get(strategy)), *done]
    if not everything:
        return
    command = (runs.get(strategy) or everything[0])["command"]
    if len(everything) == 1:
        runs[strategy] = {**everything[0], "command": command}
        return
    bare = [{key: value for key, value in run.items() if key != "command"} for run in everything]
    runs[strategy] = {"command": command, "repeats": bare, "spread": describe_spread(bare)}


def describe_spread(runs):
    result = {}
    for field in SPREAD_FIELDS:
        spread = spread_of(run["result"].get(field) for run in runs if "result" in run)
        if spread and spread.count > 1:
            result[field] = {
                "median": spread.median,
                "min": spread.minimum,
                "max": spread.maximum,
                "relative_spread": spread.relative,
            }
    return result
