"""Agents with a tool, which they have to call and which they call by themselves, by chat completions and by responses."""
import asyncio
import sys
from typing import Literal

sys.path.pop(0)
import openai
import pydantic
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)

url, model, _, _, by_heart_url = sys.argv[1:6]
set_tracing_disabled(True)
asked_for = []


@function_tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    asked_for.append(city)
    return "18 degrees"


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


async def main():
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        asked_for.clear()
        # The choice is "required" for the first turn only: reset_tool_choice is the agents' default.
        agent = Agent(name="weather", instructions="Be brief.", tools=[get_weather],
                      model=kind(model=model, openai_client=client),
                      model_settings=ModelSettings(temperature=0, max_tokens=64, tool_choice="required",
                                                   parallel_tool_calls=False))
        result = await Runner.run(agent, "What is the weather in Paris?", max_turns=2)
        assert asked_for and result.final_output
        streamed = Runner.run_streamed(agent, "What is the weather in Paris?", max_turns=2)
        assert [event async for event in streamed.stream_events()] and streamed.final_output

    by_heart = openai.AsyncOpenAI(base_url=f"{by_heart_url}/v1", api_key="unused", max_retries=0)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        asked_for.clear()
        agent = Agent(name="weather", tools=[get_weather], model=kind(model=model, openai_client=by_heart))
        result = await Runner.run(agent, "What is the weather in Paris, then in Rome?")
        assert asked_for == ["Paris", "Rome"] and result.final_output == "It is 18 degrees in both."
        streamed = Runner.run_streamed(agent, "What is the weather in Paris and in Rome?")
        assert [event async for event in streamed.stream_events()]
        assert asked_for == ["Paris", "Rome"] * 2
        assert streamed.final_output == "It is 18 degrees in Paris and in Rome."
        sure = Agent(name="sure", output_type=Answer, model=kind(model=model, openai_client=by_heart))
        assert (await Runner.run(sure, "Are you sure?")).final_output == Answer(sure=True, city="Paris")
        # Who leaves a stream has the server stop.
        endless = Runner.run_streamed(Agent(name="endless", model=kind(model=model, openai_client=by_heart)),
                                      "Go on for ever.")
        async for event in endless.stream_events():
            if event.type == "raw_response_event":
                break
        endless.cancel()
        another = Agent(name="another", model=kind(model="another", openai_client=by_heart))
        try:
            await Runner.run(another, "Say hello.")
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("there is no such model")


asyncio.run(main())
