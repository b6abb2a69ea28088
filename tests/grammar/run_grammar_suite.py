#!/usr/bin/env python3
"""Holds the grammars of JSON schemas against the JSON-Schema-Test-Suite and against the package jsonschema.

For every schema of the suite (drafts 7 and 2020-12) the program grammar_suite says that it is refused, or which of its
instances the grammar takes, written compactly and token by token, and draws answers at random. What must hold:

- no instance that is invalid is taken;
- every answer that was drawn to its end is JSON that jsonschema finds valid, formats too;
- no grammar breaks its own promises (a token that is allowed is accepted, some token is allowed).

Valid instances that are not taken are counted: grammars may be narrower than their schemas.

    tests/grammar/run_grammar_suite.py MODEL.gguf [--program PROGRAM] [--draws N] [--seed S] [--suite FOLDER]
        [--schemas FILE.json] [--verbose]

--draws: answers of each schema. --schemas: a file with a list of further schemas to draw answers of; tests/grammar/schemas.json
is always drawn. Needs the packages of requirements.txt; the suite comes with the sources of jsonschema on PyPI.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUITE_VERSION = "4.26.0"
SUITE_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DRAFTS = {"draft7": jsonschema.Draft7Validator, "draft2020-12": jsonschema.Draft202012Validator}
# jsonschema's own build backend would be fetched, and would run before the hash is checked.
BACKEND = f'''
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / "jsonschema-{SUITE_VERSION}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: jsonschema\\nVersion: {SUITE_VERSION}\\n")
    return folder.name
'''


def fetch_suite():
    """The folder of the suite's tests, fetched once into build/deps."""
    folder = ROOT / "build" / "deps" / f"json-schema-test-suite-{SUITE_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        scratch = pathlib.Path(name)
        (scratch / "backend" / "hatchling").mkdir(parents=True)
        (scratch / "backend" / "hatchling" / "__init__.py").touch()
        (scratch / "backend" / "hatchling" / "build.py").write_text(BACKEND)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema",
             "--no-build-isolation", "--dest", name, f"jsonschema=={SUITE_VERSION}"],
            env={**os.environ, "PYTHONPATH": str(scratch / "backend")},
            check=True,
        )  # fmt: skip
        sdist = next(scratch.glob("*.tar.gz"))
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
        if digest != SUITE_SHA256:
            sys.exit(f"the sources of jsonschema have SHA-256 {digest}, expected {SUITE_SHA256}")
        with tarfile.open(sdist) as archive:
            prefix = f"jsonschema-{SUITE_VERSION}/json/tests/"
            for member in archive.getmembers():
                if member.isfile() and member.name.startswith(prefix) and ".." not in member.name:
                    target = scratch / "tests" / member.name[len(prefix) :]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())
        (scratch / "tests").rename(folder)
    return folder


