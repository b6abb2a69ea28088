"""The official openai client against the server."""

import json
import math

import openai
import pytest
from tandem_server import MODEL_NAME

PROMPT = "The capital of France is"
MESSAGES = [{"role": "user", "content": "Say hello in one short sentence."}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)


def complete(client, **fields):
    return client.completions.create(
        **{"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, **fields})


def chat(client, **fields):
    return client.chat.completions.create(
        **{"model": MODEL_NAME, "messages": MESSAGES, "max_completion_tokens": 8, "temperature": 0, **fields})


def test_every_token_has_a_chunk(client):
    # Halves of characters have no text of their own.
    chunks = list(complete(client, prompt="🤗 🦙 🤗 🦙 🤗", max_tokens=24, stream=True))
    assert len(chunks) == 24
    assert any(chunk.choices[0].text == "" for chunk in chunks[:-1])


def test_the_tokenizer_is_told(server):
    info = json.loads(server.request("GET", "/tokenizer_info")[2])
    assert "<|im_start|>" in info["chat_template"]
    assert (info["bos_token"], info["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    for name in ("bos_token", "eos_token", "pad_token"):
        assert server.post("/tokenize", {"prompt": info[name], "add_special_tokens": False})[1]["count"] == 1


def test_models(client):
    models = client.models.list()
    assert [model.id for model in models] == [MODEL_NAME]
    card = client.models.retrieve(MODEL_NAME).to_dict()
    assert card["object"] == "model"
    assert card["max_model_len"] > 0 and card["kv_cache_tokens"]["gpu"] > 0 and card["strategy"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_model_with_several_names(start_server):
    server = start_server("--served-model-name", "alias", "org/name")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)
    names = [MODEL_NAME, "alias", "org/name"]
    cards = list(client.models.list())
    assert [(card.id, card.root) for card in cards] == [(name, MODEL_NAME) for name in names]
    for name in names:
        assert client.models.retrieve(name).id == name
        assert complete(client, model=name).model == MODEL_NAME
        assert chat(client, model=name).model == MODEL_NAME
        assert client.responses.create(model=name, input="Hi", max_output_tokens=1).model == MODEL_NAME
        assert client.embeddings.create(model=name, input="Hi").model == MODEL_NAME
        message = {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
        assert server.post("/v1/messages", message)[1]["model"] == MODEL_NAME
        for path, body in (("/v1/messages/count_tokens", message), ("/tokenize", {"model": name, "prompt": "Hi"}),
                           ("/detokenize", {"model": name, "tokens": [1]})):
            assert server.post(path, body)[0] == 200, path
    for wrong in ("Alias", "name", "test-model,alias"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(wrong)
        with pytest.raises(openai.NotFoundError):
            complete(client, model=wrong)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=wrong, input="Hi")
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model=wrong, input="Hi")
        for path in ("/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize"):
            assert server.post(path, {**message, "model": wrong})[0] == 404, path


def test_completion(client):
    answer = complete(client)
    assert answer.object == "text_completion"
    assert answer.model == MODEL_NAME
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text != ""
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert complete(client).choices[0].text == answer.choices[0].text


def test_completion_stream_equals_plain(client):
    plain = complete(client, max_tokens=24)
    chunks = list(complete(client, max_tokens=24, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_include_usage(client):
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_continuous_usage(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    # Bytes that are no text yet give tokens without text.
    chunks = list(complete(client, prompt="🤗 🦙 🤗 🦙 🤗", max_tokens=24, stream=True, stream_options=options))
    assert [chunk.usage.completion_tokens for chunk in chunks] == [*range(1, 25), 24]
    assert all(chunk.usage.prompt_tokens == chunks[-1].usage.prompt_tokens for chunk in chunks)


def test_chat(client):
    answer = chat(client)
    message = answer.choices[0].message
    assert answer.object == "chat.completion"
    assert message.role == "assistant"
    assert message.content
    assert answer.usage.completion_tokens <= 8


def test_chat_stream_equals_plain(client):
    plain = chat(client, max_completion_tokens=24)
    chunks = list(chat(client, max_completion_tokens=24, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    for usage in (plain.usage, chunks[-1].usage):
        usage.prompt_tokens_details = None  # the second finds what the first has computed
    assert chunks[-1].usage == plain.usage


def test_chat_content_parts_and_system(client):
    parts = [{"role": "system", "content": "Be brief."},
             {"role": "user", "content": [{"type": "text", "text": "Say hello in one short sentence."}]}]
    text = [{"role": "system", "content": "Be brief."}, MESSAGES[0]]
    assert chat(client, messages=parts).choices[0].message.content == \
        chat(client, messages=text).choices[0].message.content


def test_chat_runs_to_the_end_of_the_answer(client):
    answer = chat(client, max_completion_tokens=200)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|" not in answer.choices[0].message.content


def test_completion_logprobs(client):
    answer = complete(client, logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 8
    assert "".join(logprobs.tokens) == answer.choices[0].text
    for own, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
        assert own <= 0
        assert 3 <= len(top) <= 4
        assert max(top.values()) == pytest.approx(own, abs=1e-5)  # greedy
        assert sum(math.exp(value) for value in top.values()) <= 1 + 1e-3
    assert complete(client, logprobs=0).choices[0].logprobs.top_logprobs[0].keys() == {logprobs.tokens[0]}


def test_completion_logprobs_stream_equals_plain(client):
    plain = complete(client, logprobs=2).choices[0].logprobs
    chunks = [chunk.choices[0].logprobs for chunk in complete(client, logprobs=2, stream=True)]
    streamed = [chunk for chunk in chunks if chunk is not None]
    assert sum((chunk.tokens for chunk in streamed), []) == plain.tokens
    assert sum((chunk.text_offset for chunk in streamed), []) == plain.text_offset


def test_chat_logprobs(client):
    answer = chat(client, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    shown = b"".join(bytes(token.bytes) for token in content).decode()
    assert shown == answer.choices[0].message.content
    for token in content:
        assert len(token.top_logprobs) == 4
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-5)
    without_top = chat(client, logprobs=True).choices[0].logprobs.content
    assert without_top[0].top_logprobs == []
    assert without_top[0].logprob == pytest.approx(content[0].logprob, abs=1e-4)


def test_stop_strings(client):
    whole = complete(client, max_tokens=24).choices[0].text
    stop = whole[6:9]
    cut = complete(client, max_tokens=24, stop=stop)
    assert cut.choices[0].text == whole[:whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    streamed = "".join(chunk.choices[0].text for chunk in complete(client, max_tokens=24, stop=[stop], stream=True))
    assert streamed == cut.choices[0].text
    included = complete(client, max_tokens=24, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert included.choices[0].text == cut.choices[0].text + stop


def test_stop_token_ids(client, server):
    logprobs = complete(client, logprobs=0).choices[0].logprobs
    _, tokens = server.post("/tokenize", {"prompt": logprobs.tokens[2], "add_special_tokens": False})
    if len(tokens["tokens"]) != 1:
        pytest.skip("the token does not tokenize to itself")
    cut = complete(client, extra_body={"stop_token_ids": tokens["tokens"]})
    first = logprobs.tokens.index(logprobs.tokens[2])
    assert cut.choices[0].text == "".join(logprobs.tokens[:first])
    assert cut.choices[0].finish_reason == "stop"


def test_n_with_seed(client):
    fields = {"temperature": 1.0, "seed": 7, "n": 3, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    answer = complete(client, **fields)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) > 1
    assert [choice.text for choice in complete(client, **fields).choices] == texts
    single = complete(client, **{**fields, "seed": 8, "n": 1})
    assert single.choices[0].text == texts[1]
    assert answer.usage.completion_tokens == 36


def test_n_streamed(client):
    texts = ["", ""]
    for chunk in complete(client, n=2, stream=True, temperature=1.0, seed=3):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    plain = complete(client, n=2, temperature=1.0, seed=3)
    assert texts == [choice.text for choice in plain.choices]
    roles = [chunk.choices[0].index for chunk in chat(client, n=2, stream=True)
             if chunk.choices and chunk.choices[0].delta.role]
    assert sorted(roles) == [0, 1]


def test_echo(client):
    answer = complete(client, echo=True)
    assert answer.choices[0].text.startswith(PROMPT)
    streamed = "".join(chunk.choices[0].text for chunk in complete(client, echo=True, stream=True))
    assert streamed == answer.choices[0].text


def test_echo_scores_the_prompt(client):
    answer = complete(client, echo=True, logprobs=1, max_tokens=0)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == PROMPT
    assert answer.usage.completion_tokens == 0
    assert len(logprobs.tokens) == answer.usage.prompt_tokens
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    with_output = complete(client, echo=True, logprobs=1).choices[0].logprobs
    assert with_output.token_logprobs[1:len(logprobs.tokens)] == pytest.approx(logprobs.token_logprobs[1:], abs=1e-2)


def test_prompts_as_tokens_and_lists(client, server):
    _, tokens = server.post("/tokenize", {"prompt": PROMPT})
    by_text = complete(client).choices[0].text
    assert complete(client, prompt=tokens["tokens"]).choices[0].text == by_text
    both = complete(client, prompt=[PROMPT, "1 2 3 4"], n=2, temperature=0)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.choices[0].text == both.choices[1].text == by_text
    assert both.choices[2].text == both.choices[3].text
    lists = complete(client, prompt=[tokens["tokens"], tokens["tokens"]])
    assert [choice.text for choice in lists.choices] == [by_text, by_text]


def test_logit_bias_and_penalties(client, server):
    _, tokens = server.post("/tokenize", {"prompt": " zebra", "add_special_tokens": False})
    forced = complete(client, logit_bias={str(tokens["tokens"][0]): 100}, max_tokens=3)
    _, first = server.post("/detokenize", {"tokens": [tokens["tokens"][0]] * 3})
    assert forced.choices[0].text == first["prompt"]
    penalized = complete(client, max_tokens=24, frequency_penalty=2.0, presence_penalty=2.0)
    assert penalized.choices[0].text != complete(client, max_tokens=24).choices[0].text


def test_min_tokens_and_ignore_eos(client):
    short = chat(client, max_completion_tokens=120)
    longer = chat(client, max_completion_tokens=120, extra_body={"ignore_eos": True})
    assert short.usage.completion_tokens < 120
    assert longer.usage.completion_tokens == 120
    at_least = chat(client, max_completion_tokens=120,
                    extra_body={"min_tokens": short.usage.completion_tokens + 5})
    assert at_least.usage.completion_tokens >= short.usage.completion_tokens + 5


def test_other_parameters_are_taken(client):
    answer = complete(client, top_p=0.9, temperature=0.8, seed=1, user="me", best_of=1,
                      extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "unknown": 1})
    assert answer.choices[0].text


def test_chat_template_options(client, server):
    prefilled = [*MESSAGES, {"role": "assistant", "content": "Hello, my"}]
    answer = chat(client, messages=prefilled,
                  extra_body={"continue_final_message": True, "add_generation_prompt": False})
    assert answer.choices[0].message.content
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    assert chat(client, tools=tools, tool_choice="none").choices[0].message.content
    _, with_prompt = server.post("/tokenize", {"messages": MESSAGES})
    _, without = server.post("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False})
    assert with_prompt["tokens"][:without["count"]] == without["tokens"]
    assert with_prompt["count"] > without["count"]
    assert chat(client).usage.prompt_tokens == with_prompt["count"]


def test_service_tier(client):
    assert chat(client).service_tier is None
    assert chat(client, service_tier="auto").service_tier == "default"
    assert chat(client, service_tier="priority").service_tier == "default"
    flexible = chat(client, service_tier="flex")
    assert flexible.service_tier == "flex"
    assert flexible.choices[0].message.content == chat(client).choices[0].message.content
    chunks = list(chat(client, service_tier="flex", stream=True, stream_options={"include_usage": True}))
    assert {chunk.service_tier for chunk in chunks} == {"flex"}
    completion = complete(client, extra_body={"service_tier": "flex"})
    assert completion.model_extra["service_tier"] == "flex"
    with pytest.raises(openai.BadRequestError) as unknown:
        chat(client, service_tier="gold")
    assert unknown.value.param == "service_tier"


def test_tokenize_round_trip(server):
    text = "Grüße, 世界 🙂!"
    status, tokens = server.post("/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True})
    assert status == 200
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert tokens["max_model_len"] == 1024
    assert server.post("/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": text})


def test_typed_errors(client):
    with pytest.raises(openai.NotFoundError) as missing:
        complete(client, model="other")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        complete(client, temperature=7)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as too_long:
        complete(client, prompt="word " * 3000)
    assert too_long.value.code == "context_length_exceeded"
    assert "1024" in too_long.value.message
    assert "3000" in too_long.value.message or "3001" in too_long.value.message
    with pytest.raises(openai.BadRequestError) as too_much:
        chat(client, max_completion_tokens=5000)
    assert too_much.value.code == "context_length_exceeded"
    assert too_much.value.param == "max_completion_tokens"
    with pytest.raises(openai.BadRequestError) as image:
        chat(client, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}])
    assert image.value.param == "messages[0].content[0].type"


def test_closing_a_stream_early(client, server):
    stream = complete(client, stream=True, max_tokens=900, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    server.wait_idle(timeout=20)


def test_metrics_have_vllm_names(client, server):
    before = server.wait_idle()
    complete(client)
    after = server.wait_idle()
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 8
    assert after["vllm:time_to_first_token_seconds_count"] == before["vllm:time_to_first_token_seconds_count"] + 1
    assert after["vllm:e2e_request_latency_seconds_count"] == before["vllm:e2e_request_latency_seconds_count"] + 1
    inter_token = "vllm:inter_token_latency_seconds_count"
    assert after[inter_token] == before[inter_token] + 7
    assert after["vllm:request_success_total"] == before["vllm:request_success_total"] + 1
    assert after["vllm:kv_cache_usage_perc"] == 0
    names = ("vllm:num_requests_waiting", "vllm:num_preemptions_total", "vllm:prompt_tokens_total",
             "vllm:cache_config_info", "tandem:kv_blocks_free", "tandem:iterations_total", "tandem:cpu_tier_tokens_total")
    assert all(name in after for name in names)
    assert after["tandem:strategy_iterations_total"] == after["tandem:iterations_total"]
    assert any(f'model_name="{MODEL_NAME}"' in name for name in after)
