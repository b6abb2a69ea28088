"""Chat, plain and streamed, and answers by a schema and a regular expression, through both of its backends; errors."""
import json
import sys

sys.path.pop(0)
import openai
import outlines
import outlines.exceptions
import pydantic

url, model, _, _, by_heart_url = sys.argv[1:6]


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
by_heart = openai.OpenAI(base_url=f"{by_heart_url}/v1", api_key="unused")
for make in (outlines.from_openai, outlines.from_vllm):
    whole = make(client, model)("Say hello.", max_tokens=8, temperature=0)
    assert whole and "".join(make(client, model).stream("Say hello.", max_tokens=8, temperature=0)) == whole
    assert json.loads(make(by_heart, model)("Are you sure?", Answer)) == {"sure": True, "city": "Paris"}
assert outlines.from_vllm(client, model)("Say yes.", outlines.types.regex("yes|no"), max_tokens=8) in ("yes", "no")
try:
    outlines.from_vllm(client, "another")("Say hello.")
except (openai.NotFoundError, outlines.exceptions.NotFoundError):
    pass
else:
    raise AssertionError("there is no such model")