class Program:
    """grammar_suite; one question at a time."""

    def __init__(self, path, model):
        self._process = subprocess.Popen([path, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"grammar_suite ended at {question['schema']} with {self._process.wait()}")
        return json.loads(line)


def unique_keys(pairs):
    result = dict(pairs)
    # Only to be valid whichever of two a reader takes: the last one counts, as everywhere.
    return result


def parse(text):
    """The value of a JSON text, strictly: UTF-8 without halves of surrogate pairs, no NaN, no infinity."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    value = json.loads(text, object_pairs_hook=unique_keys, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def complaint(validator, text):
    """What is wrong with an answer, or None."""
    if "\ufffd" in text:
        # The program writes it for bytes that are no UTF-8; it may also have been drawn.
        text.encode()
    try:
        value = parse(text)
    except ValueError as error:
        return f"no JSON: {error}"
    error = next(validator.iter_errors(value), None)
    return None if error is None else error.message[:200]


def suite_cases(folder):
    """(draft, where, schema, tests) of every required test, and of formats."""
    for draft in DRAFTS:
        files = sorted((folder / draft).glob("*.json"))
        files += sorted((folder / draft / "optional" / "format").glob("*.json"))
        for file in files:
            for group in json.loads(file.read_text()):
                where = f"{draft}/{file.relative_to(folder / draft).with_suffix('')}: {group['description']}"
                yield draft, where, group["schema"], group["tests"]


def reason(sentence):
    """The keyword of a refusal."""
    pointer = sentence.split(":")[0]
    return pointer.rsplit("/", 1)[-1] if pointer.startswith("#/") else "(" + sentence[:60] + ")"


class Findings:
    def __init__(self, verbose):
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.wrong = []
        self.slowest = (0.0, "")
        self.slowest_mask = (0.0, "")
        self.mask_us = []
        self.verbose = verbose

    def note(self, where, text):
        self.wrong.append(f"{where}: {text}")
        print(f"WRONG {where}: {text}", flush=True)

    def take(self, where, schema, answer, validator):
        """An answer of the program; whether there is a grammar."""
        if "refused" in answer:
            self.counts["refused"] += 1
            self.refusals[reason(answer["refused"])] += 1
            if self.verbose:
                print(f"refused {where}: {answer['refused']}")
            return False
        self.counts["compiled"] += 1
        self.slowest = max(self.slowest, (answer["compile_ms"], where))
        self.slowest_mask = max(self.slowest_mask, (answer["slowest_mask_us"], where))
        self.mask_us.append(answer["mask_us"])
        for problem in answer["problems"]:
            self.note(where, problem)
        self.counts["drawn"] += len(answer["texts"])
        self.counts["unfinished"] += answer["unfinished"]
        for text in answer["texts"]:
            found = complaint(validator, text)
            if found:
                self.note(where, f"{found}: {text!r}, schema {json.dumps(schema)[:500]}")
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default=ROOT / "build/host-release/tests/grammar_suite")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40))
    parser.add_argument("--suite", type=pathlib.Path)
    parser.add_argument("--schemas", type=pathlib.Path, action="append", default=[HERE / "schemas.json"])
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    program = Program(arguments.program, arguments.model)
    findings = Findings(arguments.verbose)

    for draft, where, schema, tests in suite_cases(arguments.suite or fetch_suite()):
        instances = [json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False) for test in tests]
        validator = DRAFTS[draft](schema, format_checker=DRAFTS[draft].FORMAT_CHECKER)
        for strict in (True, False):
            answer = program.ask({"schema": json.dumps(schema), "instances": instances, "draws": arguments.draws,
                                  "strict": strict, "seed": arguments.seed})  # fmt: skip
            if not findings.take(where, schema, answer, validator):
                break
            for test, accepted in zip(tests, answer["accepted"], strict=True):
                kind = f"{'valid' if test['valid'] else 'invalid'}, {'taken' if accepted else 'not taken'}"
                findings.counts[kind + (", strict" if strict else "")] += 1
                if accepted and not test["valid"]:
                    findings.note(where, f"takes what is invalid: {test['description']}")
                elif test["valid"] and not accepted and arguments.verbose:
                    print(f"narrower {where}: {test['description']}")

    for file in arguments.schemas:
        for number, schema in enumerate(json.loads(file.read_text())):
            where = f"{file.name}[{number}]"
            validator = jsonschema.Draft202012Validator(
                schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
            )
            for any_whitespace in (True, False):
                for strict in (True, False):
                    answer = program.ask({"schema": json.dumps(schema), "draws": arguments.draws, "strict": strict,
                                          "any_whitespace": any_whitespace, "seed": arguments.seed})  # fmt: skip
                    if not findings.take(where, schema, answer, validator):
                        findings.note(where, answer["refused"])

    print("refused, by the keyword that the sentence names:")
    for keyword, count in findings.refusals.most_common():
        print(f"  {count:4d} {keyword}")
    for name, count in sorted(findings.counts.items()):
        print(f"{count:7d} {name}")
    print(f"slowest to compile: {findings.slowest[0]:.0f} ms, {findings.slowest[1]}")
    print(f"masks: {statistics.median(findings.mask_us):.0f} us, slowest {findings.slowest_mask[0]:.0f} us, {findings.slowest_mask[1]}")
    print(f"{len(findings.wrong)} wrong")
    return 1 if findings.wrong or math.isclose(findings.counts["drawn"], 0) else 0


if __name__ == "__main__":
    sys.exit(main())
