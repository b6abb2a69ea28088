#!/usr/bin/env python3
"""The tables of docs/plan.md that `tandem plan` makes: nothing of them is measured.

    python3 evaluation/plan_tables.py [--tandem build/host-release/tandem] [--only cards|papers|loads|chunks|parts|t4]
"""

import argparse
import sys

from plan_runs import DEFAULT_TANDEM, plan

# Card, host, its memory, model.
CARDS = [
    ("t4", "g4dn.4xlarge", "64GiB", "llama-2-7b"),
    ("rtx-4060-ti", "ddr5-desktop", "32GiB", "llama-3.1-8b:fp8"),
    ("rtx-3090", "ddr4-desktop", "64GiB", "llama-3.1-8b"),
    ("rtx-4090", "ddr5-desktop", "64GiB", "llama-3.1-8b"),
    ("rtx-5090", "ddr5-desktop", "128GiB", "qwen2.5-14b"),
    ("l4", "ddr5-desktop", "64GiB", "llama-3.1-8b"),
    ("a10g", "g5.8xlarge", "128GiB", "llama-3.1-8b"),
    ("l40s", "ddr5-desktop", "128GiB", "mistral-24b:fp8"),
    ("a100", "hgx-h100", "128GiB", "qwen3-32b"),
    ("h100", "hgx-h100", "128GiB", "qwen3-32b"),
]
CARD_WORKLOADS = ["azure-conv", "reasoning"]

# What the paper reports over its own gpu-only; figure, card, host, model, workload, flags.
PAPERS = [
    ("NEO 6c, 9c: 7.5x", "t4", "g4dn.4xlarge", "llama-2-7b", "osc", []),
    ("the same, room for 860 tokens", "t4", "g4dn.4xlarge", "llama-2-7b", "osc", ["--gpu-kv-cache", "860tok"]),
    *(
        (f"NEO 10a, {size}: up to {gain}", "a10g", size, "llama-3.1-8b", f"synthetic:in=1000,out={out}", [])
        for size, gain in [("g5.2xlarge", "1.12x"), ("g5.4xlarge", "1.13x"), ("g5.8xlarge", "1.30x"), ("g5.16xlarge", "1.79x")]
        for out in (100, 300, 800, 1600)
    ),
    *(
        ("APEX 6, T4: 1.84 to 1.96x", "t4", "2x-gold-6130", "llama-2-7b", f"osc:out={out}", ["--max-num-seqs", "512"])
        for out in (100, 200)
    ),
    *(("NEO 9c: up to 7.5x", "t4", "g4dn.4xlarge", "llama-2-7b", f"osc:out={out}", []) for out in (25, 100, 200)),
    *(
        ("APEX 8, A10", "a10", "2x-gold-6342", "llama-3.1-8b", f"synthetic:in=1000,out={out}", ["--max-num-seqs", "512"])
        for out in (50, 200, 400, 800)
    ),
    ("APEX 6, A10, azure-conv: 1.11x", "a10", "2x-gold-6342", "llama-3.1-8b", "azure-conv", ["--max-num-seqs", "512"]),
]
PAPER_STRATEGIES = ["gpu-only", "full-offload", "asymmetric", "async", "apex", "auto"]

# Latency against load: figure, card, host, model, workload, flags.
LOADS = [
    ("NEO 6c: 6.63x the load at 1 s", "t4", "g4dn.4xlarge", "llama-2-7b", "osc", []),
    ("NEO 6b, 7: 1.06x at 2 s", "a10g", "g5.4xlarge", "llama-3.1-8b", "azure-code", []),
    ("APEX 7a", "t4", "2x-gold-6130", "llama-2-7b", "osc", ["--max-num-seqs", "512"]),
    ("APEX 7b", "a10", "2x-gold-6342", "llama-3.1-8b", "azure-conv", ["--max-num-seqs", "512"]),
]
# Of gpu-only's throughput, as --sweep has them.
LOAD_SHARES = [0.5, 1.0, 1.3, 2.0]

# NEO 11: latency against load with smaller chunks; card, host, model, workload.
CHUNKED = [("a10g", "g5.4xlarge", "llama-3.1-8b", "azure-code"), ("t4", "g4dn.4xlarge", "llama-2-7b", "osc")]
CHUNK_TOKENS = [256, 512]
CHUNK_SHARES = [0.5, 0.8, 1.0, 1.3]

