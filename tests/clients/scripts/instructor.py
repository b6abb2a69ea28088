"""A chat without a schema."""
import sys

sys.path.pop(0)
import instructor
import openai

url, model = sys.argv[1:3]
client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="unused"))
answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Say hello."}],
                                        response_model=None, max_tokens=8, temperature=0)
assert answer.choices[0].message.content
