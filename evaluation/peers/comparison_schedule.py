"""The order of runs: sides alternate, A B B A A B, and what does not fit into the time of a call is left for the next.

A round measures every point of every variant once; all rows have one before any has a second. Variants of a row follow
each other, in every second round the other way round. What is compared is measured in the same call as far as one call
has time for it: of a row only so many points are begun as all of its variants have time for.
"""

import time
from dataclasses import dataclass

# Later runs of the same take about as long as earlier ones.
ESTIMATE_MARGIN = 1.15
# A run that takes so many times what was expected hangs.
HANGS_FACTOR, HANGS_SECONDS = 3, 120


class CallTime:
    def __init__(self, seconds, clock=time.monotonic):
        self.seconds = seconds
        self._clock = clock
        self._begin = clock()
        self.used_before_rows = 0.0

    def elapsed(self):
        return self._clock() - self._begin

    def left(self):
        return self.seconds - self.elapsed()

    def begin_rows(self):
        self.used_before_rows = self.elapsed()

    def whole(self):
        """What a call has for rows if it measures nothing else."""
        return self.seconds - self.used_before_rows


def estimate(results, row, variant, keys):
    """Seconds that a run of these points is expected to take."""
    runs = results.runs(row, variant)
    starts = [run["start_s"] for run in runs if any("result" in point for point in run["points"].values())]
    total = ESTIMATE_MARGIN * max(starts) if starts else row.fields["start_s"]
    for key in keys:
        walls = [point["wall_s"] for point in results.done(row, variant, key)]
        total += ESTIMATE_MARGIN * max(walls) if walls else row.fields["point_s"]
    return total


@dataclass
class Turn:
    """One run: these points of this variant."""

    row: object
    variant: object
    keys: list
    round_index: int


class Schedule:
    """measure(row, variant, keys, seconds) -> a run, as comparison_sides.Side.measure() has it."""

    def __init__(self, results, rows, repeat, call_time, measure, call_index=0, tell=print):
        self._results = results
        self._rows = rows
        self._repeat = repeat
        self._time = call_time
        self._measure = measure
        self._call_index = call_index
        self._tell = tell
        self._failed = set()
        self.left_over = 0  # points

    def run(self):
        """Whether everything that was tried succeeded."""
        most = max(self._rounds_of(row) for row in self._rows)
        for round_index in range(most):
            for row in self._rows:
                if round_index < self._rounds_of(row):
                    self._run_row(row, round_index)
        self.left_over = sum(
            len(self._lacks(row, variant, self._rounds_of(row) - 1)) for row in self._rows for variant in row.variants
        )
        return not self._failed

    def _rounds_of(self, row):
        return row.fields["repeat"] or self._repeat

    def _lacks(self, row, variant, round_index):
        """Points that have not been measured in this round; what failed in this call is not tried again."""
        return [
            key
            for key in row.points
            if len(self._results.done(row, variant, key)) <= round_index
            and (row.name, variant.name, key) not in self._failed
        ]

    def _run_row(self, row, round_index):
        while turns := self._next_turns(row, round_index):
            for turn in turns:
                if not self._run_turn(turn):
                    return

    def _next_turns(self, row, round_index):
        variants = row.variants if round_index % 2 == 0 else row.variants[::-1]
        lacks = {variant.name: self._lacks(row, variant, round_index) for variant in variants}
        keys = [key for key in row.points if any(key in of_variant for of_variant in lacks.values())]

        def turns_of(some_keys):
            turns = [
                Turn(row, variant, [key for key in some_keys if key in lacks[variant.name]], round_index)
                for variant in variants
            ]
            return [turn for turn in turns if turn.keys]

        def seconds_of(turns):
            return sum(estimate(self._results, row, turn.variant, turn.keys) for turn in turns)

        for count in range(len(keys), 0, -1):
            turns = turns_of(keys[:count])
            if seconds_of(turns) <= self._time.left():
                return turns
        first = turns_of(keys[:1])
        if seconds_of(first) > self._time.whole():
            # No call has time for all of its variants: each for itself.
            return [turn for turn in first[:1] if seconds_of([turn]) <= self._time.left()]
        return []

    def _run_turn(self, turn):
        """False if the time was over amid the run."""
        row, variant = turn.row, turn.variant
        expected = estimate(self._results, row, variant, turn.keys)
        patience = HANGS_FACTOR * expected + HANGS_SECONDS
        left = self._time.left()
        run = self._measure(row, variant, turn.keys, max(1.0, min(left, patience)))
        cut = left <= patience and self._time.left() <= 1.0
        if cut:
            run["points"] = {key: point for key, point in run["points"].items() if "result" in point}
        for key, point in run["points"].items():
            if "error" in point:
                self._failed.add((row.name, variant.name, key))
        if run["points"]:
            self._results.add(row, variant, {"call": self._call_index, "round": turn.round_index, **run})
        wall_s = run["start_s"] + sum(point.get("wall_s", 0) for point in run["points"].values())
        errors = [point["error"] for point in run["points"].values() if "error" in point]
        what = errors[0] if errors else "the time was over" if cut else "done"
        self._tell(
            f"{row.name}, {variant.name}, {', '.join(turn.keys)}, round {turn.round_index + 1}: {what} ({wall_s:.0f} s)"
        )
        return not cut