# APEX 9: parts of asynchronous overlap; card, host, model, workloads.
PARTS_ON = [
    ("t4", "2x-gold-6130", "llama-2-7b", [f"osc:out={out}" for out in (25, 45, 50, 100, 200)]),
    ("a10", "2x-gold-6342", "llama-3.1-8b", [f"synthetic:in=1000,out={out}" for out in (50, 200, 800)]),
]
# One cohort is APEX's own way.
PARTS = ["async:async-cohorts=1", "apex:async-cohorts=1", "async", "apex", "auto"]

# The same work and room on a T4 and on the slice that stood for it, then one figure after the other replaced.
OSC_860 = ["--model", "llama-2-7b", "--workload", "osc", "--gpu-kv-cache", "860tok", "--cpu-kv-cache", "150000tok", "--max-num-seqs", "512"]
T4_CASES = [
    ("slice of 8 SMs: 1.24 TB/s, 60 TFLOP/s", ["--gpu", "h200", "--gpu-sm-limit", "8", "--host", "xeon-16", *OSC_860]),
    ("T4: 0.32 TB/s, 65 TFLOP/s, with that host", ["--gpu", "t4", "--host", "xeon-16", *OSC_860]),
    ("T4 with half of that host's bandwidth", ["--gpu", "t4", "--host", "xeon-16", "--host-gb-per-s", "55", *OSC_860]),
    ("T4 with g4dn.4xlarge", ["--gpu", "t4", "--host", "g4dn.4xlarge", *OSC_860]),
    ("T4 with 1.24 TB/s and that host", ["--gpu", "t4", "--gpu-gb-per-s", "1278", "--host", "xeon-16", *OSC_860]),
]


def machine_flags(card, host, model, workload):
    return ["--gpu", card, "--host", host, "--model", model, "--workload", workload]


def played_cards(tandem):
    """(name, host, GB of memory, model, KV tokens, (gpu-only, auto) of each workload)."""
    for card, host, memory, model in CARDS:
        made_of = []
        for workload in CARD_WORKLOADS:
            flags = [*machine_flags(card, host, model, workload), "--host-memory", memory]
            report, made = plan(tandem, [*flags, "--strategies", "gpu-only,auto"])
            made_of.append(tuple(made[name]["output_throughput"] for name in ("gpu-only", "auto")))
        name = report["gpu"].replace("NVIDIA ", "").replace("GeForce ", "")
        yield name, host, memory[:-3], model, report["gpu_kv_tokens"], made_of


def cards(tandem):
    titles = " | | ".join(f"{name}: gpu-only, tok/s | auto" for name in CARD_WORKLOADS)
    print(f"| card | host | model | room on the GPU, tokens | {titles} | |\n|" + "---|" * (4 + 3 * len(CARD_WORKLOADS)))
    for name, host, memory, model, kv_tokens, made_of in played_cards(tandem):
        cells = [f"{gpu:,.0f} | {auto:,.0f} | **{auto / gpu:.2f}x**" for gpu, auto in made_of]
        print(f"| {name} | {host}, {memory} GB | {model} | {kv_tokens:,} | " + " | ".join(cells) + " |", flush=True)


def readme(tandem):
    """The same as cards, two of them beside each other."""
    print("| card, host memory, model | " + " | ".join(CARD_WORKLOADS) + " | | " + " | ".join(CARD_WORKLOADS) + " |")
    print("|" + "---|" * (2 + 2 * len(CARD_WORKLOADS)))
    entries = []
    for name, _, memory, model, _, made_of in played_cards(tandem):
        cells = [f"{gpu:,.0f} → {auto:,.0f}, **{auto / gpu:.2f}x**" for gpu, auto in made_of]
        entries.append(f"{name}, {memory} GB, {model} | " + " | ".join(cells))
    half = (len(entries) + 1) // 2
    for i in range(half):
        print("| " + " | ".join(entries[i::half]) + " |")


def papers(tandem):
    print("| paper | work | gpu-only, tok/s | " + " | ".join(PAPER_STRATEGIES[1:]) + " | bound |\n|" + "---|" * (len(PAPER_STRATEGIES) + 3))
    for title, card, host, model, workload, flags in PAPERS:
        words = [*machine_flags(card, host, model, workload), *flags, "--strategies", ",".join(PAPER_STRATEGIES)]
        report, made = plan(tandem, words)
        gpu_only = made["gpu-only"]["output_throughput"]
        gains = " | ".join(f"{made[name]['output_throughput'] / gpu_only:.2f}x" for name in PAPER_STRATEGIES[1:])
        bound = report["upper_bound_throughput"] / gpu_only
        print(f"| {title} | {workload.removeprefix('synthetic:')} | {gpu_only:,.0f} | {gains} | {bound:.2f}x |", flush=True)


