"""The official library: messages, streams, tools in a loop, leaving a stream, errors as its exceptions."""
import sys

sys.path.pop(0)
import anthropic

url, model, _, _, by_heart_url = sys.argv[1:6]
client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
# Its methods have no name for the temperature.
fields = {"model": model, "max_tokens": 64, "system": "Be brief.", "extra_body": {"temperature": 0}}
hello = [{"role": "user", "content": "Say hello."}]

whole = client.messages.create(messages=hello, **fields)
assert whole.type == "message" and whole.role == "assistant" and whole.stop_reason in ("end_turn", "max_tokens")
text = "".join(block.text for block in whole.content if block.type == "text")
assert text and whole.usage.input_tokens > 0 and whole.usage.output_tokens > 0
with client.messages.stream(messages=hello, **fields) as stream:
    assert "".join(stream.text_stream) == text
    last = stream.get_final_message()
assert last.stop_reason == whole.stop_reason and last.usage.output_tokens == whole.usage.output_tokens

# One character that the answer has ends it.
mark = text[len(text) // 2]
stopped = client.messages.create(messages=hello, stop_sequences=[mark], **fields)
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == mark

tools = [{"name": "get_weather", "description": "The weather in a city.",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                           "required": ["city"], "additionalProperties": False}}]
messages = [{"role": "user", "content": "What is the weather in Paris?"}]
for streamed in (False, True):
    asked = {"messages": messages, "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
             **fields}
    if streamed:
        with client.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**asked)
    uses = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and uses
    assert all(use.name == "get_weather" and use.input["city"] in ("Paris", "Rome") for use in uses)
    messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": use.id, "content": "18 degrees"} for use in uses]})
told = client.messages.create(messages=messages, tools=tools, tool_choice={"type": "none"}, **fields)
assert any(block.type == "text" and block.text for block in told.content)

# A model that knows when to call.
by_heart = anthropic.Anthropic(base_url=by_heart_url, api_key="unused", max_retries=0)
for streamed in (False, True):
    messages, asked_for = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}], []
    while True:
        asked = {"model": model, "max_tokens": 200, "messages": messages, "tools": tools}
        if streamed:
            with by_heart.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = by_heart.messages.create(**asked)
        uses = [block for block in answer.content if block.type == "tool_use"]
        assert answer.stop_reason == ("tool_use" if uses else "end_turn")
        if not uses:
            break
        asked_for.append([use.input["city"] for use in uses])
        messages += [{"role": "assistant", "content": [block.to_dict() for block in answer.content]},
                     {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": use.id, "content": "18 degrees"} for use in uses]}]
    assert asked_for == [["Paris", "Rome"]] and answer.content[0].text == "It is 18 degrees in Paris and in Rome."
legs = by_heart.messages.create(model=model, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024},
                                messages=[{"role": "user", "content": "How many legs have two cats?"}])
assert [block.type for block in legs.content] == ["thinking", "text"] and legs.content[1].text == "Eight legs."

assert client.messages.count_tokens(messages=hello, model=model).input_tokens > 0

# Who leaves a stream has the server stop.
with by_heart.messages.stream(messages=[{"role": "user", "content": "Go on for ever."}], model=model,
                              max_tokens=5000) as stream:
    next(iter(stream))

for error, wrong in ((anthropic.BadRequestError, {"max_tokens": -1}), (anthropic.NotFoundError, {"model": "another"}),
                     (anthropic.BadRequestError, {"messages": [{"role": "user", "content": "word " * 5000}]})):
    try:
        client.messages.create(**{"messages": hello, **fields, **wrong})
    except error as found:
        assert found.body["type"] == "error" and found.body["error"]["message"]
    else:
        raise AssertionError(f"no {error.__name__} for {list(wrong)}")
