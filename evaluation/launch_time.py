#!/usr/bin/env python3
"""What the host takes to plan and to enqueue an iteration, from timelines (tandem bench offline --timeline FILE).

    python3 evaluation/launch_time.py --layers 32 FILE.json...

A line a file and kind of span on the engine's lane: number, mean, median, p99 in us, and the mean a layer. `start` is
enqueueing: with --without graphs,rider-graphs op by op, else mostly launches of graphs.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "figures"))

import iteration_timeline  # noqa: E402
import repeats  # noqa: E402

ENGINE = "engine"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--layers", type=int, required=True, help="of the model")
    args = parser.parse_args(words)
    print(f"{'file':30} {'span':14} {'n':>6} {'mean':>9} {'median':>9} {'p99':>9} {'a layer':>9}")
    for path in args.files:
        by_name = defaultdict(list)
        for span in iteration_timeline.read_trace(path).get(ENGINE, ()):
            by_name[span.kind].append(span.end - span.begin)
        if not by_name:
            sys.exit(f"{path}: no lane '{ENGINE}'")
        for name, values in sorted(by_name.items()):
            mean = statistics.fmean(values)
            print(
                f"{path.stem:30} {name:14} {len(values):6} {mean:9.1f} {statistics.median(values):9.1f} "
                f"{repeats.percentile(values, 0.99):9.1f} {mean / args.layers:9.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
