#!/usr/bin/env python3
"""Runs clang-tidy over src/ on all cores, and skips what has not changed since it last passed.

    scripts/run_clang_tidy.py [--analyze] BUILD_DIR [FILE...]

BUILD_DIR is a configured build folder; batches of files are taken apart (compile_database.py). A file counts as unchanged if its own text, the
text of every project header it reaches, its compile command, .clang-tidy and clang-tidy's version are the same.
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
import subprocess
import sys
import time

import compile_database

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem" / "clang-tidy"
WITHOUT_ANALYZER = "--checks=-clang-analyzer-*"
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Texts:
    """Contents and includes of project files, each read once."""

    def __init__(self):
        self._digests = {}
        self._includes = {}

    def _read(self, path):
        data = path.read_bytes()
        self._digests[path] = hashlib.sha256(data).digest()
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
    command = entry["arguments"]
    # Where the checkout and the build folder are, and whether there is a ccache, changes nothing.
    command = [word.replace(str(ROOT), ".") for word in command if word.startswith(("-D", "-W", "-f", "-m", "-s", "-I"))]
    key.update(" ".join(command).encode())
    for path in texts.closure(pathlib.Path(entry["file"])):
        key.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + texts.digest(path))
    return key.hexdigest()


def tidy(database_folder, options, file):
    begin = time.monotonic()
    command = ["clang-tidy", "-p", str(database_folder), "--quiet", *options, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    # clang-tidy says on standard error only how many warnings of system headers it suppressed.
    output = run.stdout if run.stdout.strip() or run.returncode == 0 else run.stdout + run.stderr
    return run.returncode, output, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--analyze", action="store_true")
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    try:
        database = compile_database.database_of(arguments.build_dir)
    except OSError as error:
        print(f"run_clang_tidy.py: {error}; configure that build first", file=sys.stderr)
        return 2
    # clang-tidy looks for the name in a folder.
    database_folder = arguments.build_dir / "each_file"
    database_folder.mkdir(exist_ok=True)
    (database_folder / "compile_commands.json").write_text(json.dumps(database))
    wanted = {file.resolve() for file in arguments.files}
    entries = {}
    for entry in database:
        file = pathlib.Path(entry["file"])
        if file.suffix == ".cc" and file.is_relative_to(ROOT / "src") and (not wanted or file in wanted):
            entries[file] = entry
    if wanted - entries.keys():
        for file in sorted(wanted - entries.keys()):
            print(f"run_clang_tidy.py: {arguments.build_dir} does not compile {file}", file=sys.stderr)
        return 2

    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    options = [] if arguments.analyze else [WITHOUT_ANALYZER]
    base = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(options).encode()
    texts = Texts()
    keys = {file: cache_key(texts, entry, base) for file, entry in entries.items()}
    CACHE.mkdir(parents=True, exist_ok=True)
    stale = [file for file in entries if not (CACHE / keys[file]).exists()]
    # The longest first, so that no core ends with a long file alone.
    stale.sort(key=lambda file: len(texts.closure(file)) * 10_000 + file.stat().st_size, reverse=True)

    failed = []
    slowest = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = {pool.submit(tidy, database_folder, options, file): file for file in stale}
        for run in concurrent.futures.as_completed(runs):
            file = runs[run]
            code, output, seconds = run.result()
            slowest.append((seconds, file.relative_to(ROOT)))
            if code == 0:
                (CACHE / keys[file]).touch()
            else:
                failed.append(file)
                print(output.strip(), file=sys.stderr)

    summary = f"clang-tidy: {len(entries)} files, {len(entries) - len(stale)} unchanged, {len(failed)} with warnings"
    if not wanted:  # the other backend's, or another processor's; a number that grows wants looking at
        summary += f", {len(set((ROOT / 'src').rglob('*.cc')) - entries.keys())} not in this build"
    print(summary)
    if os.environ.get("TANDEM_TIDY_TIMES"):
        for seconds, file in sorted(slowest, reverse=True):
            print(f"  {seconds:6.1f} s  {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
