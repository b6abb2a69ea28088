#!/usr/bin/env python3
"""Checks that the folders of src/ depend on each other as their CMakeLists.txt files say, and in one direction.

Each folder also says at its head what lives there and what does not: its CMakeLists.txt begins with a comment that says
it, or where it has none, README.md does.

Prints one line for each violation and exits with 1 if there is any. Standard library only.

    scripts/check_layers.py [ROOT]
"""

import collections
import itertools
import pathlib
import re
import sys

import checking

SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
FORBIDDEN_NAMES = {"utils", "util", "helper", "helpers", "manager", "misc", "common", "impl"}
KEYWORDS = {"SOURCES", "DEPENDS", "LIBRARIES", "PUBLIC_LIBRARIES", "LABELS", "TIMEOUT"}
# A file of the first folder may not reach a file of the second through any chain of includes.
UNREACHABLE = [
    ("planning", "device"),
    ("policy", "device"),
    ("simulate", "device"),
    ("engine", "simulate"),
    ("server", "simulate"),
    ("execute", "planning"),
    ("execute", "policy"),
    ("execute", "simulate"),
    ("execute", "request"),
    ("device", "model"),
    ("ops", "model"),
]
# The only places that may name CUDA's own types and functions.
CUDA_FOLDERS = re.compile(r"^src/((device|collective)/cuda/|ops/(.*/)?cuda/)")
CUDA_NAMES = re.compile(r"\bcudaError_t\b|\bcuda[A-Z]\w*\s*\(|\bCUresult\b|#include\s*<cuda")

SENTENCE_END = re.compile(r"[\w`)/]\.$")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
CALL = re.compile(r"\b(tandem_library|tandem_test)\s*\(([^)]*)\)", re.DOTALL)


def parse_depends(text):
    """The DEPENDS of the tandem_library and tandem_test calls of one CMakeLists.txt, as {call: {folder, ...}}."""
    depends = {}
    text = re.sub(r"#[^\n]*", "", text)
    for call, arguments in CALL.findall(text):
        keyword = None
        found = depends.setdefault(call, set())
        for word in arguments.split():
            if word in KEYWORDS:
                keyword = word
            elif keyword == "DEPENDS":
                found.add(word)
    return depends


def find_cycle(graph):
    """Some cycle of graph ({node: {successor, ...}}) as a list that ends where it starts, or None."""
    state = {}
    path = []

    def visit(node):
        state[node] = "open"
        path.append(node)
        for successor in sorted(graph.get(node, ())):
            if state.get(successor) == "open":
                return path[path.index(successor) :] + [successor]
            if successor not in state:
                cycle = visit(successor)
                if cycle:
                    return cycle
        path.pop()
        state[node] = "done"
        return None

    for node in sorted(graph):
        if node not in state:
            cycle = visit(node)
            if cycle:
                return cycle
    return None


def chain_to(start, folder, includes):
    """The shortest chain of includes from file start to a file of folder, or None."""
    came_from = {start: None}
    queue = collections.deque([start])
    while queue:
        file = queue.popleft()
        if file.split("/")[0] == folder:
            chain = []
            while file is not None:
                chain.append(file)
                file = came_from[file]
            return chain[::-1]
        for target in sorted(includes.get(file, ())):
            if target not in came_from:
                came_from[target] = file
                queue.append(target)
    return None


def is_test(file):
    """Also what tests of several files share: foo_testing.h."""
    return file.stem.endswith(("_test", "_testing"))


def says_what_lives_there(folder):
    """Whether CMakeLists.txt begins with a comment of whole sentences; without one, whether README.md has some."""
    cmake, readme = folder / "CMakeLists.txt", folder / "README.md"
    if cmake.is_file():
        lines = itertools.takewhile(lambda line: line.startswith("#"), cmake.read_text().splitlines())
        return SENTENCE_END.search(" ".join(line.strip("# ") for line in lines)) is not None
    return readme.is_file() and any(
        SENTENCE_END.search(line) for line in readme.read_text().splitlines() if not line.startswith("#")
    )


def check_heads(source):
    """A line for each folder with sources, or with folders that have some, that does not say what lives there."""
    folders = {file.parent for file in source.rglob("*") if file.suffix in SOURCE_SUFFIXES and file.is_file()}
    folders |= {parent for folder in folders for parent in folder.parents if parent.is_relative_to(source)}
    for folder in sorted(folders - {source}):
        if not says_what_lives_there(folder):
            name = "CMakeLists.txt" if (folder / "CMakeLists.txt").is_file() else "README.md"
            yield (
                f"src/{folder.relative_to(source).as_posix()}: {name} does not begin by saying what lives there, "
                "and what does not"
            )


def check(root):
    """All violations below root/src, as text."""
    source = root / "src"
    errors = []
    library_depends = {}
    test_depends = {}
    for cmake in sorted(source.glob("*/CMakeLists.txt")):
        folder = cmake.parent.name
        depends = parse_depends(cmake.read_text())
        library_depends[folder] = depends.get("tandem_library", set())
        test_depends[folder] = depends.get("tandem_test", set())
        for other in sorted(library_depends[folder] | test_depends[folder]):
            if not (source / other / "CMakeLists.txt").is_file():
                errors.append(f"src/{folder}/CMakeLists.txt: DEPENDS names '{other}', which is no folder of src/")

    cycle = find_cycle(library_depends)
    if cycle:
        errors.append("DEPENDS form a cycle: " + " -> ".join(cycle))

    includes = {}
    without_library = set()
    for file in sorted(source.rglob("*")):
        if file.suffix not in SOURCE_SUFFIXES or not file.is_file():
            continue
        path = file.relative_to(source).as_posix()
        folder = path.split("/")[0]
        shown = f"src/{path}"
        text = file.read_text()
        if set(re.split(r"[_\-.]", file.stem)) & FORBIDDEN_NAMES:
            errors.append(f"{shown}: a file is named after what it holds, not '{file.stem}'")
        if folder not in library_depends:
            without_library.add(folder)
            continue
        if CUDA_NAMES.search(text) and not CUDA_FOLDERS.match(shown):
            errors.append(f"{shown}: names CUDA's own types; only device/cuda, collective/cuda and ops/**/cuda may")
        allowed = {folder} | library_depends[folder]
        if is_test(file):
            allowed |= test_depends[folder]
        includes[path] = set()
        for match in INCLUDE.finditer(text):
            target = match.group(1)
            line = text.count("\n", 0, match.start()) + 1
            if not (source / target).is_file():
                errors.append(f'{shown}:{line}: include "{target}" names no file relative to src/')
                continue
            includes[path].add(target)
            if is_test(pathlib.PurePosixPath(target)) and not is_test(file):
                errors.append(f'{shown}:{line}: includes "{target}", which is for tests')
            target_folder = target.split("/")[0]
            if target_folder not in allowed:
                errors.append(
                    f'{shown}:{line}: includes "{target}", but DEPENDS of src/{folder} does not name {target_folder}'
                )

    errors += check_heads(source)

    for folder in sorted(without_library):
        errors.append(f"src/{folder}: has sources but no CMakeLists.txt that says what it may include")

    for first, second in UNREACHABLE:
        for path in sorted(includes):
            if path.split("/")[0] != first or is_test(pathlib.PurePosixPath(path)):
                continue
            chain = chain_to(path, second, includes)
            if chain:
                errors.append(f"{first} must not reach {second}: " + " -> ".join(chain))
    return errors


if __name__ == "__main__":
    sys.exit(checking.run(__doc__, check))
