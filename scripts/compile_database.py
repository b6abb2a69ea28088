#!/usr/bin/env python3
"""Writes a compile_commands.json that names every source file, for editors (clangd) and clang-tidy.

    scripts/compile_database.py [BUILD_DIR [OUTPUT]]

CMake's own, in BUILD_DIR (build/host-release), names the batches that a folder's files are compiled in; here each file
of a batch has its batch's command, with its own name. OUTPUT is compile_commands.json at the root, where clangd looks.
Standard library only.
"""

import json
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = re.compile(r"/Unity/unity_\d+_\w+\.\w+$")
INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


# Options of GCC that clang does not know, and what keeps it from saying so.
GCC_WARNINGS = {"-Wno-maybe-uninitialized"}
QUIET = "-Wno-unknown-warning-option"


def command_of(entry):
    """The command as words for clang, without a ccache before the compiler."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    return [words[0], QUIET, *words[1:]] if GCC_WARNINGS.intersection(words) and QUIET not in words else words


def expand(entries):
    """The entries of a compile_commands.json, those of batches replaced by one for each file in them."""
    for entry in entries:
        words = command_of(entry)
        if not BATCH.search(entry["file"]):
            yield {"directory": entry["directory"], "file": entry["file"], "arguments": words}
            continue
        for file in INCLUDE.findall(pathlib.Path(entry["file"]).read_text()):
            own = [file if word == entry["file"] else word for word in words]
            if "-o" in own:
                own[own.index("-o") + 1] = pathlib.Path(file).name + ".o"
            yield {"directory": entry["directory"], "file": file, "arguments": own}


def database_of(build_dir):
    """Entries of a configured build; raises OSError if it has none."""
    return list(expand(json.loads((build_dir / "compile_commands.json").read_text())))


def main():
    arguments = [pathlib.Path(argument) for argument in sys.argv[1:]]
    if len(arguments) > 2:
        print("usage: scripts/compile_database.py [BUILD_DIR [OUTPUT]]", file=sys.stderr)
        return 2
    build_dir = arguments[0] if arguments else ROOT / "build" / "host-release"
    output = arguments[1] if len(arguments) == 2 else ROOT / "compile_commands.json"
    try:
        entries = database_of(build_dir)
    except OSError as error:
        print(f"compile_database.py: {error}; configure that build first", file=sys.stderr)
        return 1
    output.write_text(json.dumps(entries, indent=1) + "\n")
    print(f"{output}: {len(entries)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
