#!/usr/bin/env python3
"""Runs clang-tidy over src/ on all cores, and skips what has not changed since it last passed.

    scripts/run_clang_tidy.py [--analyze] BUILD_DIR [PATH...]

BUILD_DIR is a configured build folder (compile_commands.json). What is checked is what is compiled: files of src/,
or batches of them (a unity build), which takes half the time; PATH, a file or folder, selects what holds some of it.
It counts as unchanged if its text, that of every project file it includes, its compile command, .clang-tidy and
clang-tidy's version are the same.
Passes are remembered in the user's cache folder, for every checkout. Without --analyze the static analyzer of
.clang-tidy is left out: it takes longer than all other checks together. Standard library only.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import compile_database

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem" / "clang-tidy"
# A batch includes .cc files, on purpose, and they are what is to be checked.
ALWAYS = ["--header-filter=/src/.*\\.(h|cc)$"]
CHECKS = "--checks=-bugprone-suspicious-include"
WITHOUT_ANALYZER = ",-clang-analyzer-*"
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Texts:
    """Contents and includes of project files, each read once."""

    def __init__(self):
        self._digests = {}
        self._includes = {}

    def _read(self, path):
        data = path.read_bytes()
        # Batches name their files by absolute paths.
        self._digests[path] = hashlib.sha256(data.replace(str(ROOT).encode(), b".")).digest()
        self._includes[path] = [
            target for name in INCLUDE.findall(data) if (target := ROOT / "src" / name.decode()).is_file()
        ]

    def closure(self, start):
        """start and every project file that it reaches, sorted."""
        seen = {start}
        stack = [start]
        while stack:
            path = stack.pop()
            if path not in self._digests:
                self._read(path)
            for target in self._includes[path]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return sorted(seen)

    def digest(self, path):
        return self._digests[path]


def cache_key(texts, entry, base):
    key = hashlib.sha256(base)
    command = entry.get("arguments") or shlex.split(entry["command"])
    # Where the checkout and the build folder are, and whether there is a ccache, changes nothing.
    command = [word.replace(str(ROOT), ".") for word in command if word.startswith(("-D", "-W", "-f", "-m", "-s", "-I"))]
    key.update(" ".join(command).encode())
    for path in texts.closure(pathlib.Path(entry["file"])):
        key.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + texts.digest(path))
    return key.hexdigest()


def tidy(build_dir, options, file):
    begin = time.monotonic()
    command = ["clang-tidy", "-p", str(build_dir), "--quiet", *options, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    # clang-tidy says on standard error only how many warnings of system headers it suppressed.
    output = run.stdout if run.stdout.strip() or run.returncode == 0 else run.stdout + run.stderr
    return run.returncode, output, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--analyze", action="store_true")
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    database = arguments.build_dir / "compile_commands.json"
    if not database.is_file():
        print(f"run_clang_tidy.py: {database} is missing; configure that build first", file=sys.stderr)
        return 2
    wanted = {path.resolve() for path in arguments.paths}
    texts = Texts()
    entries = {}
    checked = set()
    for entry in json.loads(database.read_text()):
        file = pathlib.Path(entry["file"])
        sources = [pathlib.Path(source) for source in compile_database.sources_of(entry)]
        # Generated sources, and what only tests link outside src/, are left out.
        if not sources or not all(source.suffix == ".cc" and source.is_relative_to(ROOT / "src") for source in sources):
            continue
        if wanted and not any(source.is_relative_to(path) for source in sources for path in wanted):
            continue
        entries[file] = entry
        checked.update(sources)
    for path in sorted(wanted):
        if not any(source.is_relative_to(path) for source in checked):
            print(f"run_clang_tidy.py: {path} is not in {database}", file=sys.stderr)
            return 2

    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    options = [*ALWAYS, CHECKS + ("" if arguments.analyze else WITHOUT_ANALYZER)]
    base = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(options).encode()
    keys = {file: cache_key(texts, entry, base) for file, entry in entries.items()}
    CACHE.mkdir(parents=True, exist_ok=True)
    stale = [file for file in entries if not (CACHE / keys[file]).exists()]
    # The longest first, so that no core ends with a long file alone.
    stale.sort(key=lambda file: len(texts.closure(file)) * 10_000 + file.stat().st_size, reverse=True)

    failed = []
    slowest = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = {pool.submit(tidy, arguments.build_dir, options, file): file for file in stale}
        for run in concurrent.futures.as_completed(runs):
            file = runs[run]
            code, output, seconds = run.result()
            slowest.append((seconds, file.relative_to(ROOT)))
            if code == 0:
                (CACHE / keys[file]).touch()
            else:
                failed.append(file)
                print(output.strip(), file=sys.stderr)

    print(
        f"clang-tidy: {len(checked)} files in {len(entries)} compilations, {len(entries) - len(stale)} unchanged, "
        f"{len(failed)} with warnings"
        # The other backend's, or another processor's; a number that grows wants looking at.
        + (f", {len(set((ROOT / 'src').rglob('*.cc')) - checked)} not in this build" if not wanted and not arguments.without_tests else "")
    )
    if os.environ.get("TANDEM_TIDY_TIMES"):
        for seconds, file in sorted(slowest, reverse=True):
            print(f"  {seconds:6.1f} s  {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
