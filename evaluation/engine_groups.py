"""Points that one engine can work off, so that it starts once: `tandem bench compare`.

A point is a strategy of a row (bench_runner.py) and how often it is to run. Those share an engine whose rows differ in
the workload alone, or, for online runs, in the rate alone, and whose strategies have the same flags of their own but
for --async-cohorts.
"""

import bench_runner

SHARED_FLAGS = {"async-cohorts"}
# What may differ between the rows of a group, by their mode.
VARIED_FLAGS = {"offline": "--workload", "online": "--rate"}


def value_of(words, flag):
    """None if there is not exactly one."""
    values = [word.partition("=")[2] for word in words if word.startswith(flag + "=")]
    values += [value for word, value in zip(words, words[1:]) if word == flag]
    return values[0] if len(values) == 1 else None


def own_of_engine(strategy):
    """(the strategy as an engine of its own flags knows it, those flags as pairs with their values)"""
    name, own_flags = bench_runner.split_strategy(strategy)
    shared = [f":{flag}={value}" for flag, value in own_flags if flag in SHARED_FLAGS]
    return name + "".join(shared), tuple((flag, value) for flag, value in own_flags if flag not in SHARED_FLAGS)


def group(points, words_of):
    """[(words, flag, {value of the flag: row}, {name in the engine: strategy}, rounds)] of the points that can share.

    All pairs of a row and a strategy are points.
    """
    of_row = {}
    for row, strategy, rounds in points:
        name, own_flags = own_of_engine(strategy)
        of_row.setdefault((id(row), own_flags, rounds), (row, own_flags, rounds, {}))[3][name] = strategy
    groups = {}
    for row, own_flags, rounds, strategies in of_row.values():
        flag = VARIED_FLAGS[row.get("mode", "offline")]
        words = bench_runner.with_own_flags(words_of(row), own_flags)
        value = value_of(words, flag)
        key = (tuple(bench_runner.without_flag(words, flag)), flag, tuple(strategies.items()), rounds, row["seconds"])
        if value is not None and value not in groups.get(key, {}):
            groups.setdefault(key, {})[value] = row
    return [
        (list(words), flag, rows, dict(strategies), rounds)
        for (words, flag, strategies, rounds, _), rows in groups.items()
    ]


def compare_command(tandem, words, flag, values, strategies, rounds):
    varied = [word for value in values for word in (flag, value)]
    repeat = ["--repeat", str(rounds)] if rounds > 1 else []
    return [str(tandem), "bench", "compare", *words, *varied, "--strategies", ",".join(strategies), *repeat]


def runs_of(runs, flag, value, strategy):
    """Those of the result file, in the order of rounds."""

    def is_of(run):
        same = run["workload"] == value if flag == "--workload" else run.get("rate") == float(value)
        return same and run["strategy"] == strategy

    return [run for run in runs if is_of(run)]


def run_groups(points, tandem, words_of, command_of):
    """Yields (row, strategy, done) for the runs that were together, done as bench_runner.run makes it.

    "command" is that of the point alone, "ran_as" the one that ran.
    """
    for words, flag, rows, strategies, rounds in group(points, words_of):
        if len(rows) * len(strategies) * rounds < 2:
            continue
        command = compare_command(tandem, words, flag, rows, strategies, rounds)
        seconds = sum(row["seconds"] for row in rows.values()) * len(strategies) * rounds
        _, result, reason = bench_runner.run_program(command, seconds)
        for value, row in rows.items():
            for name, strategy in strategies.items():
                runs = runs_of((result or {}).get("runs", []), flag, value, name)
                runs += [{"wall_s": 0, "error": reason}] * (rounds - len(runs))
                for run in runs:
                    done = {"command": command_of(row, strategy), "ran_as": command}
                    yield row, strategy, done | {key: run[key] for key in ("wall_s", "result", "error") if key in run}
