"""A message in a repository of one file."""
import os
import pathlib
import subprocess
import sys

url, model, folder = sys.argv[1:4]
subprocess.run(["git", "init", "-q", folder], check=True)
pathlib.Path(folder, "a.py").write_text("print(1)\n")
program = pathlib.Path(sys.executable).with_name("aider")
# Its own requests have no bound, and a small model may go on to the end of the context.
settings = pathlib.Path(folder, ".aider.model.settings.yml")
settings.write_text(f"- name: openai/{model}\n  edit_format: ask\n  extra_params:\n    stop: [\"\\n\\n\"]\n")
answer = subprocess.run([program, "--model", f"openai/{model}", "--no-check-update", "--no-auto-commits", "--yes",
                         "--no-show-model-warnings", "--no-analytics", "--model-settings-file", settings,
                         "--message", "Say hello.", "a.py"], cwd=folder,
                        env={**os.environ, "OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "unused"},
                        capture_output=True, text=True, timeout=240)
assert answer.returncode == 0 and " received." in answer.stdout, answer.stdout + answer.stderr
