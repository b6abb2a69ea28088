"""What the measurements of a server's costs share: a summary of runs, the program's version, where a result goes."""

import json
import subprocess
from pathlib import Path

import repeats


def summary(values):
    spread = repeats.spread_of(values)
    return {"median": spread.median, "min": spread.minimum, "max": spread.maximum, "runs": spread.count}


def version_lines(tandem):
    return subprocess.run([tandem, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()


def publish(result, path):
    """Prints a result as JSON, and writes it to path, if there is one."""
    text = json.dumps(result, indent=1)
    print(text)
    if path:
        Path(path).write_text(text + "\n")
