"""/v1/embeddings with the official client: of a chat model, and of folders that are made for embeddings."""

import base64
import json
import math
import pathlib
import struct
import subprocess
import time

import openai
import pytest
from tandem_server import MODEL_NAME, TandemServer

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["The cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again in March."]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)


def embed(client, texts, **fields):
    answer = client.embeddings.create(model=MODEL_NAME, input=texts, **fields)
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return [item.embedding for item in answer.data]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


def near(a, b, tolerance=0.02):
    """But for what batches change at bf16."""
    assert len(a) == len(b)
    assert math.dist(a, b) <= tolerance * math.hypot(*b)
    return True


def raw(server, **fields):
    return server.post("/v1/embeddings", fields)


def test_the_official_client_gets_vectors_of_length_one(client):
    answer = client.embeddings.create(model=MODEL_NAME, input=TEXTS)
    assert answer.object == "list" and answer.model == MODEL_NAME
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > 15
    vectors = [item.embedding for item in answer.data]
    assert len(vectors) == 3 and {len(vector) for vector in vectors} == {576}
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-4) for vector in vectors)
    assert len({tuple(vector) for vector in vectors}) == 3
    for text, vector in zip(TEXTS, vectors):
        assert near(embed(client, text)[0], vector)


def test_texts_and_their_tokens_are_the_same(server, client):
    tokens = [server.post("/tokenize", {"prompt": text})[1]["tokens"] for text in TEXTS[:2]]
    by_text = embed(client, TEXTS[:2])
    assert all(map(near, embed(client, tokens), by_text))
    assert near(embed(client, tokens[0])[0], by_text[0])
    status, body = raw(server, input=tokens)
    assert status == 200 and body["usage"] == {"prompt_tokens": sum(map(len, tokens)),
                                               "total_tokens": sum(map(len, tokens))}


def test_base64_is_little_endian_fp32(server):
    _, plain = raw(server, input=TEXTS[0], encoding_format="float")
    _, packed = raw(server, input=TEXTS[0], encoding_format="base64")
    data = base64.b64decode(packed["data"][0]["embedding"], validate=True)
    assert near(list(struct.unpack(f"<{len(data) // 4}f", data)), plain["data"][0]["embedding"])


def test_dimensions_are_the_first_ones_at_length_one(server, client):
    whole = raw(server, input=TEXTS[0], normalize=False)[1]["data"][0]["embedding"]
    assert math.hypot(*whole) > 2
    short = embed(client, TEXTS[0], dimensions=64)[0]
    assert len(short) == 64 and math.isclose(math.hypot(*short), 1, rel_tol=1e-4)
    assert cosine(short, whole[:64]) > 0.999
    assert raw(server, input="a", dimensions=577)[1]["error"]["param"] == "dimensions"


def test_long_texts_are_refused_or_cut(server):
    tokens = [(7 * i) % 1000 for i in range(1100)]
    status, body = raw(server, input=tokens)
    assert status == 400
    assert (body["error"]["code"], body["error"]["param"]) == ("context_length_exceeded", "input")
    whole = raw(server, input=tokens[:1024])[1]
    assert whole["usage"]["total_tokens"] == 1024  # the context may be full
    for cut, expected in ((-1, tokens[:1024]), (50, tokens[:50])):
        status, body = raw(server, input=tokens, truncate_prompt_tokens=cut)
        assert status == 200 and body["usage"]["total_tokens"] == len(expected)
        assert near(body["data"][0]["embedding"], raw(server, input=expected)[1]["data"][0]["embedding"])
    last = raw(server, input=tokens, truncate_prompt_tokens=50, truncation_side="left")[1]
    assert near(last["data"][0]["embedding"], raw(server, input=tokens[-50:])[1]["data"][0]["embedding"])


@pytest.mark.parametrize("fields, param", [
    ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": ["a", ""]}, "input"),
    ({"input": ["a", [1]]}, "input"), ({"input": 5}, "input"), ({"input": [10**6]}, "input"),
    ({"input": ["a"] * 2049}, "input"), ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
    ({"input": "a", "dimensions": 0}, "dimensions"), ({"messages": []}, "messages"), ({"inputs": "a"}, "inputs"),
])
def test_errors_name_the_field(server, fields, param):
    status, body = raw(server, **fields)
    assert status == 400
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["param"] == param


def test_another_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="a")


def test_more_texts_than_the_queue_holds(start_server):
    server = start_server("--max-num-queued-reqs", "8")
    status, body = raw(server, input=[[i % 100, i % 7] for i in range(300)])
    assert status == 200 and len(body["data"]) == 300


