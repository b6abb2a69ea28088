#!/usr/bin/env python3
"""Measures Tandem's CPU decode attention beside torch's and llama.cpp's, on the same CPUs and threads.

    python evaluation/peers/compare_attention.py --threads 2 --json build/peers/attention.json
    python evaluation/peers/compare_attention.py --bench PATH --skip-llama-cpp     (any machine with torch)

One query row for every sequence of the batch, as in decoding. GB/s: bytes of K and V over time, medians over
the rounds, in which the sides take turns case by case. A figure of one round is itself a median over groups
of calls of at least 256 MiB.

  ours       bench_cpu_attention: kernel_gbps, tasks submitted ahead. Its KV is paged, in random block order.
             ours_chained_gbps: every task starts when the one before has ended, as the others' calls do.
  torch      the fastest of scaled_dot_product_attention with enable_gqa ("sdpa_enable_gqa"), with K and V
             expanded to the query heads as views of stride 0 ("sdpa_expanded"), with a group's query heads
             as the query rows of its kv head, which is the same without a mask ("sdpa_grouped_rows"), and of
             plain products and a softmax on such rows ("matmul"). A call finds its layer's tensors ready.
  llama.cpp  GGML_OP_FLASH_ATTN_EXT of its CPU backend through ggml's C API, fp32 queries, a group of calls
             as the nodes of one graph. Needs ggml as shared libraries: --ggml-dir, or it is built from the
             package that compare_llama_cpp.py uses. Left out, with the reason, where neither can be had.

The others get the gather for free: their KV is contiguous, [batch, kv heads, context, head_dim]. All sides
read KV in 2 MiB pages where the system grants them, and rotate through --memory-gib of distinct layers, so
that no cache holds what is read. Cases whose layer is larger than that are left out. Every side's result is
checked in the first round against fp32 arithmetic (ours by its own tests).

All sides pin their threads, one a core (torch and ggml through OMP_PROC_BIND and OMP_PLACES, which win if
they are set): where other programs run, the system may else keep two threads on one core, at a tenth of the
rate. other_cpu_share is the part of the machine's CPU time that other programs used during a case. A case
with rounds above a tenth gets extra rounds, and the quietest ones count. Only torch and the standard library
are needed.
"""

import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from llama_cpp_build import CMAKE_OPTIONS, VERSION, source_folder  # noqa: E402
from server_process import machine_busy_s  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
GROUP_BYTES = 256 << 20
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
# Largest error over largest value; 16-bit sides may keep probabilities or sums in 16 bits.
TOLERANCE = {"bf16": 5e-2, "fp16": 5e-2, "fp32": 1e-3}
# A variant of torch slower than this share of the fastest in a trial is not measured further.
CONTENDER_SHARE = 0.4
# Of the CPUs, used by other programs, in a round that counts as quiet.
QUIET_SHARE = 0.1


