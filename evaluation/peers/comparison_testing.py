"""Rows for the tests of compare_engines.py."""

import comparison_plan

WORKS = [{"workload": "osc", "num_requests": 10}, {"workload": "azure-conv", "num_requests": 10}]
DEFAULTS = {
    "model": "tiny",
    "vllm": {"vLLM": {}},
    "tandem": {"Tandem": "--strategy gpu-only"},
    "start_s": 5,
    "point_s": 10,
}


def make_rows(*rows):
    return [comparison_plan.read_row(row, DEFAULTS, "plan") for row in rows]


def offline_row(name="a", works=WORKS[:1], **fields):
    return {"name": name, "kind": "offline", "works": works, **fields}
