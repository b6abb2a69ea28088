#!/usr/bin/env python3
"""Adds up test results and prints what failed and "N passed, N failed, N skipped".

    scripts/count_tests.py RESULTS [FAILED_STAGE...]

RESULTS has a folder for each run: ctest.xml (ctest --output-junit) with one NAME.json for each GoogleTest program
(GTEST_OUTPUT), or pytest.xml. A test program counts by its cases; one that left no cases (it crashed, or is no
GoogleTest program) counts as one test. A failed stage without a failed test counts as one failure.
Exits with 1 if anything failed.
"""

import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

# The folders of a stage's results.
FOLDERS = {
    "release": ["host-release"],
    "http": ["http-host-release-http"],
    "debug": ["host-debug"],
    "cuda": ["cuda-release"],
    "soak": ["http-host-release-soak"],
    "all-checks": ["host-debug-all-checks", "http-host-debug-all-checks-test_malformed_requests.py"],
    "threads": ["host-tsan"],
    "clients": ["http-host-release-clients"],
}


# Of a failure's message.
MAX_LINES = 12


def print_failure(folder, name, message):
    lines = (message or "").strip().splitlines()
    print(f"failed: {name} ({folder})")
    for line in lines[:MAX_LINES]:
        print("  " + line)


def count_gtest(path):
    counts = collections.Counter()
    for suite in json.loads(path.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                counts["failed"] += 1
                print_failure(path.parent.name, f"{case['classname']}.{case['name']}", case["failures"][0].get("failure"))
            elif case.get("status") == "NOTRUN":
                # Disabled in the source, or outside the filter: it did not take part.
                continue
            elif case.get("result") == "SKIPPED":
                counts["skipped"] += 1
            else:
                counts["passed"] += 1
    return counts


def junit_outcome(case):
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def count_run(folder):
    counts = collections.Counter()
    pytest = folder / "pytest.xml"
    if pytest.is_file():
        for case in ElementTree.parse(pytest).iter("testcase"):
            outcome = junit_outcome(case)
            counts[outcome] += 1
            if outcome == "failed":
                said = [child.get("message") for child in case if child.tag in ("failure", "error")]
                print_failure(folder.name, f"{case.get('classname')}.{case.get('name')}", said[0] if said else None)
    by_program = {}
    for path in sorted(folder.glob("*.json")):
        by_program[path.stem] = count_gtest(path)
        counts.update(by_program[path.stem])
    ctest = folder / "ctest.xml"
    if ctest.is_file():
        for case in ElementTree.parse(ctest).iter("testcase"):
            cases = by_program.get(case.get("name"))
            outcome = junit_outcome(case)
            # The exit code says more than the cases: a sanitizer report comes after the last of them.
            if cases is None or (outcome == "failed" and cases["failed"] == 0):
                counts[outcome] += 1
                if outcome == "failed":
                    print_failure(folder.name, case.get("name"), "no case of it failed: its output is above")
    return counts


def main():
    results = pathlib.Path(sys.argv[1])
    failed_stages = sys.argv[2:]
    total = collections.Counter()
    by_folder = {}
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        by_folder[folder.name] = count_run(folder)
        total.update(by_folder[folder.name])
    for stage in failed_stages:
        if not any(by_folder.get(folder, {}).get("failed") for folder in FOLDERS.get(stage, [])):
            total["failed"] += 1
    if failed_stages:
        print("failed stages: " + " ".join(failed_stages))
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if failed_stages or total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
