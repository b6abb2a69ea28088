"""Chat, plain and streamed, and a tool."""
import sys
from typing import Literal

sys.path.pop(0)
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

url, model = sys.argv[1:3]
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
assert chat.bind_tools([get_weather], tool_choice="none").invoke(messages).text
