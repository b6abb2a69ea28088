#!/usr/bin/env python3
"""Checks that every header of src/ compiles alone.

A header that some source file includes first is compiled alone by the build already (clang-format keeps foo.h
first in foo.cc); only the others are compiled here. CUDA headers (.cuh, */cuda/*) are left to the CUDA build.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<[^>]+>)', re.MULTILINE)


def compile_alone(header):
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", "-I", str(ROOT / "src")]
    command.append(f'-DTANDEM_SOURCE_DIR="{ROOT}"')  # as tests have it
    # Through standard input: a header named on the command line warns about its own #pragma once.
    run = subprocess.run(
        [*command, "-x", "c++", "-"], input=f'#include "{header}"\n', capture_output=True, text=True, check=False
    )
    return run.returncode, run.stderr


def main():
    source = ROOT / "src"
    errors = []
    covered = set()
    for file in source.rglob("*.cc"):
        match = FIRST_INCLUDE.search(file.read_text())
        if match and match.group(1):
            covered.add(match.group(1))
    headers = []
    for file in sorted(source.rglob("*.h")):
        name = file.relative_to(source).as_posix()
        if "#pragma once" not in file.read_text():
            errors.append(f"src/{name}: no #pragma once")
        if name not in covered and "/cuda/" not in name:
            headers.append(name)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, (code, output) in zip(headers, pool.map(compile_alone, headers)):
            if code != 0:
                errors.append(f"src/{name}: does not compile alone\n{output.strip()}")
    for error in errors:
        print(error, file=sys.stderr)
    print(f"headers: {len(covered)} compiled first in a source file, {len(headers)} compiled alone")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
