"""Its command, which streams; a tool, a schema, an error."""
import json
import os
import pathlib
import subprocess
import sys

url, model, folder, _, by_heart_url = sys.argv[1:6]
pathlib.Path(folder, "extra-openai-models.yaml").write_text("".join(
    f"- model_id: {name}\n  model_name: {served}\n  api_base: {at}/v1\n  api_key_name: tandem\n"
    "  supports_tools: true\n  supports_schema: true\n"
    for name, served, at in (("real", model, url), ("by-heart", model, by_heart_url), ("missing", "another", url))))
program = pathlib.Path(sys.executable).with_name("llm")


def llm(name, *arguments):
    return subprocess.run([program, "-m", name, "--key", "unused", *arguments],
                          env={**os.environ, "LLM_USER_PATH": folder}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)


answer = llm("real", "-o", "max_tokens", "8", "Say hello.")
assert answer.returncode == 0 and answer.stdout.strip(), answer.stderr
functions = "def get_weather(city: str) -> str:\n    'The weather in a city.'\n    return '18 degrees in ' + city\n"
for streaming in ([], ["--no-stream"]):
    answer = llm("by-heart", *streaming, "--functions", functions, "What is the weather in Paris, then in Rome?")
    assert answer.returncode == 0 and answer.stdout.strip() == "It is 18 degrees in both.", answer
    answer = llm("by-heart", *streaming, "--schema", "sure bool, city", "Are you sure?")
    assert answer.returncode == 0 and json.loads(answer.stdout) == {"sure": True, "city": "Paris"}, answer
answer = llm("missing", "Say hello.")
assert answer.returncode == 1 and "does not exist" in answer.stderr, answer