def loads(tandem):
    """Seconds a token of each strategy where requests come at some shares of what gpu-only serves."""
    shares = ", ".join(f"{share:g}" for share in LOAD_SHARES)
    print(f"| paper | work | gpu-only serves, requests/s | gpu-only at {shares} of it | " + " | ".join(PAPER_STRATEGIES[1:]) + " |")
    print("|" + "---|" * (len(PAPER_STRATEGIES) + 3))
    for title, card, host, model, workload, flags in LOADS:
        words = [*machine_flags(card, host, model, workload), *flags, "--sweep"]
        report, _ = plan(tandem, [*words, "--strategies", ",".join(PAPER_STRATEGIES)])
        points = report["load_sweep"]
        served = report["gpu_only_request_rate"]
        latency_s = {(each["strategy"], round(each["request_rate"] / served, 3)): each["mean_per_token_latency_s"] for each in points}
        cells = [", ".join(f"{latency_s[name, share]:.3g}" for share in LOAD_SHARES) for name in PAPER_STRATEGIES]
        print(f"| {title} | {workload} | {served:.2f} | " + " | ".join(cells) + " |", flush=True)


def chunks(tandem):
    """Seconds a token where requests come at shares of what gpu-only serves without smaller chunks."""
    shares = ", ".join(f"{share:g}" for share in CHUNK_SHARES)
    print(f"| machine, work | strategy | tokens an iteration | all waiting, tok/s | s a token at {shares} |\n|" + "---|" * 5)
    for card, host, model, workload in CHUNKED:
        words = machine_flags(card, host, model, workload)
        report, _ = plan(tandem, [*words, "--strategies", "gpu-only"])
        served = report["gpu_only_request_rate"]
        chunked = [(tokens, ["gpu-only"]) for tokens in CHUNK_TOKENS]
        for tokens, strategies in [*chunked, (report["max_num_batched_tokens"], ["gpu-only", "asymmetric", "apex", "auto"])]:
            flags = [*words, "--max-num-batched-tokens", str(tokens), "--strategies", ",".join(strategies), "--rate"]
            played = [plan(tandem, [*flags, f"{share * served:.4f}"])[1] for share in CHUNK_SHARES]
            for name in strategies:
                latency = ", ".join(f"{of[name]['loaded']['mean_per_token_latency_s']:.3g}" for of in played)
                cells = f"{name} | {tokens:,} | {played[0][name]['output_throughput']:,.0f} | {latency}"
                print(f"| {card}, {host}, {workload} | {cells} |", flush=True)


def parts(tandem):
    names = [name.replace(":async-cohorts=1", ", one cohort") for name in PARTS]
    print("| machine | work | asymmetric, tok/s | " + " | ".join(names) + " | bound |\n|" + "---|" * (len(PARTS) + 4))
    for card, host, model, workloads in PARTS_ON:
        for workload in workloads:
            flags = [*machine_flags(card, host, model, workload), "--max-num-seqs", "512"]
            report, made = plan(tandem, [*flags, "--strategies", ",".join(["asymmetric", *PARTS])])
            base = made["asymmetric"]["output_throughput"]
            gains = " | ".join(f"{made[name]['output_throughput'] / base:.2f}x" for name in PARTS)
            bound = report["upper_bound_throughput"] / base
            print(f"| {card}, {host} | {workload.removeprefix('synthetic:')} | {base:,.0f} | {gains} | {bound:.2f}x |", flush=True)


def t4(tandem):
    print("| machine | gpu-only, tok/s | weights' share of its time | asymmetric | bound | what limits asymmetric |\n|" + "---|" * 6)
    for title, flags in T4_CASES:
        report, made = plan(tandem, [*flags, "--strategies", "gpu-only,asymmetric"])
        gpu_only = made["gpu-only"]["output_throughput"]
        share = made["gpu-only"]["time_share"]["weights"]
        gain = made["asymmetric"]["output_throughput"] / gpu_only
        bound = report["upper_bound_throughput"] / gpu_only
        print(f"| {title} | {gpu_only:,.0f} | {share:.2f} | {gain:.1f}x | {bound:.1f}x | {made['asymmetric']['limit']} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=DEFAULT_TANDEM)
    tables = {"cards": cards, "readme": readme, "papers": papers, "loads": loads, "chunks": chunks, "parts": parts, "t4": t4}
    parser.add_argument("--only", choices=tables)
    arguments = parser.parse_args()
    for name, table in tables.items():
        if arguments.only in (None, name):
            table(arguments.tandem)
            print()


if __name__ == "__main__":
    sys.exit(main())
