"""Agents: text, streamed text, a tool, and a typed answer."""
import asyncio
import sys

sys.path.pop(0)
import pydantic
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

url, model = sys.argv[1:3]
chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="unused"))
settings = {"max_tokens": 64, "temperature": 0}

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
