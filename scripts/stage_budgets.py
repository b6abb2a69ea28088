#!/usr/bin/env python3
"""What the stages of scripts/test.sh took, beside what they may take.

    scripts/stage_budgets.py yardstick         prints what the yardstick takes on this machine, in CPU seconds
    scripts/stage_budgets.py table PARTS       prints the table of a run; exits with 1 if a stage is over its budget

PARTS is a folder that has, for each part of a stage that ran, STAGE.PART with one line
"OUTCOME BEGIN_S END_S CPU_S" (OUTCOME is ok or FAILED; seconds since some start), and a file `yardstick` with one
figure a line: the yardstick before, and perhaps after, the stages.

The yardstick is a fixed C++ file, compiled on all cores at once: how long it takes says how fast this machine is,
and budgets are scaled by it. Standard library only.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile

BUDGETS = pathlib.Path(__file__).resolve().parent / "stage_budgets.txt"
MAX_USE = 1.3  # of a budget

YARDSTICK = """
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
std::map<std::string, std::vector<std::string>> Words(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::map<std::string, std::vector<std::string>> words;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
    words[match->str().substr(0, 1)].push_back(match->str());
  }
  for (auto& [letter, list] : words) std::sort(list.begin(), list.end(), std::greater<>());
  return words;
}
std::unordered_map<std::string, std::function<int(int)>> Table() {
  return {{"a", [](int x) { return x + 1; }}, {"b", [](int x) { return x * 2; }}};
}
"""


class BudgetError(Exception):
    pass


def read_budgets(path=BUDGETS):
    """Stage -> CPU seconds on the machine of reference, and the yardstick there."""
    budgets = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        words = line.split()
        try:
            name, seconds = words[0], float(words[1])
        except (IndexError, ValueError):
            raise BudgetError(f"{path}, line {number}: '{line}' is not a name and CPU seconds") from None
        if name in budgets or seconds <= 0 or len(words) != 2:
            raise BudgetError(f"{path}, line {number}: '{line}' is no budget, or '{name}' has one already")
        budgets[name] = seconds
    if "yardstick" not in budgets:
        raise BudgetError(f"{path} has no line 'yardstick'")
    return budgets, budgets.pop("yardstick")


def measure_yardstick():
    """CPU seconds of one of as many compilations as there are cores, at once; the second of two rounds."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "yardstick.cc"
        source.write_text(YARDSTICK)
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            # A compiler by its path, not a ccache of that name before it.
            runs = [
                subprocess.Popen(["/usr/bin/g++", "-std=c++20", "-O2", "-c", str(source), "-o", f"{folder}/{core}.o"])
                for core in range(cores)
            ]
            if any([run.wait() for run in runs]):
                raise BudgetError("the yardstick does not compile")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / cores


def largest_yardstick(parts):
    """A machine that got slower meanwhile, through what else it does, is the slower one."""
    return max(float(line) for line in (parts / "yardstick").read_text().split())


def table(parts, budgets, reference):
    """The lines of the table, and the stages that are over their budgets."""
    yardstick = largest_yardstick(parts)
    speed = yardstick / reference
    stages = {}
    for path in sorted(parts.glob("*.*"), key=lambda path: float(path.read_text().split()[1])):
        outcome, begin, end, cpu = path.read_text().split()
        stage = stages.setdefault(path.name.split(".")[0], {"outcome": "ok", "wall": 0.0, "cpu": 0.0})
        stage["wall"] += float(end) - float(begin)
        stage["cpu"] += float(cpu)
        if outcome != "ok":
            stage["outcome"] = outcome
    lines = [f"{'stage':<12} {'':<6} {'wall s':>7} {'CPU s':>7} {'budget':>7} {'use':>5}"]
    over = []
    for name, stage in stages.items():
        line = f"{name:<12} {stage['outcome']:<6} {stage['wall']:7.0f} {stage['cpu']:7.0f}"
        if name in budgets:
            budget = budgets[name] * speed
            use = stage["cpu"] / budget
            line += f" {budget:7.0f} {use:5.2f}"
            if use > MAX_USE:
                line += f"  over {MAX_USE}: see scripts/stage_budgets.txt"
                over.append(name)
        lines.append(line)
    lines.append(
        f"{'total':<12} {'':<6} {'':>7} {sum(stage['cpu'] for stage in stages.values()):7.0f}   (budgets times "
        f"{speed:.2f}: the yardstick took {yardstick:.2f} s, {reference:.2f} where they were set)"
    )
    return lines, over


def main():
    try:
        if sys.argv[1:] == ["yardstick"]:
            print(f"{measure_yardstick():.3f}")
            return 0
        if len(sys.argv) == 3 and sys.argv[1] == "table":
            lines, over = table(pathlib.Path(sys.argv[2]), *read_budgets())
            print("\n".join(lines))
            return 1 if over else 0
    except BudgetError as error:
        print(f"stage_budgets.py: {error}", file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
