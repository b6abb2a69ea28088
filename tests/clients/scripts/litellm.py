"""Chat, plain and streamed."""
import sys

sys.path.pop(0)  # this folder has a file of the library's name
import litellm

url, model = sys.argv[1:3]
fields = {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "unused", "max_tokens": 8, "temperature": 0,
          "messages": [{"role": "user", "content": "Say hello."}]}
whole = litellm.completion(**fields).choices[0].message.content
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**fields, stream=True))
assert whole and streamed == whole, (streamed, whole)
