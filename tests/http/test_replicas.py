"""The configuration of docs/responses.md in a real HAProxy: what an id names reaches the replica that has it."""

import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import openai
import pytest
from tandem_server import free_port

RULES = Path(__file__).resolve().parents[2] / "docs/responses.md"
REPLICAS = ("east1", "east2")
# Enough that a proxy that takes any server is found out.
NUM_TURNS = 8


def documented_backend():
    text = re.search(r"^    backend tandem\n(?:    .*\n)+", RULES.read_text(), re.MULTILINE).group()
    return "\n".join(line[4:] for line in text.splitlines())


@pytest.fixture
def proxy(binary, model_path, start_server, tmp_path):
    """Two replicas behind HAProxy, which takes them in turn: the proxy's address and the replicas'."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("haproxy is not installed")
    servers = {name: start_server("--replica-id", name) for name in REPLICAS}
    backend = documented_backend()
    for name, server in servers.items():
        backend, count = re.subn(rf"server {name} \S+", f"server {name} 127.0.0.1:{server.port}", backend)
        assert count == 1, f"docs/responses.md has no server {name}"
    port = free_port()
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"""defaults
    mode http
    balance roundrobin
    timeout connect 5s
    timeout client 120s
    timeout server 120s
frontend all
    bind 127.0.0.1:{port}
    default_backend tandem
{backend}
""")
    running = subprocess.Popen([program, "-db", "-f", str(config)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                break
        except OSError:
            assert running.poll() is None, running.stdout.read()
            assert time.monotonic() < deadline, "the proxy does not answer"
            time.sleep(0.05)
    yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120), servers
    running.terminate()
    running.wait()
    running.stdout.close()


def replica_of(response):
    return response.id.split("_")[1]


def test_a_conversation_stays_where_it_began(proxy):
    client, _ = proxy
    begun = [client.responses.create(model="test-model", input=f"Say {i}.", max_output_tokens=4) for i in range(4)]
    assert {replica_of(response) for response in begun} == set(REPLICAS), "the proxy spreads what is new"
    for first in begun:
        last = first
        for _ in range(NUM_TURNS // 2):
            last = client.responses.create(model="test-model", input="And now?", previous_response_id=last.id,
                                           max_output_tokens=4)
            assert replica_of(last) == replica_of(first)
        for _ in range(NUM_TURNS // 2):
            assert client.responses.retrieve(first.id).id == first.id
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)


def test_without_the_rule_a_replica_does_not_know_the_other_ones_ids(proxy):
    """What the rule is for: it is not the replicas that pass requests on."""
    client, servers = proxy
    first = client.responses.create(model="test-model", input="Hi", max_output_tokens=4)
    other = next(server for name, server in servers.items() if name != replica_of(first))
    status, _ = other.post("/v1/responses", {"model": "test-model", "input": "And?", "previous_response_id": first.id})
    assert status in (400, 404)
