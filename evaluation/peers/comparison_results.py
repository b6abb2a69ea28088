"""The file of compare_engines.py: what every call measured, without a path of the machine.

    {"calls": [{"date", "seconds", "machine", "versions", "anchor": {"name", "points"}}, ...],
     "rows": [{"name", "definition", "points": {key: what it is},
               "variants": {name: {"side", "settings", "runs": [{"call", "round", "start_s", "engine",
                                                                 "points": {key: {"wall_s", "result" or "error"}}}]}}}]}

A run is one start of an engine or of a server. "call" is the index of the call that it belongs to.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bench_runner  # noqa: E402

# Two folders at least: a/b is a ratio, and /v1/models an address.
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.@+~-]+/)+(?=[\w.@+~-])")
ADDRESSES = ("/v1/",)


def without_paths(content):
    """The same with the last part alone of every absolute path in its texts."""
    if isinstance(content, dict):
        return {without_paths(key): without_paths(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [without_paths(value) for value in content]
    if not isinstance(content, str):
        return content
    return ABSOLUTE_PATH.sub(lambda found: found[0] if found[0].startswith(ADDRESSES) else "", content)


class Results:
    def __init__(self, path=None, resume=False):
        self._path = path
        content = json.loads(path.read_text()) if resume and path and path.exists() else {}
        self.calls = content.get("calls", [])
        self.rows = content.get("rows", [])

    def begin_call(self, call):
        self.calls.append(call)

    def take_over(self, rows):
        """Leaves behind what was measured of the rows otherwise than they say now, and what failed."""
        for row in rows:
            entry = self.entry(row)
            if entry and entry["definition"] != as_json(row.definition()):
                self.rows.remove(entry)
                continue
            if not entry:
                continue
            stale = {
                key for key, point in entry["points"].items() if key in row.points and point != as_json(row.points[key])
            }
            entry["points"] = {key: point for key, point in entry["points"].items() if key not in stale}
            settings = {variant.name: as_json(variant.settings) for variant in row.variants}
            for name, variant in list(entry["variants"].items()):
                if name in settings and variant["settings"] != settings[name]:
                    del entry["variants"][name]
                    continue
                for run in variant["runs"]:
                    run["points"] = {
                        key: done for key, done in run["points"].items() if key not in stale and "result" in done
                    }
                variant["runs"] = [run for run in variant["runs"] if run["points"]]

    def entry(self, row):
        return next((entry for entry in self.rows if entry["name"] == row.name), None)

    def runs(self, row, variant):
        entry = self.entry(row)
        return entry["variants"].get(variant.name, {}).get("runs", []) if entry else []

    def done(self, row, variant, key):
        """The entries of a point that succeeded."""
        points = [run["points"].get(key, {}) for run in self.runs(row, variant)]
        return [point for point in points if "result" in point]

    def add(self, row, variant, run):
        entry = self.entry(row)
        if not entry:
            entry = {"name": row.name, "definition": as_json(row.definition()), "points": {}, "variants": {}}
            self.rows.append(entry)
        entry["points"] |= as_json({key: row.points[key] for key in run["points"]})
        of_variant = {"side": variant.side, "settings": as_json(variant.settings), "runs": []}
        entry["variants"].setdefault(variant.name, of_variant)["runs"].append(run)
        self.write()

    def content(self):
        return without_paths({"calls": self.calls, "rows": self.rows})

    def write(self):
        if self._path:
            bench_runner.replace_file(self._path, json.dumps(self.content(), indent=1) + "\n")


def as_json(content):
    """What comes back from the file, to be compared with what is there."""
    return without_paths(json.loads(json.dumps(content)))
