"""A chat."""
import sys

sys.path.pop(0)
from smolagents import OpenAIServerModel

url, model = sys.argv[1:3]
chat = OpenAIServerModel(model_id=model, api_base=f"{url}/v1", api_key="unused", max_tokens=8)
assert chat([{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]).content
