"""Chat, plain and streamed; tools in a loop; a schema; leaving a stream; errors as its exceptions."""
import json
import sys

sys.path.pop(0)  # this folder has a file of the library's name
import litellm
import pydantic

url, model, _, _, by_heart_url = sys.argv[1:6]
fields = {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "unused", "max_tokens": 8, "temperature": 0,
          "messages": [{"role": "user", "content": "Say hello."}]}
whole = litellm.completion(**fields).choices[0].message.content
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**fields, stream=True))
assert whole and streamed == whole, (streamed, whole)

tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
by_heart = {"api_base": f"{by_heart_url}/v1", "api_key": "unused"}
for name in (f"openai/{model}", f"hosted_vllm/{model}"):
    for stream in (False, True):
        messages, cities = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}], []
        while True:
            answer = litellm.completion(model=name, messages=messages, tools=tools, stream=stream, **by_heart)
            if stream:
                answer = litellm.stream_chunk_builder(list(answer), messages=messages)
            choice = answer.choices[0]
            if not choice.message.tool_calls:
                break
            assert choice.finish_reason == "tool_calls"
            messages.append(choice.message.model_dump())
            for call in choice.message.tool_calls:
                cities.append(json.loads(call.function.arguments)["city"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
        assert cities == ["Paris", "Rome"] and choice.message.content == "It is 18 degrees in Paris and in Rome."


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


answer = litellm.completion(model=f"openai/{model}", response_format=Answer, **by_heart,
                            messages=[{"role": "user", "content": "Are you sure?"}])
assert Answer.model_validate_json(answer.choices[0].message.content) == Answer(sure=True, city="Paris")
# The Messages API, too.
answer = litellm.completion(model=f"anthropic/{model}", api_base=by_heart_url, api_key="unused",
                            messages=[{"role": "user", "content": "Say hello."}])
assert answer.choices[0].message.content == "Hello! It is good to meet you."

stream = litellm.completion(model=f"openai/{model}", stream=True, **by_heart,
                            messages=[{"role": "user", "content": "Go on for ever."}])
next(stream)
stream.completion_stream.response.close()

for error, wrong in ((litellm.NotFoundError, {"model": "openai/another"}),
                     (litellm.BadRequestError, {"temperature": 7}),
                     (litellm.ContextWindowExceededError, {"messages": [{"role": "user", "content": "word " * 5000}]})):
    try:
        litellm.completion(**{**fields, **wrong})
    except error:
        pass
    else:
        raise AssertionError(f"no {error.__name__}")
