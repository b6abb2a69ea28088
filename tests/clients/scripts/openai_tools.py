"""The official library: tools in a loop, plain and streamed, and a schema."""
import json
import sys

sys.path.pop(0)
import openai
import pydantic

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
fields = {"model": model, "temperature": 0, "max_tokens": 64}

# Each call is answered, and the answer is told.
tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                   "required": ["city"], "additionalProperties": False}}}]
messages = [{"role": "user", "content": "What is the weather in Paris?"}]
for streamed in (False, True):
    if streamed:
        with client.chat.completions.stream(messages=messages, tools=tools, tool_choice="required",
                                            **fields) as stream:
            choice = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(messages=messages, tools=tools, tool_choice="required",
                                                **fields).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    messages.append({"role": "assistant", "content": choice.message.content, "tool_calls": [
        {"id": call.id, "type": "function",
         "function": {"name": call.function.name, "arguments": call.function.arguments}}
        for call in choice.message.tool_calls]})
    for call in choice.message.tool_calls:
        assert call.id and call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
last = client.chat.completions.create(messages=messages, tools=tools, tool_choice="none", **fields).choices[0]
assert last.message.content and not last.message.tool_calls


class Answer(pydantic.BaseModel):
    sure: bool
    city: str = pydantic.Field(json_schema_extra={"enum": ["Paris", "Rome"]})


parsed = client.chat.completions.parse(messages=messages[:1], response_format=Answer, **fields)
assert isinstance(parsed.choices[0].message.parsed, Answer)