@dataclass(frozen=True)
class Case:
    dtype: str
    gqa: int
    head_dim: int
    context: int
    batch: int

    @property
    def kv_heads(self):
        """What bench_cpu_attention takes for this group size."""
        return {1: 32, 16: 4}.get(self.gqa, 8)

    @property
    def layer_bytes(self):
        """K and V."""
        values = self.batch * self.kv_heads * self.context * self.head_dim
        return 2 * values * ELEMENT_BYTES[self.dtype]


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", type=Path, default=REPOSITORY / "build/host-release/bench_cpu_attention")
    parser.add_argument("--isa", help="of bench_cpu_attention; the best if absent")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--extra-rounds", type=int, default=5, help="at most, for cases with noisy rounds")
    parser.add_argument("--seconds", type=float, default=0.2, help="for every figure of a round, about")
    parser.add_argument("--memory-gib", type=float, default=2.0, help="of KV, for each side")
    parser.add_argument("--dtype", type=lambda text: text.split(","), default=["bf16", "fp16", "fp32"])
    parser.add_argument("--gqa", type=numbers, default=[1, 4, 8])
    parser.add_argument("--head-dim", type=numbers, default=[128])
    parser.add_argument("--context", type=numbers, default=[2048, 8192])
    parser.add_argument("--batch", type=numbers, default=[1, 32])
    parser.add_argument("--quick", action="store_true", help="bf16, GQA 4, context 2048, three rounds")
    parser.add_argument("--ggml-dir", type=Path, help="holds libggml-cpu.so and libggml-base.so")
    parser.add_argument("--skip-llama-cpp", action="store_true")
    parser.add_argument("--work-dir", type=Path, default=REPOSITORY / "build/peers")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.quick:
        args.dtype, args.gqa, args.context, args.rounds = ["bf16"], [4], [2048], 3
    unknown = [name for name in args.dtype if name not in ELEMENT_BYTES]
    if unknown:
        parser.error(f"--dtype: {unknown[0]} is none of {', '.join(ELEMENT_BYTES)}")
    if any(context % 32 for context in args.context):
        parser.error("--context: multiples of 32, so that all sides read the same bytes")
    if not args.bench.exists():
        parser.error(f"{args.bench} does not exist: build it, or give --bench")
    return args


def import_torch():
    # Read when the OpenMP runtime is loaded.
    os.environ.setdefault("OMP_PROC_BIND", "close")
    os.environ.setdefault("OMP_PLACES", "cores")
    try:
        import torch
    except ImportError as error:
        raise SystemExit(
            f"this comparison needs torch, which {sys.executable} cannot import ({error}): "
            "pip install torch, or run it with a Python that has it"
        ) from None
    return torch


def cpu_clocks():
    """Wall seconds, CPU seconds of the machine, CPU seconds of this process and its ended children."""
    return time.monotonic(), machine_busy_s(), sum(os.times()[:4])


def other_share_since(start):
    """Share of the CPUs that other programs have used since these clocks."""
    wall, busy, own = (now - then for then, now in zip(start, cpu_clocks()))
    return max(0.0, (busy - own) / (wall * os.cpu_count()))


def median_gbps(run_group, bytes_a_group, seconds):
    """run_group() does one group's work. Median over the groups that fit into the time, three at least."""
    run_group()
    rates = []
    start = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        run_group()
        rates.append(bytes_a_group / (time.perf_counter() - begin) / 1e9)
    return statistics.median(rates)


class TandemBench:
    def __init__(self, args, cpus):
        self._args = args
        self._cpus = cpus
        self._isa = args.isa or self._run(["--quick", "--memory-gib", 0.5])[0]["isa"]

    def _run(self, options):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.json"
            words = [self._args.bench, "--json", path, "--threads", self._args.threads, *options]
            done = subprocess.run(
                [str(word) for word in words],
                capture_output=True,
                text=True,
                # OpenMP has bound this thread to one core, which a child inherits.
                preexec_fn=lambda: os.sched_setaffinity(0, self._cpus),
            )
            if done.returncode != 0:
                raise SystemExit(f"{self._args.bench} failed: {(done.stderr or done.stdout)[-1000:]}")
            return json.loads(path.read_text())

    def measure(self, case):
        options = ["--isa", self._isa, "--memory-gib", self._args.memory_gib]
        options += ["--seconds", 3 * self._args.seconds]  # it measures reading and a second mode besides
        for name in ("dtype", "gqa", "head_dim", "context", "batch"):
            options += [f"--{name.replace('_', '-')}", getattr(case, name)]
        (row,) = self._run(options)
        if row["layer_bytes"] != case.layer_bytes:
            raise SystemExit(f"{self._args.bench} reads {row['layer_bytes']} bytes, not {case.layer_bytes}")
        return row


