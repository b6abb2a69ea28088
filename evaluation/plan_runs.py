"""Runs `tandem plan` for the scripts that make tables of it."""

import json
import pathlib
import subprocess
import tempfile

DEFAULT_TANDEM = str(pathlib.Path(__file__).resolve().parent.parent / "build" / "host-release" / "tandem")


def plan(tandem, flags):
    """Its JSON, and the entries of its strategies by name."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([tandem, "plan", *flags, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(pathlib.Path(out.name).read_text())
    return report, {each["strategy"]: each for each in report["strategies"]}
