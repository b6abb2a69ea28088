"""The official library's Responses: text, stream, tools in a loop, a schema, errors."""
import json
import sys

sys.path.pop(0)
import openai
import pydantic

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
fields = {"model": model, "temperature": 0, "max_output_tokens": 64}

whole = client.responses.create(input="Say hello.", instructions="Be brief.", store=False, **fields)
assert whole.output_text and whole.status in ("completed", "incomplete")
assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
events = list(client.responses.create(input="Say hello.", instructions="Be brief.", store=False, stream=True,
                                      **fields))
assert events[0].type == "response.created"
assert events[-1].type in ("response.completed", "response.incomplete")
assert [event.sequence_number for event in events] == sorted({event.sequence_number for event in events})
assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
assert events[-1].response.output_text == whole.output_text

tools = [{"type": "function", "name": "get_weather", "description": "The weather in a city.", "strict": True,
          "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                         "required": ["city"], "additionalProperties": False}}]
turns = [{"role": "user", "content": "What is the weather in Paris?"}]
answer = client.responses.create(input=turns, tools=tools, tool_choice="required", store=False, **fields)
calls = [item for item in answer.output if item.type == "function_call"]
assert calls
for call in calls:
    assert call.name == "get_weather" and json.loads(call.arguments)["city"] in ("Paris", "Rome")
    turns.append({"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments})
    turns.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
assert client.responses.create(input=turns, tools=tools, tool_choice="none", store=False, **fields).output_text


class Answer(pydantic.BaseModel):
    sure: bool


parsed = client.responses.parse(input="Are you sure?", text_format=Answer, store=False, **fields)
assert isinstance(parsed.output_parsed, Answer)

for error, wrong in ((openai.BadRequestError, {"temperature": 7}), (openai.NotFoundError, {"model": "another"})):
    try:
        client.responses.create(**{"input": "Hi", **fields, **wrong})
    except error as found:
        assert found.message
    else:
        raise AssertionError(f"no {error.__name__} for {list(wrong)}")
