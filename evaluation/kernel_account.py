#!/usr/bin/env python3
"""Adds up what the GPU did in an iteration: each kind of kernel in microseconds, beside what its bytes and FLOPs take.

    CUDA_INJECTION64_PATH=build/cuda-release/libcuda_trace.so TANDEM_CUDA_TRACE=trace.csv \\
        build/cuda-release/bench_engine --dummy llama-3.1-8b --batches 128 --prefills 1
    evaluation/kernel_account.py trace.csv --model llama-3.1-8b --decodes 128 --context 1024
    evaluation/kernel_account.py trace.csv --model llama-3.1-8b --prompts 1 --prompt-len 2048
    evaluation/kernel_account.py trace.csv --whole

An iteration is from one embedding to the next. Of the trace's iterations those count that have what is asked for: decodes
alone, or prompts and nothing before them; of these the last --last ones, each row the median over them. Where kernels overlap
(programmatic launches begin while their predecessors end), the time is that of the one that began first. idle is
when nothing ran. The sum of all rows is the iteration. --whole adds up a whole run instead, in seconds: iterations with
prompts and iterations of decodes alone apart, and of the idle time what lies between the end of an iteration and the next.
"""

import argparse
import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parent / "peers"))
from model_shapes import SHAPES  # noqa: E402

# First match wins. Products first: their names say nothing of what is multiplied.
KINDS = [
    ("products", r"gemm|nvjet|cutlass.*Gemm|splitK|LinearKernel|cublas|AddBias|QuantizeToFp8|ScaleProduct|Dequantize"),
    ("prompt attention", r"flashinfer|MergePrefill"),
    ("decode attention", r"DecodeAttention|AttentionFallback"),
    ("norm and residual", r"AddRmsNorm"),
    ("q/k/v: RoPE, append", r"QkvPrepare|AppendCodes"),
    ("SiLU and multiply", r"SiluMul"),
    ("embedding", r"WidenRows"),
    ("rows gathered", r"GatherRows"),
    ("sampling", r"SampleRows|GreedyKernel"),
    ("riders", r"GatherRiders|ScatterRiders"),
    ("exchange of shards", r"AllReduce|AllGather|BroadcastKernel|MinKernel|nccl"),
    ("copies and fills", r"^\[(copy|fill)\]$"),
]
BOUNDARY = re.compile(r"WidenRows")
PROMPT = re.compile(KINDS[1][1])


def kind_of(name):
    for kind, pattern in KINDS:
        if re.search(pattern, name):
            return kind
    return "other: " + name[:60]


def read_trace(path, gpu=0):
    """[(begin_ns, end_ns, name)] of a GPU, by begin."""
    with open(path, newline="") as file:
        events = [(int(row[0]), int(row[1]), ",".join(row[5:])) for row in csv.reader(file)
                  if len(row) >= 6 and int(row[2]) == gpu]
    return sorted(events)


def iterations_of(events):
    """Lists of events, each from an embedding to the next; what is before the first and the last one are left out."""
    starts = [i for i, event in enumerate(events) if BOUNDARY.search(event[2])]
    return [(events[begin:end], events[end][0]) for begin, end in zip(starts, starts[1:])]


def account(events, end_ns):
    """Nanoseconds of each kind, and number of kernels: exclusive times, earliest first, and what is idle."""
    times, counts = defaultdict(int), defaultdict(int)
    reached = events[0][0]
    for begin, end, name in events:
        kind = kind_of(name)
        counts[kind] += 1
        if begin > reached:
            times["idle"] += begin - reached
            reached = begin
        if min(end, end_ns) > reached:
            times[kind] += min(end, end_ns) - reached
            reached = min(end, end_ns)
    times["idle"] += max(0, end_ns - reached)
    return times, counts


def floors(options):
    """{kind: (bytes, FLOPs)} of an iteration of what was asked for. Weights and activations in 2 bytes, the residual in 4."""
    layers, hidden, heads, kv_heads, head_dim, intermediate, vocab = (
        SHAPES[options.model][field] for field in (
            "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size"))
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    qkv_width = q_width + 2 * kv_width
    rows = options.decodes if options.decodes else options.prompts * options.prompt_len
    logits = options.decodes or options.prompts
    layer_weights = hidden * qkv_width + q_width * hidden + 3 * hidden * intermediate
    pairs = options.decodes * options.context if options.decodes else options.prompts * options.prompt_len * (options.prompt_len + 1) / 2
    attention = "decode attention" if options.decodes else "prompt attention"
    keys = options.decodes * options.context if options.decodes else rows
    activations = rows * (2 * hidden + qkv_width + 2 * intermediate + intermediate + q_width + hidden) * 2
    return {
        "products": (2 * (layers * layer_weights + hidden * vocab) + layers * activations,
                     2 * (rows * layers * layer_weights + logits * hidden * vocab)),
        attention: (layers * (keys * 2 * kv_width + 2 * rows * q_width) * 2, layers * 4 * q_width * pairs),
        "norm and residual": ((2 * layers + 1) * rows * hidden * (4 + 4 + 2 + 2), 0),
        "q/k/v: RoPE, append": (layers * rows * (qkv_width + q_width + kv_width + 2 * kv_width) * 2, 0),
        "SiLU and multiply": (layers * rows * 3 * intermediate * 2, 0),
        "embedding": (rows * hidden * (2 + 4), 0),
        "sampling": (logits * vocab * 4, 0),
    }


