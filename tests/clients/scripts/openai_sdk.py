"""The official library: chat, streams, leaving one, errors as its exceptions."""
import sys

sys.path.pop(0)
import openai

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
fields = {"model": model, "temperature": 0, "max_tokens": 64}
hello = [{"role": "user", "content": "Say hello."}]

# Chat, plain and streamed. The first answer is behind a prompt that is computed whole, the others behind one that is
# cached, which bf16 rounds otherwise.
client.chat.completions.create(messages=hello, **fields)
whole = client.chat.completions.create(messages=hello, **fields)
assert whole.choices[0].message.content and whole.choices[0].finish_reason in ("stop", "length")
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
chunks = list(client.chat.completions.create(messages=hello, stream=True, stream_options={"include_usage": True},
                                             **fields))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == \
    whole.choices[0].message.content
assert chunks[-1].usage == whole.usage
with client.chat.completions.stream(messages=hello, **fields) as stream:
    assert stream.get_final_completion().choices[0].message.content == whole.choices[0].message.content

# Who leaves a stream has the server stop.
with client.chat.completions.create(messages=hello, stream=True, model=model, max_tokens=500,
                                    extra_body={"ignore_eos": True}) as stream:
    next(iter(stream))

# Errors.
for error, wrong in ((openai.BadRequestError, {"temperature": 7}), (openai.NotFoundError, {"model": "another"}),
                     (openai.BadRequestError, {"messages": [{"role": "user", "content": "word " * 5000}]})):
    try:
        client.chat.completions.create(**{"messages": hello, **fields, **wrong})
    except error as found:
        assert found.message and found.body["message"]
    else:
        raise AssertionError(f"no {error.__name__} for {list(wrong)}")
try:
    client.with_options(timeout=0.05).chat.completions.create(messages=hello, model=model, max_tokens=500)
except openai.APITimeoutError:
    pass
else:
    raise AssertionError("no answer of 500 tokens is there so soon")
