"""Chat through both of its backends. A grammar is refused: prose instead of it would be worse."""
import sys

sys.path.pop(0)
import openai
import outlines
import outlines.exceptions

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
assert outlines.from_openai(client, model)("Say hello.", max_tokens=8)
vllm = outlines.from_vllm(client, model)
assert vllm("Say hello.", max_tokens=8)
try:
    vllm("Say yes.", outlines.types.regex("yes|no"), max_tokens=8)
except outlines.exceptions.BadRequestError as error:
    assert "structured_outputs is not supported" in str(error), error
else:
    raise AssertionError("structured_outputs was ignored")
