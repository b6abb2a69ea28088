"""Agents: text, streamed text, tools in a loop, typed answers, leaving a stream, errors."""
import asyncio
import sys

sys.path.pop(0)
import pydantic
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

url, model, _, _, by_heart_url = sys.argv[1:6]
settings = {"max_tokens": 64, "temperature": 0, "parallel_tool_calls": False}
real = OpenAIProvider(base_url=f"{url}/v1", api_key="unused")
knowing = OpenAIProvider(base_url=f"{by_heart_url}/v1", api_key="unused")


class Answer(pydantic.BaseModel):
    sure: bool


class Sure(pydantic.BaseModel):
    sure: bool
    city: str


async def text_and_a_typed_answer():
    chat = OpenAIChatModel(model, provider=real)
    whole = (await Agent(chat, model_settings=settings).run("Say hello.")).output
    async with Agent(chat, model_settings=settings).run_stream("Say hello.") as result:
        assert whole and await result.get_output() == whole
    # The answer is a call of a tool that the model has to make.
    answer = await Agent(chat, output_type=Answer, model_settings=settings).run("Are you sure?")
    assert isinstance(answer.output, Answer)


async def agents(chat):
    """With a model that knows when to call."""
    cities = []
    agent = Agent(chat)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "18 degrees"

    assert (await agent.run("What is the weather in Paris, then in Rome?")).output == "It is 18 degrees in both."
    async with agent.run_stream("What is the weather in Paris and in Rome?") as result:
        # It takes text before a call for the answer.
        assert (await result.get_output()).startswith("I shall look at both.")
    assert (await agent.run("What is the weather in Paris and in Rome?")).output == \
        "It is 18 degrees in Paris and in Rome."
    assert cities[:2] == ["Paris", "Rome"] and sorted(cities[-2:]) == ["Paris", "Rome"]  # two at once
    for kind in (Sure, NativeOutput(Sure)):  # by a tool, and by a schema
        assert (await Agent(chat, output_type=kind).run("Are you sure?")).output == Sure(sure=True, city="Paris")
    async with Agent(chat).run_stream("Go on for ever.") as result:
        async for _ in result.stream_text(delta=True):
            break


async def errors():
    try:
        await Agent(OpenAIChatModel("another", provider=real)).run("Say hello.")
    except ModelHTTPError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("there is no such model")


async def main():
    await text_and_a_typed_answer()
    await agents(OpenAIChatModel(model, provider=knowing))
    await agents(OpenAIResponsesModel(model, provider=knowing))
    await errors()


asyncio.run(main())
