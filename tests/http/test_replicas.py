"""deploy/haproxy.cfg in a real HAProxy before two servers: what an id names reaches the replica that has it; a replica
that drains loses nothing, one that dies its own streams alone."""

import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import httpx2  # what openai speaks HTTP with
import openai
import pytest
from tandem_server import TandemServer, free_port

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy/haproxy.cfg"
REPLICAS = ("east1", "east2")
# Enough that a proxy that takes any server is found out.
NUM_TURNS = 8
# Of a stream that is to be under way when its server goes: some seconds of the real model on two cores.
LONG_TOKENS = 400
# Until HAProxy has seen a server go or come back: a few of its checks, a second each, on a busy machine.
SEEN_S = 30


def configuration_for(port, addresses):
    """The file that people copy, with a port and addresses of this machine in place of its own."""
    text, count = re.subn(r"bind :8080", f"bind 127.0.0.1:{port}", CONFIGURATION.read_text())
    assert count == 1
    for name, address in addresses.items():
        text, count = re.subn(rf"server {name} \S+", f"server {name} {address}", text)
        assert count == 1, f"deploy/haproxy.cfg has no server {name}"
    return text


class Fleet:
    def __init__(self, url, servers):
        self.url = url
        self.servers = servers
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)

    def respond(self, **fields):
        return self.client.responses.create(model="test-model", max_output_tokens=4, **fields)


@pytest.fixture
def fleet(start_server, tmp_path):
    """Two replicas behind HAProxy."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("haproxy is not installed")
    servers = {name: start_server("--replica-id", name) for name in REPLICAS}
    port = free_port()
    config = tmp_path / "haproxy.cfg"
    config.write_text(configuration_for(port, {name: f"127.0.0.1:{server.port}" for name, server in servers.items()}))
    running = subprocess.Popen([program, "-db", "-f", str(config)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                break
        except OSError:
            assert running.poll() is None, running.stdout.read()
            assert time.monotonic() < deadline, "the proxy does not answer"
            time.sleep(0.05)
    yield Fleet(url, servers)
    running.terminate()
    running.wait()
    running.stdout.close()


def replica_of(response):
    return response.id.split("_")[1]


class Stream(threading.Thread):
    """A long streamed response: on which replica, how many deltas came, how it ended."""

    def __init__(self, fleet, number):
        super().__init__()
        self.fleet = fleet
        self.number = number
        self.replica = None
        self.num_deltas = 0
        self.completed = False
        self.error = None
        self.is_under_way = threading.Event()
        self.start()

    def run(self):
        try:
            with self.fleet.client.responses.create(
                    model="test-model", input=f"Count from {self.number}.", stream=True, max_output_tokens=LONG_TOKENS,
                    extra_body={"ignore_eos": True}) as events:
                for event in events:
                    if event.type == "response.created":
                        self.replica = replica_of(event.response)
                    elif event.type == "response.output_text.delta":
                        self.num_deltas += 1
                        self.is_under_way.set()
                    elif event.type in ("response.completed", "response.incomplete"):
                        self.completed = event.response.usage.output_tokens == LONG_TOKENS
        except (openai.APIError, httpx2.HTTPError) as error:
            self.error = error
        self.is_under_way.set()


def streams_on_both(fleet):
    streams = [Stream(fleet, number) for number in range(6)]
    for stream in streams:
        assert stream.is_under_way.wait(60) and stream.error is None and not stream.completed, stream.error
    assert {stream.replica for stream in streams} == set(REPLICAS), "the proxy spreads what is new"
    return streams


def test_a_conversation_stays_where_it_began(fleet):
    begun = [fleet.respond(input=f"Say {i}.") for i in range(4)]
    assert {replica_of(response) for response in begun} == set(REPLICAS), "the proxy spreads what is new"
    for first in begun:
        last = first
        for _ in range(NUM_TURNS // 2):
            last = fleet.respond(input="And now?", previous_response_id=last.id)
            assert replica_of(last) == replica_of(first)
        for _ in range(NUM_TURNS // 2):
            assert fleet.client.responses.retrieve(first.id).id == first.id
        fleet.client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            fleet.client.responses.retrieve(first.id)


def test_without_the_rule_a_replica_does_not_know_the_other_ones_ids(fleet):
    """What the rule is for: it is not the replicas that pass requests on."""
    first = fleet.respond(input="Hi")
    other = next(server for name, server in fleet.servers.items() if name != replica_of(first))
    status, _ = other.post("/v1/responses", {"model": "test-model", "input": "And?", "previous_response_id": first.id})
    assert status in (400, 404)


def test_a_replica_that_dies_takes_its_own_streams_alone(fleet, binary, model_path):
    streams = streams_on_both(fleet)
    dead = fleet.servers["east1"]
    dead.process.kill()
    dead.process.wait()
    # At once, before a check has failed.
    answers = [fleet.respond(input=f"Say {i}.") for i in range(6)]
    assert {replica_of(answer) for answer in answers} == {"east2"}
    for stream in streams:
        stream.join(120)
        assert not stream.is_alive(), "a stream neither goes on nor ends"
        if stream.replica == "east1":
            assert not stream.completed and stream.num_deltas < LONG_TOKENS, "it was under way"
        else:
            assert stream.completed and stream.error is None, stream.error
    with TandemServer(binary, model_path, "--replica-id", "east1", port=dead.port):
        deadline = time.monotonic() + SEEN_S
        while replica_of(fleet.respond(input="Are you there?")) != "east1":
            assert time.monotonic() < deadline, "a replica that is back is not used"
            time.sleep(0.1)


def test_a_replica_that_drains_loses_nothing(fleet):
    streams = streams_on_both(fleet)
    draining = fleet.servers["east1"]
    draining.process.send_signal(signal.SIGTERM)
    num_answers = 0
    while draining.process.poll() is None:
        assert fleet.respond(input=f"Say {num_answers}.").status in ("completed", "incomplete")
        num_answers += 1
    assert num_answers > 0 and draining.process.returncode == 0
    for stream in streams:
        stream.join(120)
        assert stream.completed and stream.error is None, (stream.replica, stream.error)
