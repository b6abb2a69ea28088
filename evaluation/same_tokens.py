#!/usr/bin/env python3
"""Says which runs of `tandem bench compare` made the same tokens, by their output_digest.

    python3 evaluation/same_tokens.py FILE...

Runs of one model and one workload belong together, whatever their strategy and number of shards. Exit code 1 if any of
them differ, or if one has no digest (a request failed, or the run had a window).
"""

import json
import sys
from collections import defaultdict
from pathlib import Path


def runs_of(path):
    content = json.loads(Path(path).read_text())
    return [run["result"] for run in content["runs"]] if "runs" in content else [content]


def main(paths):
    by_work = defaultdict(lambda: defaultdict(list))
    for path in paths:
        for run in runs_of(path):
            work = f"{run['model']} {run['dtype']}, {run['workload']} x {run['num_requests']}"
            by_work[work][run["output_digest"]].append(f"{run['strategy']} ({run['tensor_parallel_size']})")
    same = True
    for work, by_digest in by_work.items():
        for digest, who in by_digest.items():
            print(f"{work}: {digest or 'no digest'}: {', '.join(who)}")
        same = same and len(by_digest) == 1 and None not in by_digest
    print("all the same" if same else "NOT the same")
    return 0 if same and by_work else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
