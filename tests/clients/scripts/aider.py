"""A question in a repository of one file, and an edit of the file."""
import os
import pathlib
import subprocess
import sys

url, model, folder, _, by_heart_url = sys.argv[1:6]
subprocess.run(["git", "init", "-q", folder], check=True)
file = pathlib.Path(folder, "greeting.py")
file.write_text('def greet(name):\n    return "Helo, " + name\n')
program = pathlib.Path(sys.executable).with_name("aider")
settings = pathlib.Path(folder, ".aider.model.settings.yml")


def aider(at, edit_format, message):
    # Its own requests have no bound, and a small model may go on to the end of the context.
    settings.write_text(f"- name: openai/{model}\n  edit_format: {edit_format}\n"
                        + ('  extra_params:\n    stop: ["\\n\\n"]\n' if edit_format == "ask" else ""))
    answer = subprocess.run(
        [program, "--model", f"openai/{model}", "--no-check-update", "--no-auto-commits", "--yes",
         "--no-show-model-warnings", "--no-analytics", "--no-show-release-notes", "--model-settings-file", settings,
         "--message", message, "greeting.py"], cwd=folder,
        env={**os.environ, "OPENAI_API_BASE": f"{at}/v1", "OPENAI_API_KEY": "unused"},
        capture_output=True, text=True, timeout=240)
    assert answer.returncode == 0 and " received." in answer.stdout, answer.stdout + answer.stderr
    return answer.stdout


aider(url, "ask", "Say hello.")
assert "Applied edit to greeting.py" in aider(by_heart_url, "diff", "Mend the greeting in greeting.py.")
assert file.read_text() == 'def greet(name):\n    return "Hello, " + name\n'
