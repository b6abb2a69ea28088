"""What clients see of the prefix cache: counts of cached tokens in every API, with whom beginnings are shared, the reset."""

import json

import anthropic
import openai
import pytest
from tandem_server import MODEL_NAME

KEYS = {"alice": "sk-alice-of-this-test", "bob": "sk-bob-of-this-test"}


def words(name):
    """A prompt that nobody else has from its first word on, longer than several blocks."""
    return f"{name}: " + " ".join(f"word{i}" for i in range(30))


def cacheable(server, num_tokens):
    """Of a prompt that was computed before: its full blocks, but for the last token, whose output is wanted."""
    block_size = int(server.metrics()["tandem:kv_block_size_tokens"])
    assert num_tokens > 2 * block_size
    return (num_tokens - 1) // block_size * block_size


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def ask(server, name, key=None, **fields):
    """Cached tokens of a completion."""
    headers = {"Authorization": f"Bearer {KEYS[key]}"} if key else None
    status, answer = server.post("/v1/completions", {"prompt": words(name), "max_tokens": 2, "temperature": 0, **fields},
                                 headers=headers)
    assert status == 200, answer
    return cached(answer["usage"])


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    return str(path)


# --- usage

def test_completions_say_what_was_cached(server, client):
    def complete(**fields):
        return client.completions.create(model=MODEL_NAME, prompt=words("completions"), max_tokens=8, temperature=0,
                                         **fields)
    first, second = complete(), complete()
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    expected = cacheable(server, second.usage.prompt_tokens)
    assert second.usage.prompt_tokens_details.cached_tokens == expected
    assert second.usage.prompt_tokens == first.usage.prompt_tokens
    assert second.choices[0].text == first.choices[0].text
    *chunks, last = complete(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert last.choices == [] and last.usage.prompt_tokens_details.cached_tokens == expected
    assert {chunk.usage.prompt_tokens_details.cached_tokens for chunk in chunks} == {expected}
    assert "".join(chunk.choices[0].text for chunk in chunks) == first.choices[0].text


def test_chats_find_their_earlier_turns(server, client):
    messages = [{"role": "system", "content": words("chats")}, {"role": "user", "content": "Say hello."}]

    def chat(**fields):
        return client.chat.completions.create(model=MODEL_NAME, messages=messages, max_tokens=8, temperature=0, **fields)
    first = chat()
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    messages += [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "Again."}]
    second = chat()
    # A turn's text may be tokenized anew only where it ends: all before the answer is there.
    assert second.usage.prompt_tokens_details.cached_tokens >= cacheable(server, first.usage.prompt_tokens)
    last = list(chat(stream=True, stream_options={"include_usage": True}))[-1]
    assert last.usage.prompt_tokens_details.cached_tokens == cacheable(server, second.usage.prompt_tokens)


def test_a_prompt_with_several_choices_counts_once(server):
    status, answer = server.post("/v1/completions", {"prompt": [words("n, one"), words("n, two")], "n": 3, "max_tokens": 2,
                                                     "temperature": 0})
    assert status == 200 and cached(answer["usage"]) == 0
    status, again = server.post("/v1/completions", {"prompt": [words("n, one"), words("n, three")], "n": 3, "max_tokens": 2,
                                                    "temperature": 0})
    assert status == 200 and again["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"] / 2
    assert 0 < cached(again["usage"]) < again["usage"]["prompt_tokens"] / 2


def test_responses_say_what_was_cached(server, client):
    def respond(**fields):
        return client.responses.create(model=MODEL_NAME, instructions=words("responses"), input="Say hello.",
                                       max_output_tokens=8, temperature=0, **fields)
    assert respond().usage.input_tokens_details.cached_tokens == 0
    second = respond()
    expected = cacheable(server, second.usage.input_tokens)
    assert second.usage.input_tokens_details.cached_tokens == expected
    completed = list(respond(stream=True))[-1].response
    assert completed.usage.input_tokens_details.cached_tokens == expected
    assert completed.usage.input_tokens == second.usage.input_tokens


def test_messages_count_apart_what_was_cached(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0, timeout=120)
    fields = {"model": MODEL_NAME, "system": words("messages"), "max_tokens": 8,
              "messages": [{"role": "user", "content": "Say hello."}]}
    first = client.messages.create(**fields).usage
    assert first.cache_read_input_tokens == first.cache_creation_input_tokens == 0
    second = client.messages.create(**fields).usage
    expected = cacheable(server, first.input_tokens)
    assert second.cache_read_input_tokens == expected
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens
    begun = None
    with client.messages.stream(**fields) as stream:
        for event in stream:
            if event.type == "message_start":
                # The same object grows with the stream.
                begun = event.message.usage.model_copy()
        final = stream.get_final_message().usage
    for usage in (begun, final):
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (second.input_tokens, expected)


# --- with whom it is shared

def test_salts_keep_requests_apart(server):
    expected = ask(server, "salts") or ask(server, "salts")
    assert expected > 0
    assert ask(server, "salts", cache_salt="a") == 0
    assert ask(server, "salts", cache_salt="b") == 0
    assert ask(server, "salts", cache_salt="a") == expected
    assert ask(server, "salts") == expected


