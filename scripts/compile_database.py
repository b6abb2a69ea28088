#!/usr/bin/env python3
"""Writes a compile_commands.json that names every source file, for editors (clangd).

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


def command_of(entry):
    """The command as words, without a ccache before the compiler."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    return words[1:] if pathlib.Path(words[0]).name == "ccache" else words


def sources_of(entry):
    """The source files that an entry of a compile_commands.json compiles: itself, or those of its batch."""
    if not BATCH.search(entry["file"]):
        return [entry["file"]]
    return INCLUDE.findall(pathlib.Path(entry["file"]).read_text())


def expand(entries):
    """The entries of a compile_commands.json, those of batches replaced by one for each file in them."""
    for entry in entries:
        for file in sources_of(entry):
            own = [file if word == entry["file"] else word for word in command_of(entry)]
            if "-o" in own and file != entry["file"]:
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
