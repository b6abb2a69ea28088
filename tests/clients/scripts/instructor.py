"""A chat without a schema; schemas as tools and as formats; partial answers of a stream; errors."""
import sys

sys.path.pop(0)
import instructor
import openai
import pydantic

url, model, _, _, by_heart_url = sys.argv[1:6]
hello = [{"role": "user", "content": "Say hello."}]
client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="unused"))
answer = client.chat.completions.create(model=model, messages=hello, response_model=None, max_tokens=8, temperature=0)
assert answer.choices[0].message.content


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


sure = [{"role": "user", "content": "Are you sure?"}]
for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):
    by_heart = instructor.from_openai(openai.OpenAI(base_url=f"{by_heart_url}/v1", api_key="unused"), mode=mode)
    found = by_heart.chat.completions.create(model=model, messages=sure, response_model=Answer, max_retries=0)
    assert isinstance(found, Answer) and found.model_dump() == {"sure": True, "city": "Paris"}, (mode, found)
*_, last = by_heart.chat.completions.create_partial(model=model, messages=sure, response_model=Answer)
assert last.sure is True and last.city == "Paris"

try:
    client.chat.completions.create(model="another", messages=hello, response_model=None)
except openai.NotFoundError:
    pass
else:
    raise AssertionError("there is no such model")