def test_salts_are_those_of_every_api(server):
    text = words("salts of every API")
    routes = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}], "max_tokens": 2},
        "/v1/responses": {"input": text, "max_output_tokens": 2},
        "/v1/messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 2},
    }

    def cached_of(path, **fields):
        status, answer = server.post(path, {**routes[path], **fields})
        assert status == 200, answer
        usage = answer["usage"]
        return usage.get("cache_read_input_tokens", cached(usage) if "prompt_tokens_details" in usage else
                         usage.get("input_tokens_details", {}).get("cached_tokens"))
    for number, path in enumerate(routes):
        # The prompt is the same in all of them: so are the salts.
        assert (cached_of(path, cache_salt="of all") > 0) == (number > 0)
        assert cached_of(path, cache_salt=f"of {path}") == 0
        status, answer = server.post(path, {**routes[path], "cache_salt": ""})
        assert status == 400 and "cache_salt must not be empty" in answer["error"]["message"]


def test_cache_prompt_false_finds_and_leaves_nothing(server):
    assert ask(server, "alone", cache_prompt=False) == 0
    assert ask(server, "alone", cache_prompt=False) == 0
    assert ask(server, "alone") == 0
    assert ask(server, "alone") > 0
    assert ask(server, "alone", cache_prompt=False) == 0


def test_keys_do_not_find_each_others_prompts(start_server, keys_file):
    server = start_server("--api-key-file", keys_file, "--open-metrics")
    assert ask(server, "keys", "alice") == 0
    # No salt makes one key's requests look like another's.
    for salt in (None, "alice", "5:alice0:", KEYS["alice"]):
        assert ask(server, "keys", "bob", cache_salt=salt) == 0
    assert ask(server, "keys", "alice") > 0
    assert ask(server, "keys", "bob") > 0
    assert ask(server, "keys", "alice", cache_salt="bob") == 0


def test_keys_share_if_they_are_told_to(start_server, keys_file):
    server = start_server("--api-key-file", keys_file, "--share-prefix-cache")
    assert ask(server, "keys", "alice") == 0
    assert ask(server, "keys", "bob") > 0
    assert ask(server, "keys", "bob", cache_salt="s") == 0


# --- reset and off

def test_a_reset_forgets_everything(server):
    assert ask(server, "reset") == 0
    assert ask(server, "reset") > 0
    status, headers, body = server.request("POST", "/reset_prefix_cache")
    assert (status, body) == (200, b"")
    assert ask(server, "reset") == 0
    assert ask(server, "reset") > 0
    assert server.request("GET", "/reset_prefix_cache")[0] == 405


def test_a_reset_drains_nothing(server):
    stream = server.open_stream(max_tokens=400)
    assert stream.recv(1)
    assert server.request("POST", "/reset_prefix_cache?reset_running_requests=false")[0] == 200
    received = b""
    while data := stream.recv(65536):
        received += data
        if b"[DONE]" in received:
            break
    stream.close()
    assert received.count(b'"finish_reason":"length"') == 1


def test_a_reset_needs_the_key(start_server):
    server = start_server("--api-key", KEYS["alice"])
    assert server.request("POST", "/reset_prefix_cache")[0] == 401
    assert server.request("POST", "/reset_prefix_cache", headers={"x-api-key": KEYS["alice"]})[0] == 200


def test_without_the_cache_nothing_is_cached(start_server):
    server = start_server("--no-enable-prefix-caching")
    assert [ask(server, "off") for _ in range(2)] == [0, 0]
    assert server.request("POST", "/reset_prefix_cache")[0] == 200
    metrics = server.wait_idle()
    assert metrics["vllm:prefix_cache_queries_total"] == metrics["vllm:prompt_tokens_cached_total"] == 0
    assert metrics["tandem:prefix_cache_blocks"] == 0


# --- what operators see

def test_metrics_and_the_access_log(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", str(log))
    usages = [server.complete(prompt=words("metrics"))["usage"] for _ in range(2)]
    metrics = server.wait_idle()
    num_cached = cached(usages[1])
    num_tokens = usages[0]["prompt_tokens"] + usages[1]["prompt_tokens"]
    assert 0 == cached(usages[0]) < num_cached == metrics["vllm:prompt_tokens_cached_total"]
    assert metrics["vllm:prompt_tokens_total"] == metrics["vllm:prefix_cache_queries_total"] == num_tokens
    assert metrics["vllm:prefix_cache_hits_total"] == num_cached
    assert metrics["tandem:recomputed_tokens_total"] == 0
    num_blocks = metrics["tandem:prefix_cache_blocks"]
    assert num_blocks >= num_cached / metrics["tandem:kv_block_size_tokens"]
    # What is kept for prefixes is free for whoever needs it.
    assert server.free_blocks(metrics) == {name.replace("kv_blocks{", "kv_blocks_free{"): value
                                           for name, value in metrics.items() if name.startswith("tandem:kv_blocks{")}
    server.terminate()
    server.process.wait(30)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["cached_tokens"] for line in lines if line["path"] == "/v1/completions"] == [0, num_cached]
