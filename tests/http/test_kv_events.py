"""A router of a fleet knows by KV events alone which blocks each replica has."""

import json
import random
import subprocess
import tempfile
import time

import pytest
from kv_event_subscriber import KvEventSubscriber, config_flag
from tandem_server import BY_HEART, TandemServer

BLOCK = 32
KEY = "000102030405060708090a0b0c0d0e0f"


@pytest.fixture
def folder():
    # pytest's own folders are too deep for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="kv") as path:
        yield path


@pytest.fixture
def start_server(binary):
    """A model of two small layers: what is asked here is not what it says."""
    started = []

    def start(*flags):
        started.append(TandemServer(binary, BY_HEART, *flags))
        return started[-1]
    yield start
    for running in started:
        running.close()


@pytest.fixture
def subscribe():
    subscribers = []

    def start(folder, **options):
        subscribers.append(KvEventSubscriber(folder, **options))
        return subscribers[-1]
    yield start
    for subscriber in subscribers:
        subscriber.close()


def prompt_of(seed, num_tokens):
    draw = random.Random(seed)
    return [draw.randrange(10, 500) for _ in range(num_tokens)]


def cached_of(server, prompt, max_tokens=1, **fields):
    answer = server.complete(prompt=prompt, max_tokens=max_tokens, ignore_eos=True, **fields)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def reset(server):
    assert server.request("POST", "/reset_prefix_cache")[0] == 200
    deadline = time.monotonic() + 60
    while server.metrics()["tandem:prefix_cache_blocks"] > 0:
        assert time.monotonic() < deadline


def assert_same_contents(server, subscriber):
    metrics = server.wait_idle()
    subscriber.catch_up(server)
    for medium, tier in (("GPU", "gpu"), ("CPU", "cpu")):
        counted = next(value for name, value in metrics.items()
                       if name.startswith("tandem:prefix_cache_blocks{") and f'tier="{tier}"' in name)
        assert len(subscriber.blocks[medium]) == counted
    assert metrics["tandem:kv_events_dropped_total"] == 0


@pytest.mark.parametrize("encoding", ["map", "array"])
def test_events_say_what_a_prompt_finds(start_server, folder, subscribe, encoding):
    topic = "kv@pod-1@test-model"
    server = start_server(*config_flag(folder, topic=topic, encoding=encoding))
    # It comes late: what it has missed it asks for.
    first = prompt_of(1, 3 * BLOCK + 5)
    assert cached_of(server, first) == 0
    subscriber = subscribe(folder, topic=topic)
    assert_same_contents(server, subscriber)
    assert subscriber.chain("GPU", first) and subscriber.num_cached(first) == 3 * BLOCK
    for prompt in (first, first[:2 * BLOCK], first[:2 * BLOCK] + prompt_of(2, 40), prompt_of(3, 70)):
        expected = subscriber.num_cached(prompt)
        assert cached_of(server, prompt) == expected
        assert_same_contents(server, subscriber)
    # Output fills blocks too; only the last of 97 tokens is not computed.
    answer = server.complete(prompt=prompt_of(4, 45), max_tokens=52, ignore_eos=True, return_token_ids=True)
    assert_same_contents(server, subscriber)
    whole = prompt_of(4, 45) + answer["choices"][0]["token_ids"]
    assert subscriber.num_cached(whole) == 3 * BLOCK
    assert cached_of(server, whole) == 3 * BLOCK
    # Salts are told, and keep blocks apart.
    assert cached_of(server, first, cache_salt="tenant") == 0
    assert_same_contents(server, subscriber)
    salts = {value[2] for value in subscriber.blocks["GPU"].values() if value[0] is None}
    assert len(salts) == 2 and () in salts
    (salt,) = max(salts)
    assert "tenant" in salt and len(subscriber.chain("GPU", first, salt)) == 3
    # And a reset is told.
    reset(server)
    assert_same_contents(server, subscriber)
    assert subscriber.num_cached(first) == 0
    assert cached_of(server, first) == 0
    assert_same_contents(server, subscriber)
    assert len(subscriber.chain("GPU", first)) == 3


def test_events_follow_both_tiers_until_blocks_are_given_up(start_server, folder, subscribe):
    server = start_server("--strategy", "asymmetric", "--gpu-kv-cache", "1024tok", "--cpu-kv-cache", "1024tok",
                          "--max-model-len", "512", "--profile-seconds", "2", *config_flag(folder))
    subscriber = subscribe(folder)
    draw = random.Random(7)
    prompts = [prompt_of(100 + i, 5 * BLOCK) for i in range(12)]
    num_found = {True: 0, False: 0}
    for step in range(70):
        # Of late ones rather than of all.
        base = prompts[min(11, int(abs(draw.gauss(0, 4))) + step // 12) % 12]
        prompt = base[:draw.randrange(BLOCK, len(base))] + prompt_of(1000 + step, draw.randrange(1, 50))
        subscriber.catch_up(server)
        expected = subscriber.num_cached(prompt)
        assert cached_of(server, prompt, max_tokens=draw.randrange(1, 40)) == expected, step
        num_found[expected > 0] += 1
        assert_same_contents(server, subscriber)
    assert min(num_found.values()) > 5
    for medium in ("GPU", "CPU"):
        assert {("BlockStored", medium), ("BlockRemoved", medium)} <= subscriber.kinds
    reset(server)
    assert_same_contents(server, subscriber)
    assert subscriber.blocks == {"GPU": {}, "CPU": {}}


def test_replicas_with_the_same_key_give_the_same_hashes(start_server, subscribe):
    chains = []
    prompt = prompt_of(1, 3 * BLOCK + 1)
    with tempfile.TemporaryDirectory(prefix="kv") as parent:
        for name, flags in {"a": ["--prefix-cache-key", KEY], "b": ["--prefix-cache-key", KEY], "c": []}.items():
            folder = tempfile.mkdtemp(prefix=name, dir=parent)
            server = start_server(*flags, *config_flag(folder))
            cached_of(server, prompt)
            subscriber = subscribe(folder)
            assert_same_contents(server, subscriber)
            chains.append(subscriber.chain("GPU", prompt))
            server.close()
    assert len(chains[0]) == 3
    assert chains[0] == chains[1]
    assert not set(chains[0]) & set(chains[2])


def test_nothing_is_published_unless_it_is_wanted(start_server, tmp_path):
    server = start_server("--kv-events-config", json.dumps({"endpoint": f"ipc://{tmp_path}/e", "publisher": "zmq"}))
    cached_of(server, prompt_of(1, 70))
    assert server.metrics()["tandem:kv_events_total"] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("config, message", [
    ("{", "--kv-events-config: it is not a JSON object"),
    ('{"endpiont": "tcp://*:1"}', "--kv-events-config: it has no key 'endpiont'"),
    ('{"hwm": -1}', "--kv-events-config: hwm is not a whole number from 0 to 2147483647"),
    ('{"enable_kv_cache_events": true, "endpoint": "ipc:///no/such/folder/events"}',
     "--kv-events-config, endpoint: cannot bind ipc:///no/such/folder/events: No such file or directory"),
])
def test_a_wrong_config_is_one_sentence(binary, model_path, config, message):
    done = subprocess.run([binary, "serve", model_path, "--port", "0", "--kv-events-config", config], text=True,
                          capture_output=True, timeout=120)
    assert done.returncode not in (0, None) and done.returncode > 0
    assert message in done.stderr