def test_beside_chats(server, client):
    alone = embed(client, TEXTS)
    streams = [server.open_stream(max_tokens=200) for _ in range(4)]
    try:
        for _ in range(3):
            assert all(map(near, embed(client, TEXTS), alone))
        plain = server.complete(prompt="The capital of France is", max_tokens=1)
        assert "Paris" in plain["choices"][0]["text"]
    finally:
        for stream in streams:
            stream.close()
    server.wait_idle()


def test_who_leaves_frees_what_was_taken(server):
    before = server.free_blocks(server.wait_idle())
    body = json.dumps({"input": [[i % 900 for i in range(1000)]] * 40})
    connection = server.connect()
    connection.request("POST", "/v1/embeddings", body)
    deadline = time.monotonic() + 30
    while server.metrics()["vllm:num_requests_running"] == 0:
        assert time.monotonic() < deadline, "nothing runs"
    connection.close()
    assert server.free_blocks(server.wait_idle(20)) == before


def test_metrics_count_them(start_server):
    server = start_server()
    assert raw(server, input=[[1, 2, 3], [4]])[0] == 200
    metrics = server.wait_idle()
    assert metrics["vllm:prompt_tokens_total"] == 4
    assert metrics["vllm:generation_tokens_total"] == 0
    assert metrics["vllm:request_prompt_tokens_count"] == 2
    assert metrics["vllm:time_to_first_token_seconds_count"] == 0
    reasons = {name: value for name, value in metrics.items() if name.startswith("vllm:request_success_total{")}
    assert sum(reasons.values()) == 2 and next(v for n, v in reasons.items() if '"stop"' in n) == 2


# --- folders made for embeddings

def byte_characters():
    """Of bytes 0..255, as byte-level tokenizers write them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


END_OF_TEXT = 256


def write_embedding_folder(folder, mode):
    """The fixture of Qwen3 as embedding models are saved: without prefix and lm_head; texts end with a token."""
    source = REPOSITORY / "tests/fixtures/families/qwen3"
    data = (source / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, tensors, weights = json.loads(data[8:8 + length]), {}, b""
    for name, tensor in header.items():
        if name in ("__metadata__", "lm_head.weight"):
            continue
        begin, end = tensor["data_offsets"]
        tensors[name.removeprefix("model.")] = {**tensor, "data_offsets": [len(weights), len(weights) + end - begin]}
        weights += data[8 + length + begin:8 + length + end]
    text = json.dumps(tensors).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + weights)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3Model"]}))
    types = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
         for i, (path, name) in enumerate(types)]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    end = {"id": END_OF_TEXT, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|end|>", "type_id": 0}}],
            "pair": [], "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [END_OF_TEXT], "tokens": ["<|end|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {text: token for token, text in enumerate(byte_characters())}, "merges": []},
    }))


def test_folders_say_how_they_pool(binary, tmp_path):
    tokens = [*b"hello world", END_OF_TEXT]
    prefixes, texts, cut = {}, {}, {}
    for mode in ("lasttoken", "mean_tokens", "cls_token"):
        (tmp_path / mode).mkdir()
        write_embedding_folder(tmp_path / mode, mode)
        with TandemServer(binary, str(tmp_path / mode), "--max-model-len", "0", "--dtype", "fp32") as server:
            def vector(**fields):
                status, body = raw(server, normalize=False, **fields)
                assert status == 200, body
                return body["data"][0]["embedding"]

            prefixes[mode] = [vector(input=tokens[:n + 1]) for n in range(len(tokens))]
            texts[mode] = vector(input="hello world")
            cut[mode] = vector(input="hello worldly", truncate_prompt_tokens=12)
            status, body = server.post("/v1/completions", {"prompt": "a"})
            assert status == 400
            assert body["error"]["message"] == "this model continues no texts: it makes embeddings (/v1/embeddings)"
        assert texts[mode] == prefixes[mode][-1], "the tokenizer ends texts"
        assert cut[mode] == prefixes[mode][-1], "the end stays"
    last = prefixes["lasttoken"]
    assert len(set(map(tuple, last))) == len(tokens)
    assert prefixes["cls_token"] == [last[0]] * len(tokens)
    for n, mean in enumerate(prefixes["mean_tokens"]):
        assert near(mean, [sum(column) / (n + 1) for column in zip(*last[:n + 1])], 1e-5)


def test_encoders_are_refused_when_they_are_loaded(binary, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    result = subprocess.run([binary, "serve", str(tmp_path), "--port", "0"], capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 1
    assert "config.json: architecture 'BertModel' is not supported" in result.stderr
