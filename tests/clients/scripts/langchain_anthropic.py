"""Chat, plain and streamed; tools in a loop; a schema; leaving a stream; errors."""
import sys
from typing import Literal

sys.path.pop(0)
import anthropic
import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

url, model, _, _, by_heart_url = sys.argv[1:6]
chat = ChatAnthropic(model=model, base_url=url, api_key="unused", max_tokens=64, temperature=0, max_retries=0)
whole = chat.invoke("Say hello.").text
assert whole and "".join(chunk.text for chunk in chat.stream("Say hello.")) == whole


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    return f"18 degrees in {city}"


messages = [HumanMessage("What is the weather in Paris?")]
answer = chat.bind_tools([get_weather], tool_choice="get_weather").invoke(messages)
assert answer.tool_calls and all(call["name"] == "get_weather" for call in answer.tool_calls)
messages.append(answer)
messages += [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
assert chat.bind_tools([get_weather], tool_choice={"type": "none"}).invoke(messages).text

# A model that knows when to call.
by_heart = ChatAnthropic(model=model, base_url=by_heart_url, api_key="unused", max_tokens=2000, max_retries=0)
agent = by_heart.bind_tools([get_weather])
messages = [HumanMessage("What is the weather in Paris, then in Rome?")]
cities = []
while (answer := agent.invoke(messages)).tool_calls:
    cities += [call["args"]["city"] for call in answer.tool_calls]
    messages.append(answer)
    messages += [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
assert cities == ["Paris", "Rome"] and answer.text == "It is 18 degrees in both."


class Answer(pydantic.BaseModel):
    """Whether one is sure, and of which city."""

    sure: bool
    city: str


for method in ("function_calling", "json_schema"):
    assert by_heart.with_structured_output(Answer, method=method).invoke("Are you sure?") == \
        Answer(sure=True, city="Paris")

stream = by_heart.stream("Go on for ever.")
next(stream)
stream.close()

try:
    ChatAnthropic(model="another", base_url=url, api_key="unused", max_retries=0).invoke("Say hello.")
except anthropic.NotFoundError:
    pass
else:
    raise AssertionError("there is no such model")
