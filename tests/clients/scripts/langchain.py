"""Chat, plain and streamed; a completion; tools in a loop; schemas; leaving a stream; errors."""
import sys

sys.path.pop(0)
import openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

url, model, _, _, by_heart_url = sys.argv[1:6]
fields = {"model": model, "base_url": f"{url}/v1", "api_key": "unused", "max_tokens": 8, "temperature": 0}
chat = ChatOpenAI(**fields)
whole = chat.invoke("Say hello.").content
assert whole and "".join(chunk.content for chunk in chat.stream("Say hello.")) == whole
assert OpenAI(**fields).invoke("Hello")


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"18 degrees in {city}"


class Answer(pydantic.BaseModel):
    """Whether one is sure, and of which city."""

    sure: bool
    city: str


for responses in (False, True):
    by_heart = ChatOpenAI(model=model, base_url=f"{by_heart_url}/v1", api_key="unused", max_retries=0,
                          use_responses_api=responses)
    agent = by_heart.bind_tools([get_weather])
    messages, cities = [HumanMessage("What is the weather in Paris and in Rome?")], []
    while (answer := agent.invoke(messages)).tool_calls:
        cities += [call["args"]["city"] for call in answer.tool_calls]
        messages.append(answer)
        messages += [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
                     for call in answer.tool_calls]
    assert cities == ["Paris", "Rome"] and answer.text == "It is 18 degrees in Paris and in Rome."
    for method in ("function_calling", "json_schema"):
        assert by_heart.with_structured_output(Answer, method=method).invoke("Are you sure?") == \
            Answer(sure=True, city="Paris")
    stream = by_heart.stream("Go on for ever.")
    next(stream)
    stream.close()
    try:
        ChatOpenAI(**{**fields, "model": "another"}, use_responses_api=responses).invoke("Say hello.")
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("there is no such model")
