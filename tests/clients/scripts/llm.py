"""Its command, which streams."""
import os
import pathlib
import subprocess
import sys

url, model, folder = sys.argv[1:4]
pathlib.Path(folder, "extra-openai-models.yaml").write_text(
    f"- model_id: tandem\n  model_name: {model}\n  api_base: {url}/v1\n  api_key_name: tandem\n")
program = pathlib.Path(sys.executable).with_name("llm")
answer = subprocess.run([program, "-m", "tandem", "--key", "unused", "-o", "max_tokens", "8", "Say hello."],
                        env={**os.environ, "LLM_USER_PATH": folder}, capture_output=True, text=True)
assert answer.returncode == 0 and answer.stdout.strip(), answer.stderr
