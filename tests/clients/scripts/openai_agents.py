"""An agent that has to call a tool and then tells the answer, by chat completions and by responses."""
import asyncio
import sys
from typing import Literal

sys.path.pop(0)
import openai
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)

url, model, *_ = sys.argv[1:]
set_tracing_disabled(True)
asked_for = []


@function_tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    asked_for.append(city)
    return "18 degrees"


async def main():
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        asked_for.clear()
        # The choice is "required" for the first turn only: reset_tool_choice is the agents' default.
        agent = Agent(name="weather", instructions="Be brief.", tools=[get_weather],
                      model=kind(model=model, openai_client=client),
                      model_settings=ModelSettings(temperature=0, max_tokens=64, tool_choice="required"))
        result = await Runner.run(agent, "What is the weather in Paris?", max_turns=2)
        assert asked_for and result.final_output
        streamed = Runner.run_streamed(agent, "What is the weather in Paris?", max_turns=2)
        assert [event async for event in streamed.stream_events()] and streamed.final_output


asyncio.run(main())
