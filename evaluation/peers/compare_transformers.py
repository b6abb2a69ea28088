#!/usr/bin/env python3
"""Measures `tandem bench offline` beside Hugging Face transformers: same shape, same requests, same machine.

    python evaluation/peers/compare_transformers.py --model llama-3.1-8b --workload azure-conv --num-requests 1000
        --seconds 120 --json build/peers/transformers.json --tandem build/cuda-release/tandem
        --tandem-arg=--device --tandem-arg=cuda

Both sides have random weights of a named shape in bf16 and get random prompts of the same lengths; every request
gets exactly its number of output tokens, greedily. Tandem writes the requests (--dump-workload); each method of
transformers (see transformers_offline.py) runs in a process of its own, and a method that fails is reported and
passed over. A method whose time is over before it has done all requests is compared on those that it has done:
Tandem runs the first of them once more.

Throughputs count completed requests. Time to load, to compile and to capture graphs is in none of them.
"""

import argparse
import csv
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("transformers_offline.py")
# Beyond the time of the runs: imports, weights, what cannot be interrupted.
GRACE_SECONDS = 120
RATES = ("output_throughput", "total_token_throughput", "request_throughput")


def default_methods():
    """Continuous batching with the best attention there is, and with what is always there."""
    flash = []
    if find_spec("flash_attn_interface"):
        flash.append("continuous:flash_attention_3")
    if find_spec("flash_attn"):
        flash.append("continuous:flash_attention_2")
    return [*flash, "continuous:sdpa", "continuous:eager", "static", "dynamic"]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, help="a name that tandem --dummy takes (Llama shapes)")
    parser.add_argument("--workload", required=True, help="as tandem bench takes it")
    parser.add_argument("--num-requests", type=int, default=1000)
    parser.add_argument("--num-warmup", type=int, default=16, help="of Tandem")
    parser.add_argument("--max-model-len", type=int, help="leaves out longer requests, on both sides")
    parser.add_argument("--seconds", type=float, default=120, help="for each method")
    parser.add_argument("--method", action="append", help=f"instead of {' '.join(default_methods())}")
    parser.add_argument("--peer-arg", action="append", default=[], help="one more argument for transformers_offline.py")
    parser.add_argument("--tandem", type=Path, default=REPOSITORY / "build/cuda-release/tandem")
    parser.add_argument("--tandem-arg", action="append", default=[], help="one more argument for tandem bench")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def tail(text, lines=3):
    return " | ".join(text.strip().splitlines()[-lines:])


def run_tandem(args, workload, count, result_path):
    """The bench JSON, or {"error"}."""
    command = [args.tandem, "bench", "offline", "--dummy", args.model, "--workload", workload]
    command += ["--num-requests", count, "--num-warmup", args.num_warmup, "--seed", args.seed, "--json", result_path]
    if args.max_model_len:
        command += ["--max-model-len", args.max_model_len]
    command = [str(word) for word in command] + args.tandem_arg
    result_path.unlink(missing_ok=True)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 or not result_path.exists():
        return {"error": tail(done.stderr)}
    return json.loads(result_path.read_text())


def dump_requests(args, folder):
    """The requests after those that are too long have been left out, as JSON and as CSV."""
    dumped = folder / "requests.json"
    command = [args.tandem, "bench", "offline", "--dummy", args.model, "--workload", args.workload]
    command += ["--num-requests", args.num_requests, "--seed", args.seed, "--dump-workload", dumped]
    if args.max_model_len:
        command += ["--max-model-len", args.max_model_len]
    done = subprocess.run([str(word) for word in command] + args.tandem_arg, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"tandem bench offline --dump-workload: {tail(done.stderr)}")
    workload = json.loads(dumped.read_text())
    trace = folder / "requests.csv"
    with trace.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt_tokens", "output_tokens"])
        writer.writerows([r["prompt_tokens"], r["output_tokens"]] for r in workload["requests"])
    return workload, dumped, trace


def run_peer(args, method, requests_path, folder):
    out = folder / "peer.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, SCRIPT, "--method", method, "--model", args.model, "--requests", requests_path]
    command += ["--out", out, "--seconds", args.seconds, "--seed", args.seed, *args.peer_arg]
    log_path = folder / "peer.log"
    with log_path.open("w") as log:
        # A session of its own: compile workers end with it.
        process = subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(timeout=args.seconds + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    log_tail = tail(log_path.read_text(errors="replace"), 6)
    if not out.exists():
        over = process.returncode == -signal.SIGKILL
        reason = f"not done after {args.seconds + GRACE_SECONDS:.0f} s" if over else f"ended with {process.returncode}"
        return {"method": method, "error": f"{reason}: {log_tail}"}
    result = json.loads(out.read_text())
    if not result.get("completed") and "error" not in result:
        failures = result.get("notes", {}).get("failures", {})
        result["error"] = f"no request completed: {failures.get('first') or log_tail}"
    return result


def describe_machine():
    try:
        query = "name,memory.total,driver_version"
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
        )
        gpus = done.stdout.strip().splitlines() if done.returncode == 0 else []
    except FileNotFoundError:
        gpus = []
    return {"gpus": gpus, "cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def line(label, result, total, note=""):
    if "error" in result:
        return f"{label:32} failed: {result['error'][:160]}"
    requests = f"{result['completed']}/{total}"
    rates = f"{result['output_throughput']:12.1f}{result['total_token_throughput']:14.1f}"
    return f"{label:32}{requests:>12}{result['duration']:10.1f}{rates}  {note}"


def main():
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = {"command": sys.argv, "model": args.model, "workload": args.workload, "machine": describe_machine()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workload, requests_path, trace = dump_requests(args, folder)
        total = len(workload["requests"])
        result |= {"num_requests": total, "dropped": workload["dropped"], "peers": []}
        print(f"{args.model}, {args.workload}: {total} requests ({workload['dropped']} too long, left out)")
        print(f"{'':32}{'requests':>12}{'seconds':>10}{'output tok/s':>12}{'total tok/s':>14}", flush=True)
        for method in args.method or default_methods():
            peer = run_peer(args, method, requests_path, folder)
            result["peers"].append(peer)
            print(line(f"transformers {method}", peer, total, peer.get("notes", {}).get("stopped", "")), flush=True)
        result["tandem"] = run_tandem(args, trace, total, folder / "tandem.json")
        print(line("tandem", result["tandem"], total), flush=True)

        done = [peer for peer in result["peers"] if "error" not in peer]
        best = max(done, key=lambda peer: peer["output_throughput"], default=None)
        ours = result["tandem"]
        if best and best["num_requests"] < total and "error" not in ours:
            # The peer's time was over: the same first requests, once more.
            ours = run_tandem(args, trace, best["num_requests"], folder / "tandem.json")
            result["tandem_on_the_best_peers_requests"] = ours
            print(line("tandem, the best peer's requests", ours, total))
    if best and "error" not in ours:
        result["best_peer"] = best["method"]
        result["ratios"] = {key: ours[key] / best[key] for key in RATES}
        print(f"tandem / {best['method']}: {result['ratios']['output_throughput']:.2f} in output tokens per second")
    else:
        print("no comparison: " + ("tandem failed" if best else "every method of transformers failed"))
    result["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if best and "error" not in ours else 1


if __name__ == "__main__":
    sys.exit(main())
