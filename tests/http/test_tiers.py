"""GET /tiers: what the engine is at, as a stream, for whoever watches."""

import json
import time

import pytest
from tandem_server import read_until

KEY = "sk-the-key-of-this-test"


class Watcher:
    """Reads the events of /tiers."""

    def __init__(self, server, headers=None):
        self.connection = server.connect()
        self.connection.request("GET", "/tiers", headers=headers or {})
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["Content-Type"].startswith("text/event-stream")

    def next_event(self):
        """Name and content, or None at the end."""
        lines = []
        while line := self.response.readline():
            if line == b"\n":
                break
            lines.append(line.decode().rstrip("\n"))
        if not lines:
            return None
        assert lines[0].startswith("event: ") and lines[1].startswith("data: ") and len(lines) == 2
        return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

    def wait_for(self, wanted, name="tiers", timeout=60):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            event = self.next_event()
            assert event is not None, "the stream ended"
            if event[0] == name and wanted(event[1]):
                return event[1]
        raise AssertionError("no such event came")

    def close(self):
        self.connection.close()


@pytest.fixture
def watch():
    opened = []

    def open_one(server, headers=None):
        opened.append(Watcher(server, headers))
        return opened[-1]

    yield open_one
    for watcher in opened:
        watcher.close()


def held_blocks(event, tier):
    return sum(row["blocks"] for row in event["requests"] if row["tier"] == tier)


def used_blocks(event, tier):
    return event["tiers"][tier]["blocks"] - event["tiers"][tier]["free"]


def test_an_idle_server(server, watch):
    event = watch(server).wait_for(lambda _: True)
    metrics = server.wait_idle()
    assert event["requests"] == [] and event["requests_left_off"] == 0
    assert (event["running"], event["waiting"]) == (0, 0)
    assert event["strategy"] == "auto"
    assert event["block_size"] == metrics["tandem:kv_block_size_tokens"]
    assert event["tiers"]["gpu"]["free"] == metrics["tandem:kv_blocks_free"]
    assert event["tiers"]["cpu"] == {"blocks": 0, "free": 0, "cached": 0}
    assert event["last_minute"]["time_to_first_token"] == {"count": 0}


def test_numbers_add_up_in_both_tiers(start_server, watch):
    server = start_server("--strategy", "full-offload", "--gpu-kv-cache", "4096tok", "--cpu-kv-cache", "8192tok",
                          "--max-num-seqs", "3")
    watcher = watch(server)
    streams = [server.open_stream(max_tokens=900) for _ in range(5)]
    event = watcher.wait_for(lambda seen: seen["running"] == 3 and seen["waiting"] == 2 and
                             all(row["generated_tokens"] > 0 for row in seen["requests"][:3]))
    rows = event["requests"]
    assert [row["state"] for row in rows[3:]] == ["waiting", "waiting"]
    assert all(row["tier"] is None and row["blocks"] == 0 for row in rows[3:])
    assert {row["tier"] for row in rows[:3]} == {"cpu"}
    assert all(row["max_tokens"] == 900 and 0 < row["prompt_tokens"] < 20 for row in rows)
    for tier in ("gpu", "cpu"):
        assert held_blocks(event, tier) == used_blocks(event, tier)
    metrics = server.metrics()
    assert metrics["vllm:num_requests_running"] == 3 and metrics["vllm:num_requests_waiting"] == 2
    assert event["totals"]["generated_tokens"] <= metrics["tandem:drawn_tokens_total"]
    later = watcher.wait_for(lambda seen: seen["totals"]["cpu_attention_kv_bytes"] > 0)
    assert later["time"] > event["time"]
    assert later["totals"]["strategy_iterations"].keys() <= {"full-offload", "gpu-only"}
    assert later["last_minute"]["inter_token_latency"]["count"] > 0
    timeline = watcher.wait_for(lambda seen: len(seen["lanes"]) > 2, name="timeline")
    lanes = {lane["name"]: lane["spans"] for lane in timeline["lanes"]}
    assert {"engine", "gpu", "cpu attention"} <= lanes.keys()
    assert min(begin for spans in lanes.values() for _, begin, _ in spans) == 0
    assert all(duration >= 0 for spans in lanes.values() for _, _, duration in spans)
    for stream in streams:
        stream.close()
    idle = watcher.wait_for(lambda seen: seen["requests"] == [] and seen["running"] + seen["waiting"] == 0)
    metrics = server.wait_idle()
    for tier in ("gpu", "cpu"):
        full_name = next(name for name in metrics if name.startswith("tandem:kv_blocks_free{") and
                         f'tier="{tier}"' in name)
        assert 0 <= idle["tiers"][tier]["cached"] <= idle["tiers"][tier]["blocks"]
        assert idle["tiers"][tier]["free"] == metrics[full_name] == idle["tiers"][tier]["blocks"]


def test_latencies_are_those_since_somebody_watches(server, watch):
    server.complete(max_tokens=8, ignore_eos=True)
    watcher = watch(server)
    assert watcher.wait_for(lambda _: True)["last_minute"]["time_per_output_token"] == {"count": 0}
    server.complete(max_tokens=8, ignore_eos=True)
    last_minute = watcher.wait_for(
        lambda seen: seen["last_minute"]["time_per_output_token"]["count"] > 0)["last_minute"]
    assert last_minute["time_to_first_token"]["count"] == 1
    assert last_minute["inter_token_latency"]["count"] == 7
    assert 0 < last_minute["inter_token_latency"]["p50_ms"] <= last_minute["inter_token_latency"]["p99_ms"]


def test_it_needs_the_key(start_server, watch):
    server = start_server("--api-key", KEY)
    assert server.request("GET", "/tiers")[0] == 401
    assert watch(server, {"Authorization": f"Bearer {KEY}"}).next_event()[0] == "tiers"


def test_head_and_other_methods(server):
    assert server.request("HEAD", "/tiers")[0] == 200
    assert server.request("POST", "/tiers", "{}")[0] == 405


def test_a_watcher_does_not_hold_up_the_end(start_server, watch):
    server = start_server()
    watcher = watch(server)
    watcher.wait_for(lambda _: True)
    begin = time.monotonic()
    server.terminate()
    assert server.process.wait(20) == 0
    assert time.monotonic() - begin < 10
    while watcher.next_event() is not None:
        pass


def test_who_does_not_read_costs_nothing(server, watch):
    with server.open_socket() as deaf:
        deaf.sendall(b"GET /tiers HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(deaf, b"event: tiers")
        server.complete(max_tokens=8)
        # Others go on.
        watcher = watch(server)
        for _ in range(3):
            watcher.wait_for(lambda _: True)
    assert server.wait_idle()["tandem:model_loaded"] == 1
