"""Agents: text, streamed text, tools in a loop, typed answers, leaving a stream, errors."""
import asyncio
import sys

sys.path.pop(0)
import pydantic
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

url, model, _, _, by_heart_url = sys.argv[1:6]
chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="unused"))
settings = {"max_tokens": 64, "temperature": 0, "parallel_tool_calls": False}

whole = Agent(chat, model_settings=settings).run_sync("Say hello.").output
assert whole


async def streamed():
    async with Agent(chat, model_settings=settings).run_stream("Say hello.") as result:
        return await result.get_output()


assert asyncio.run(streamed()) == whole


class Answer(pydantic.BaseModel):
    sure: bool


# The answer is a call of a tool that the model has to make.
assert isinstance(Agent(chat, output_type=Answer, model_settings=settings).run_sync("Are you sure?").output, Answer)


async def call_a_tool():
    asked: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("What is the weather in Paris?")])]
    weather = ToolDefinition(name="get_weather", description="The weather in a city.", parameters_json_schema={
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]})
    answer = await chat.request(asked, settings, ModelRequestParameters(
        function_tools=[weather], allow_text_output=False))
    return [part for part in answer.parts if part.part_kind == "tool-call"]


calls = asyncio.run(call_a_tool())
assert calls and calls[0].tool_name == "get_weather" and "city" in calls[0].args_as_dict()

# A model that knows when to call.
by_heart = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{by_heart_url}/v1", api_key="unused"))
cities = []
agent = Agent(by_heart)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather in a city."""
    cities.append(city)
    return "18 degrees"


assert agent.run_sync("What is the weather in Paris, then in Rome?").output == "It is 18 degrees in both."
assert agent.run_sync("What is the weather in Paris and in Rome?").output == "It is 18 degrees in Paris and in Rome."
assert cities == ["Paris", "Rome"] * 2


class Sure(pydantic.BaseModel):
    sure: bool
    city: str


for kind in (Sure, NativeOutput(Sure)):  # by a tool, and by a schema
    assert Agent(by_heart, output_type=kind).run_sync("Are you sure?").output == Sure(sure=True, city="Paris")


async def leave():
    async with Agent(by_heart).run_stream("Go on for ever.") as result:
        async for _ in result.stream_text(delta=True):
            break


asyncio.run(leave())

another = OpenAIChatModel("another", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="unused"))
try:
    Agent(another).run_sync("Say hello.")
except ModelHTTPError as error:
    assert error.status_code == 404
else:
    raise AssertionError("there is no such model")
