"""Chat and text."""
import sys

sys.path.pop(0)
import dspy

url, model = sys.argv[1:3]
fields = {"api_base": f"{url}/v1", "api_key": "unused", "max_tokens": 8, "temperature": 0}
assert dspy.LM(f"openai/{model}", **fields)("Say hello.")
assert dspy.LM(f"text-completion-openai/{model}", model_type="text", **fields)("Say hello.")