def wanted(events, options):
    has_prompt = any(PROMPT.search(name) for _, _, name in events)
    return has_prompt == (options.prompts > 0)


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--model", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--decodes", type=int, default=0, help="sequences that decode in an iteration")
    parser.add_argument("--context", type=float, default=1024, help="their mean context")
    parser.add_argument("--prompts", type=int, default=0, help="prompts in an iteration")
    parser.add_argument("--prompt-len", type=int, default=2048)
    parser.add_argument("--whole", action="store_true", help="the whole trace instead, in seconds")
    parser.add_argument("--last", type=int, default=20, help="iterations that count")
    parser.add_argument("--memory-rate", type=float, default=4.65e12, help="bytes a second of the floor")
    parser.add_argument("--flop-rate", type=float, default=808e12)
    parser.add_argument("--gpu", type=int, default=0, help="whose kernels, of a trace of several")
    parser.add_argument("--names", action="store_true", help="also each kernel's name")
    parser.add_argument("--json")
    return parser


def whole_run(events):
    """{with prompts: {kind: ns}} of all iterations, and how many there are of either."""
    sums, iterations = {True: defaultdict(int), False: defaultdict(int)}, {True: 0, False: 0}
    for of_iteration, end_ns in iterations_of(events):
        has_prompt = any(PROMPT.search(name) for _, _, name in of_iteration)
        iterations[has_prompt] += 1
        times, _ = account(of_iteration, end_ns)
        between = max(0, end_ns - max(end for _, end, _ in of_iteration))
        times["idle"] -= between
        times["between iterations"] += between
        for kind, time_ns in times.items():
            sums[has_prompt][kind] += time_ns
    return sums, iterations


def print_whole_run(events):
    sums, iterations = whole_run(events)
    print(f"| kind | {iterations[True]} iterations with prompts, s | {iterations[False]} of decodes alone, s | sum, s |\n|---|---|---|---|")
    kinds = sorted({kind for times in sums.values() for kind in times}, key=lambda kind: -sums[True][kind] - sums[False][kind])
    for kind in kinds:
        with_prompts, alone = sums[True][kind] / 1e9, sums[False][kind] / 1e9
        print(f"| {kind} | {with_prompts:.3f} | {alone:.3f} | {with_prompts + alone:.3f} |")
    with_prompts, alone = sum(sums[True].values()) / 1e9, sum(sums[False].values()) / 1e9
    print(f"| sum | {with_prompts:.3f} | {alone:.3f} | {with_prompts + alone:.3f} |")


def main():
    arguments = parser()
    options = arguments.parse_args()
    if options.whole:
        print_whole_run(read_trace(options.trace, options.gpu))
        return
    if (options.decodes > 0) == (options.prompts > 0):
        arguments.error("either --decodes or --prompts")
    chosen = [(events, end) for events, end in iterations_of(read_trace(options.trace, options.gpu)) if wanted(events, options)]
    chosen = chosen[-options.last:]
    if not chosen:
        sys.exit(f"{options.trace}: no iteration of that kind")
    accounts = [account(events, end) for events, end in chosen]
    total_us = median((end - events[0][0]) / 1e3 for events, end in chosen)
    limits = floors(options)
    rows = []
    for kind in sorted({kind for times, _ in accounts for kind in times}, key=lambda kind: (kind == "idle", kind)):
        num_bytes, flops = limits.get(kind, (0, 0))
        floor_us = 1e6 * max(num_bytes / options.memory_rate, flops / options.flop_rate)
        rows.append({"kind": kind, "us": median(times[kind] / 1e3 for times, _ in accounts),
                     "kernels": median(counts[kind] for _, counts in accounts),
                     "bytes": num_bytes, "flops": flops, "floor_us": floor_us})
    rows.sort(key=lambda row: -row["us"])
    summed = sum(row["us"] for row in rows)
    print("| kind | kernels | us | floor, us | of the floor |\n|---|---|---|---|---|")
    for row in rows:
        of_floor = f"{row['us'] / row['floor_us']:.2f}" if row["floor_us"] else ""
        print(f"| {row['kind']} | {row['kernels']:.0f} | {row['us']:.1f} | {row['floor_us']:.1f} | {of_floor} |")
    print(f"| sum | | {summed:.1f} | {sum(row['floor_us'] for row in rows):.1f} | |\n"
          f"| iteration (median of {len(chosen)}) | | {total_us:.1f} | | |")
    names = defaultdict(list)
    if options.names:
        for events, _ in chosen:
            for begin, end, name in events:
                names[name].append((end - begin) / 1e3)
        for name, times in sorted(names.items(), key=lambda item: -sum(item[1])):
            print(f"{sum(times) / len(chosen):10.1f} us {len(times) / len(chosen):6.1f} x {median(times):8.2f}  {name[:150]}")
    if options.json:
        Path(options.json).write_text(json.dumps({"iteration_us": total_us, "sum_us": summed, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
