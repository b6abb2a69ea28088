"""A chat, plain and streamed; an agent that calls a tool and then the one that ends it; a schema; errors."""
import json
import sys

sys.path.pop(0)
import openai
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

url, model, _, _, by_heart_url = sys.argv[1:6]
hello = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
chat = OpenAIServerModel(model_id=model, api_base=f"{url}/v1", api_key="unused", max_tokens=8, temperature=0)
whole = chat(hello).content
assert whole and "".join(delta.content or "" for delta in chat.generate_stream(hello)) == whole

cities = []


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city.
    """
    cities.append(city)
    return "18 degrees"


by_heart = OpenAIServerModel(model_id=model, api_base=f"{by_heart_url}/v1", api_key="unused")
for streamed in (False, True):
    agent = ToolCallingAgent(tools=[get_weather], model=by_heart, max_steps=3, stream_outputs=streamed, verbosity_level=0)
    assert agent.run("What is the weather in Paris?") == "18 degrees"
assert cities == ["Paris", "Paris"]
schema = {"type": "object", "properties": {"sure": {"type": "boolean"}, "city": {"type": "string"}},
          "required": ["sure", "city"], "additionalProperties": False}
answer = by_heart([{"role": "user", "content": "Are you sure?"}], response_format={
    "type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
assert json.loads(answer.content) == {"sure": True, "city": "Paris"}

stream = by_heart.generate_stream([{"role": "user", "content": "Go on for ever."}])
next(stream)
stream.close()

try:
    OpenAIServerModel(model_id="another", api_base=f"{url}/v1", api_key="unused")(hello)
except openai.NotFoundError:
    pass
else:
    raise AssertionError("there is no such model")
