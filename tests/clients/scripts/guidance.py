"""A chat with a gap to fill."""
import sys

sys.path.pop(0)
from guidance import assistant, gen, models, user

url, model = sys.argv[1:3]
chat = models.OpenAI(model, base_url=f"{url}/v1", api_key="unused")
with user():
    chat += "Say hello."
with assistant():
    chat += gen("answer", max_tokens=8)
assert chat["answer"]
