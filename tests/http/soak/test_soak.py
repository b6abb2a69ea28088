"""Minutes of clients that leave, reset, send rubbish or say nothing: all blocks back, memory flat, answers as before.

TANDEM_SOAK_S: how long each server is under load (default 300).
"""

import concurrent.futures
import os
import pathlib
import random
import socket
import time

import pytest
from test_cancel_storm import one_request

SOAK_S = float(os.environ.get("TANDEM_SOAK_S", "300"))
NUM_CLIENTS = 24
# What an allocator may keep of memory that came and went.
MAX_GROWTH_BYTES = 64 << 20

RUBBISH = (
    b"\0" * 100,
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"prompt\"",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200000,
)


def resident_bytes(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def one_client(server, seed, deadline):
    choose = random.Random(seed)
    requests = 0
    while time.monotonic() < deadline:
        requests += 1
        if choose.random() < 0.85:
            one_request(server, choose.getrandbits(32))
            continue
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
            stream.sendall(choose.choice(RUBBISH))
            if choose.random() < 0.5:
                time.sleep(choose.random())
    return requests


@pytest.mark.parametrize("strategy", ["gpu-only", "asymmetric", "async", "auto"])
def test_soak(start_server, strategy):
    server = start_server("--strategy", strategy, "--gpu-kv-cache", "2000tok", "--cpu-kv-cache", "16000tok")
    expected = server.complete(max_tokens=30, ignore_eos=True)["choices"][0]["text"]
    start = server.wait_idle()
    blocks = server.free_blocks(start)
    assert len(blocks) == 2
    resident = []
    requests = 0
    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        # Memory is compared once a part of the load has warmed everything up.
        for part in range(4):
            deadline = time.monotonic() + SOAK_S / 4
            seeds = range(part * NUM_CLIENTS, (part + 1) * NUM_CLIENTS)
            requests += sum(pool.map(lambda seed: one_client(server, seed, deadline), seeds))
            end = server.wait_idle(timeout=120)
            assert {name: end[name] for name in blocks} == blocks
            assert server.complete(max_tokens=30, ignore_eos=True)["choices"][0]["text"] == expected
            resident.append(resident_bytes(server.process))
    print(f"{strategy}: {requests} requests in {SOAK_S:.0f} s, resident MiB {[size >> 20 for size in resident]}")
    assert resident[-1] <= resident[0] + MAX_GROWTH_BYTES, resident
