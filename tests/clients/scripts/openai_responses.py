"""The official library's Responses: text, stream, tools in a loop, a schema, leaving a stream, errors."""
import json
import sys

sys.path.pop(0)
import openai
import pydantic

url, model, _, _, by_heart_url = sys.argv[1:6]
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
answer = client.responses.create(input=turns, tools=tools, tool_choice="required", parallel_tool_calls=False,
                                 store=False, **fields)
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

# A model that knows when to call; once with the whole input, once going on from the stored response.
by_heart = openai.OpenAI(base_url=f"{by_heart_url}/v1", api_key="unused", max_retries=0)
question = [{"role": "user", "content": "What is the weather in Paris, then in Rome?"}]
for stored in (False, True):
    turns, asked_for, before = list(question), [], {}
    while True:
        with by_heart.responses.stream(model=model, input=turns, tools=tools, store=stored, **before) as stream:
            answer = stream.get_final_response()
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        asked_for += [json.loads(call.arguments)["city"] for call in calls]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"} for call in calls]
        if stored:
            before, turns = {"previous_response_id": answer.id}, results
        else:
            # Without what the library's parser adds, which its own input types lack.
            turns += [item.to_dict(exclude_unset=True) for item in answer.output]
            for item in turns:
                item.pop("parsed_arguments", None)
            turns += results
    assert asked_for == ["Paris", "Rome"] and answer.output_text == "It is 18 degrees in both."
legs = by_heart.responses.create(model=model, input="How many legs have two cats?", reasoning={"summary": "auto"})
assert [item.type for item in legs.output] == ["reasoning", "message"]
assert legs.output[0].summary[0].text == "Two cats of four legs each: eight." and legs.output_text == "Eight legs."

# Who leaves a stream has the server stop.
with client.responses.create(input="Say hello.", model=model, stream=True, store=False,
                             extra_body={"ignore_eos": True}) as stream:
    assert next(iter(stream)).type == "response.created"

for error, wrong in ((openai.BadRequestError, {"temperature": 7}), (openai.NotFoundError, {"model": "another"})):
    try:
        client.responses.create(**{"input": "Hi", **fields, **wrong})
    except error as found:
        assert found.message
    else:
        raise AssertionError(f"no {error.__name__} for {list(wrong)}")
