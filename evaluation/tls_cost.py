#!/usr/bin/env python3
"""Measures what TLS costs `tandem serve`, and prints it as JSON.

handshakes: connections a second, each with one GET /version, that a server pinned to one core takes from `openssl s_time`
on another: TLS 1.3, with an ECDSA P-256 and an RSA-2048 certificate, in full and resumed. Where the server's core was
not busy all the time (server_cpu_share), the client was the limit; handshakes_per_server_cpu_s is what a core could do.

requests: completions streamed to --streams clients at once, over plain HTTP and over TLS in turn, by `tandem bench online`;
cost is the share of requests a second that TLS takes, of the medians.

    evaluation/tls_cost.py [--tandem PROGRAM] [--model PATH] [--json FILE]
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cost_report import publish, summary, version_lines

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.append(str(REPOSITORY / "tests/http"))
from certificates import Certificate  # noqa: E402

KEY_KINDS = {"ecdsa_p256": "ecdsa", "rsa_2048": "rsa"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Server:
    def __init__(self, options, model_words, tls=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        command = ["taskset", "-c", options.server_cpus, options.tandem, "serve", *model_words, "--port", str(self.port),
                   "--no-enable-prefix-caching"]
        command += ["--log-level", "error", "--max-num-seqs", str(options.streams), "--gpu-kv-cache", "65536tok"]
        if tls:
            command += tls.flags()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if "is ready at" not in self.process.stdout.readline():
            raise RuntimeError(f"the server did not start: {' '.join(command)}")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def measure_handshakes(options, server, resumed):
    """One run of openssl s_time."""
    command = ["taskset", "-c", options.client_cpus, "openssl", "s_time", "-connect", f"127.0.0.1:{server.port}"]
    command += ["-reuse" if resumed else "-new", "-www", "/version", "-tls1_3", "-time", str(options.seconds)]
    cpu_before, begin = cpu_seconds(server.process.pid), time.monotonic()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall_s, cpu_s = time.monotonic() - begin, cpu_seconds(server.process.pid) - cpu_before
    # A mark for each connection: r for a resumed one, t or * for one in full.
    marks = max(printed.splitlines(), key=len)
    count = int(re.findall(r"(\d+) connections in \d+ real seconds", printed)[-1])
    if resumed and marks.count("r") < 0.99 * count:
        raise RuntimeError(f"of {count} connections only {marks.count('r')} were resumed")
    if not resumed and "r" in marks.strip("*t"):
        raise RuntimeError("connections in full were resumed")
    return {"handshakes_per_s": count / wall_s, "server_cpu_share": cpu_s / wall_s,
            "handshakes_per_server_cpu_s": count / cpu_s}


def handshakes(options, folder):
    found = {}
    for kind in KEY_KINDS:
        with Server(options, ["--dummy", options.dummy], Certificate(folder, kind, KEY_KINDS[kind])) as server:
            for resumed in (False, True):
                runs = [measure_handshakes(options, server, resumed) for _ in range(options.repeats)]
                found[f"{kind}_{'resumed' if resumed else 'full'}"] = {
                    field: summary([run[field] for run in runs]) for field in runs[0]}
    return found


def measure_requests(options, server, certificate, folder, num_requests):
    report = folder / "report.json"
    command = ["taskset", "-c", options.client_cpus, options.tandem, "bench", "online", "--url", server.url]
    command += ["--workload", options.workload, "--rate", "inf", "--max-concurrency", str(options.streams)]
    command += ["--vocab-size", "1000", "--num-requests", str(num_requests), "--num-warmup", str(options.streams), "--json", str(report)]
    if server.url.startswith("https"):
        command += ["--ssl-ca-certs", str(certificate.certificate)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr.strip())
    result = json.loads(report.read_text())
    if result["completed"] < num_requests:
        raise RuntimeError(f"only {result['completed']} of {num_requests} requests were completed")
    return result["request_throughput"]


def requests(options, folder, model_words, num_requests):
    certificate = Certificate(folder, "requests")
    figures = {"plain": [], "tls": []}
    with Server(options, model_words) as plain, Server(options, model_words, certificate) as tls:
        servers = {"plain": plain, "tls": tls}
        for i in range(options.repeats):
            # Drift of the machine meets both alike.
            for name in sorted(servers, reverse=i % 2 == 1):
                figures[name].append(measure_requests(options, servers[name], certificate, folder, num_requests))
    pairs = [tls / plain for plain, tls in zip(figures["plain"], figures["tls"])]
    return {
        "requests_per_s_plain": summary(figures["plain"]),
        "requests_per_s_tls": summary(figures["tls"]),
        "cost": 1 - statistics.median(figures["tls"]) / statistics.median(figures["plain"]),
        "cost_of_pairs": summary([1 - pair for pair in pairs]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", default=os.environ.get("TANDEM_BINARY", str(REPOSITORY / "build/host-release/tandem")))
    parser.add_argument("--model", default=os.environ.get("TANDEM_TEST_MODEL"), help="measured besides the dummy")
    parser.add_argument("--dummy", default="tiny", help="model with random weights, where HTTP dominates")
    parser.add_argument("--workload", default="synthetic:in=16,out=8")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=512, help="of a run with the model")
    parser.add_argument("--dummy-requests", type=int, default=8192, help="of a run with the dummy")
    parser.add_argument("--seconds", type=int, default=5, help="of a run of handshakes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--server-cpus", default="0", help="as taskset takes them; one, for handshakes a core")
    parser.add_argument("--client-cpus", default="1")
    parser.add_argument("--json", help="file for the result besides standard output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        result = {"command": sys.argv, "date": time.strftime("%Y-%m-%d"),
                  "version": version_lines(options.tandem),
                  "workload": options.workload, "streams": options.streams,
                  "handshakes": handshakes(options, folder),
                  "requests": {options.dummy: requests(options, folder, ["--dummy", options.dummy],
                                                       options.dummy_requests)}}
        if options.model:
            result["requests"][Path(options.model).name] = requests(options, folder, [options.model], options.requests)
    publish(result, options.json)


if __name__ == "__main__":
    main()