class Layers:
    """Distinct K and V tensors that fill one memory, and the queries, for one case."""

    def __init__(self, torch, memory, case):
        flat = torch.frombuffer(memory, dtype=torch_dtype(torch, case.dtype))
        half = case.layer_bytes // 2 // flat.element_size()
        shape = (case.batch, case.kv_heads, case.context, case.head_dim)
        self.count = min(flat.numel() // (2 * half), 4096)
        self.group = min(self.count, max(1, GROUP_BYTES // case.layer_bytes))
        pieces = flat[: 2 * self.count * half].view(self.count, 2, *shape)
        self.kv = [(pieces[i, 0], pieces[i, 1]) for i in range(self.count)]
        generator = torch.Generator().manual_seed(7)
        heads = case.kv_heads * case.gqa
        uniform = torch.empty(case.batch, heads, 1, case.head_dim).uniform_(-1, 1, generator=generator)
        # fp32 queries hold exactly what the others hold.
        self.q = uniform.to(flat.dtype)
        self.q_fp32 = self.q.float()
        self.case = case

    def groups(self):
        """For ever: the first layers of the next groups."""
        while True:
            yield from range(0, self.count - self.group + 1, self.group)

    def check(self, torch, what, out):
        """out: [batch, heads, head_dim] of layer 0. Compares the last sequence."""
        case = self.case
        key, value = (part[-1].float().repeat_interleave(case.gqa, 0) for part in self.kv[0])
        scores = self.q_fp32[-1] @ key.transpose(-1, -2) * case.head_dim**-0.5
        expected = (torch.softmax(scores, -1) @ value)[:, 0]
        error = ((out[-1].float() - expected).abs().max() / expected.abs().max()).item()
        if not error < TOLERANCE[case.dtype]:
            raise SystemExit(f"{what} differs from fp32 arithmetic by {error:.2g} in {case}")


def torch_dtype(torch, name):
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def fill_random(torch, memory, dtype):
    flat = torch.frombuffer(memory, dtype=torch_dtype(torch, dtype))
    pattern = torch.empty((4 << 20) // flat.element_size() - 96).uniform_(-1, 1).to(flat.dtype)
    for at in range(0, flat.numel(), pattern.numel()):
        piece = flat[at : at + pattern.numel()]
        piece.copy_(pattern[: piece.numel()])


def torch_variants(torch, layers):
    """Name -> a function that attends over layer i and returns [batch, heads, head_dim] of it."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    case = layers.case
    out_shape = (case.batch, case.kv_heads * case.gqa, case.head_dim)
    q = layers.q
    rows = q.view(case.batch, case.kv_heads, case.gqa, case.head_dim)
    q_by_head = q.view(case.batch * case.kv_heads, case.gqa, 1, case.head_dim)
    shape_by_head = (case.batch * case.kv_heads, 1, case.context, case.head_dim)
    expanded = [[t.view(shape_by_head).expand(-1, case.gqa, -1, -1) for t in kv] for kv in layers.kv]
    transposed = [(key.transpose(-1, -2), value) for key, value in layers.kv]

    def matmul(i):
        key, value = transposed[i]
        scores = torch.matmul(rows, key).float() * case.head_dim**-0.5
        return torch.matmul(torch.softmax(scores, -1).to(q.dtype), value).view(out_shape)

    variants = {
        "sdpa_enable_gqa": lambda i: sdpa(q, *layers.kv[i], enable_gqa=case.gqa > 1).view(out_shape),
        "sdpa_grouped_rows": lambda i: sdpa(rows, *layers.kv[i]).reshape(out_shape),
        "sdpa_expanded": lambda i: sdpa(q_by_head, *expanded[i]).view(out_shape),
        "matmul": matmul,
    }
    if case.gqa == 1:  # the same calls under other names
        del variants["sdpa_grouped_rows"], variants["sdpa_expanded"]
    return variants


class Torch:
    def __init__(self, torch, args):
        self._torch = torch
        self._seconds = args.seconds
        self._contenders = {}
        torch.set_num_threads(args.threads)

    def _trial(self, layers, variants):
        """Checks every variant; the names of those that are worth measuring."""
        calls = range(min(layers.count, max(1, (64 << 20) // layers.case.layer_bytes)))
        took = {}
        for name, call in variants.items():
            layers.check(self._torch, f"torch's {name}", call(0))
            start = time.perf_counter()
            for i in calls:
                call(i)
            took[name] = time.perf_counter() - start
        return [name for name in took if min(took.values()) >= CONTENDER_SHARE * took[name]]

    def measure(self, layers):
        """Variant -> GB/s."""
        case = layers.case
        with self._torch.inference_mode():
            variants = torch_variants(self._torch, layers)
            if case not in self._contenders:
                self._contenders[case] = self._trial(layers, variants)
            result = {}
            for name in self._contenders[case]:
                call, groups = variants[name], layers.groups()

                def run_group(call=call, groups=groups):
                    first = next(groups)
                    for i in range(first, first + layers.group):
                        call(i)

                result[name] = median_gbps(run_group, layers.group * case.layer_bytes, self._seconds)
        return result


class GgmlInitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """Flash attention of ggml's CPU backend, over memory that it does not own."""

    TYPES = {"fp32": 0, "fp16": 1, "bf16": 30}

    def __init__(self, folder, args):
        pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        shape = [ctypes.c_int64] * 4
        base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))

        def function(library, name, result, *arguments):
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        self._init = function(base, "ggml_init", pointer, GgmlInitParams)
        self._free = function(base, "ggml_free", None, pointer)
        self._new_tensor = function(base, "ggml_new_tensor_4d", pointer, pointer, integer, *shape)
        self._attention = function(
            base, "ggml_flash_attn_ext", pointer, *[pointer] * 5, *[ctypes.c_float] * 3
        )
        self._new_graph = function(base, "ggml_new_graph_custom", pointer, pointer, size, ctypes.c_bool)
        self._graph_size = function(base, "ggml_graph_overhead_custom", size, size, ctypes.c_bool)
        self._tensor_size = function(base, "ggml_tensor_overhead", size)
        self._expand = function(base, "ggml_build_forward_expand", None, pointer, pointer)
        self._buffer = function(base, "ggml_backend_cpu_buffer_from_ptr", pointer, pointer, size)
        self._free_buffer = function(base, "ggml_backend_buffer_free", None, pointer)
        self._place = function(base, "ggml_backend_tensor_alloc", integer, pointer, pointer, pointer)
        self._compute = function(base, "ggml_backend_graph_compute", integer, pointer, pointer)
        self._backend = function(cpu, "ggml_backend_cpu_init", pointer)()
        function(cpu, "ggml_backend_cpu_set_n_threads", None, pointer, integer)(self._backend, args.threads)
        self._seconds = args.seconds
        self._checked = set()

    def _build_graph(self, context, layers, kv, buffers, out):
        """A graph that attends over the K and V of each element of kv, all into the same place."""
        case = layers.case
        graph = self._new_graph(context, self._graph_nodes(layers), False)

        def tensor(kind, tensor_shape, buffer, data):
            made = self._new_tensor(context, kind, *tensor_shape)
            self._place(buffer, made, data.data_ptr())
            return made

        heads = case.kv_heads * case.gqa
        q = tensor(self.TYPES["fp32"], (case.head_dim, 1, heads, case.batch), buffers["q"], layers.q_fp32)
        kv_shape = (case.head_dim, case.context, case.kv_heads, case.batch)
        for key, value in kv:
            k = tensor(self.TYPES[case.dtype], kv_shape, buffers["kv"], key)
            v = tensor(self.TYPES[case.dtype], kv_shape, buffers["kv"], value)
            node = self._attention(context, q, k, v, None, case.head_dim**-0.5, 0.0, 0.0)
            self._place(buffers["out"], node, out.data_ptr())
            self._expand(graph, node)
        return graph

    def _graph_nodes(self, layers):
        """At most: the attention, its K and V, and the queries."""
        return 3 * layers.group + 1

    def measure(self, torch, layers):
        case = layers.case
        out = torch.empty(case.batch, case.kv_heads * case.gqa, case.head_dim)
        kv_bytes = layers.count * case.layer_bytes
        memory = {
            "kv": (layers.kv[0][0].data_ptr(), kv_bytes),
            "q": (layers.q_fp32.data_ptr(), layers.q_fp32.nbytes),
            "out": (out.data_ptr(), out.nbytes),
        }
        buffers = {name: self._buffer(*where) for name, where in memory.items()}
        nodes = self._graph_nodes(layers)
        num_graphs = layers.count // layers.group + 1
        context_bytes = num_graphs * (nodes * self._tensor_size() + self._graph_size(nodes, False) + 4096)
        context = self._init(GgmlInitParams(context_bytes, None, True))
        try:
            graphs = {
                first: self._build_graph(
                    context, layers, layers.kv[first : first + layers.group], buffers, out
                )
                for first in range(0, layers.count - layers.group + 1, layers.group)
            }
            order = layers.groups()

            def run(graph):
                if self._compute(self._backend, graph) != 0:
                    raise SystemExit(f"ggml cannot compute {case}")

            if case not in self._checked:
                run(self._build_graph(context, layers, layers.kv[:1], buffers, out))
                layers.check(torch, "llama.cpp", out)
                self._checked.add(case)
            return median_gbps(
                lambda: run(graphs[next(order)]), layers.group * case.layer_bytes, self._seconds
            )
        finally:
            self._free(context)
            for buffer in buffers.values():
                self._free_buffer(buffer)


def build_ggml(work_dir, jobs):
    """Folder of the shared libraries; builds them when absent (under a minute on few cores)."""
    work_dir = work_dir.resolve()
    build = work_dir / f"ggml-{VERSION}"
    libraries = build / "bin"
    if (libraries / "libggml-cpu.so").exists():
        return libraries
    work_dir.mkdir(parents=True, exist_ok=True)
    source = source_folder(work_dir)
    print(f"building ggml in {build}", flush=True)
    options = [option for option in CMAKE_OPTIONS if not option.startswith("-DBUILD_SHARED_LIBS")]
    options += ["-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON"]
    options += ["-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
    with (work_dir / "ggml-build.log").open("wb") as log:
        for command in (
            ["cmake", "-S", source, "-B", build, *options],
            ["cmake", "--build", build, "-j", str(jobs), "--target", "ggml-cpu"],
        ):
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
    return libraries


def open_ggml(args):
    if args.skip_llama_cpp:
        return None
    try:
        return Ggml(args.ggml_dir or build_ggml(args.work_dir, args.threads), args)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        print(f"llama.cpp is left out: {error}", flush=True)
        return None


def measure_round(case, index, tandem, torch_side, ggml, torch, memory):
    """One figure of every side; the order alternates, so that a drift of the machine favours nobody."""
    layers = Layers(torch, memory, case)
    sides = {"ours": lambda: tandem.measure(case), "torch": lambda: torch_side.measure(layers)}
    if ggml:
        sides["llama_cpp"] = lambda: ggml.measure(torch, layers)
    start = cpu_clocks()
    names = list(sides) if index % 2 == 0 else list(reversed(sides))
    figures = {name: sides[name]() for name in names}
    figures["other_cpu_share"] = other_share_since(start)
    return figures


def summarize(case, rounds, args, torch):
    def median(values):
        return round(statistics.median(values), 3)

    ours = [r["ours"] for r in rounds]
    by_variant = {name: median(r["torch"][name] for r in rounds) for name in rounds[0]["torch"]}
    variant = max(by_variant, key=by_variant.get)
    llama_cpp = median(r["llama_cpp"] for r in rounds) if "llama_cpp" in rounds[0] else None
    ours_gbps = median(row["kernel_gbps"] for row in ours)
    return {
        "dtype": case.dtype,
        "gqa": case.gqa,
        "head_dim": case.head_dim,
        "context": case.context,
        "batch": case.batch,
        "threads": args.threads,
        "ours_gbps": ours_gbps,
        "torch_gbps": by_variant[variant],
        "torch_variant": variant,
        "llama_cpp_gbps": llama_cpp,
        "ours_over_best": round(ours_gbps / max(by_variant[variant], llama_cpp or 0), 3),
        "ours_chained_gbps": median(row["chained_gbps"] for row in ours),
        "read_gbps": median(row["read_gbps"] for row in ours),
        "torch_variants_gbps": by_variant,
        "other_cpu_share": median(r["other_cpu_share"] for r in rounds),
        "ours_rounds_gbps": [round(row["kernel_gbps"], 3) for row in ours],
        "torch_rounds_gbps": [round(r["torch"][variant], 3) for r in rounds],
        "llama_cpp_rounds_gbps": [round(r["llama_cpp"], 3) for r in rounds] if llama_cpp else None,
        "other_cpu_share_rounds": [round(r["other_cpu_share"], 3) for r in rounds],
        "isa": ours[0]["isa"],
        "cpu": ours[0]["cpu"],
        "torch": torch.__version__,
        "llama_cpp_version": None if llama_cpp is None or args.ggml_dir else VERSION,
    }


def print_row(row):
    llama_cpp = "-" if row["llama_cpp_gbps"] is None else f"{row['llama_cpp_gbps']:.1f}"
    print(
        f"{row['dtype']:5} {row['gqa']:3} {row['head_dim']:4} {row['context']:8} {row['batch']:6} "
        f"{row['threads']:7} {row['read_gbps']:8.1f} {row['ours_gbps']:8.1f} {row['torch_gbps']:8.1f} "
        f"{llama_cpp:>9} {row['ours_over_best']:10.2f} {row['other_cpu_share']:6.0%}  {row['torch_variant']}",
        flush=True,
    )


def main():
    args = parse_args()
    cpus = os.sched_getaffinity(0)
    torch = import_torch()
    ggml = open_ggml(args)
    tandem = TandemBench(args, cpus)
    torch_side = Torch(torch, args)
    memory = mmap.mmap(-1, int(args.memory_gib * (1 << 30)))
    memory.madvise(mmap.MADV_HUGEPAGE)
    print(f"GB/s of K and V, medians of {args.rounds} rounds; torch {torch.__version__}")
    print(
        f"{'dtype':5} {'gqa':>3} {'d':>4} {'context':>8} {'batch':>6} {'threads':>7} {'reading':>8} "
        f"{'ours':>8} {'torch':>8} {'llama.cpp':>9} {'ours/best':>10} {'others':>6}  torch's variant"
    )
    rows = []
    for dtype in args.dtype:
        cases = [
            Case(dtype, gqa, head_dim, context, batch)
            for gqa in args.gqa
            for head_dim in args.head_dim
            for context in args.context
            for batch in args.batch
        ]
        cases = [case for case in cases if case.layer_bytes <= len(memory)]
        fill_random(torch, memory, dtype)
        rounds = {case: [] for case in cases}
        # Rounds go over all cases of a dtype, so that a disturbance of some seconds is in one round only.
        for index in range(args.rounds):
            for case in cases:
                rounds[case].append(measure_round(case, index, tandem, torch_side, ggml, torch, memory))
        for index in range(args.rounds, args.rounds + args.extra_rounds):
            for case in cases:
                quiet = sum(r["other_cpu_share"] <= QUIET_SHARE for r in rounds[case])
                if quiet < args.rounds:
                    rounds[case].append(measure_round(case, index, tandem, torch_side, ggml, torch, memory))
        for case in cases:
            rounds[case] = sorted(rounds[case], key=lambda r: r["other_cpu_share"])[: args.rounds]
            rows.append(summarize(case, rounds[case], args, torch))
            print_row(rows[-1])
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
