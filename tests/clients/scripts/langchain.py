"""Chat, plain and streamed, and a completion."""
import sys

sys.path.pop(0)
from langchain_openai import ChatOpenAI, OpenAI

url, model = sys.argv[1:3]
fields = {"model": model, "base_url": f"{url}/v1", "api_key": "unused", "max_tokens": 8, "temperature": 0}
chat = ChatOpenAI(**fields)
whole = chat.invoke("Say hello.").content
assert whole and "".join(chunk.content for chunk in chat.stream("Say hello.")) == whole
assert OpenAI(**fields).invoke("Hello")
