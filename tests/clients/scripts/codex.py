"""The coding agent: edits a file to the end, answers by a schema, goes on; leaving it, errors, a full context."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.pop(0)
import codex_cli_bin

url, model, folder, _, by_heart_url = sys.argv[1:6]
home, work = pathlib.Path(folder, "home"), pathlib.Path(folder, "work")
home.mkdir()
work.mkdir()
CONFIG = """
model = "MODEL"
model_provider = "tandem"
model_context_window = 32768

[model_providers.tandem]
name = "Tandem"
base_url = "URL/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def running(at):
    """How many requests the server is answering."""
    lines = urllib.request.urlopen(f"{at}/metrics").read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def codex(*arguments, at=by_heart_url, interrupted=False):
    """The exit status, the events and the last message of `codex exec`."""
    (home / "config.toml").write_text(CONFIG.replace("URL", at).replace("MODEL", model))
    last = work / "last"
    last.unlink(missing_ok=True)
    # Its own sandbox needs namespaces, which not every machine gives.
    process = subprocess.Popen(
        [codex_cli_bin.bundled_codex_path(), "exec", *arguments[:-1], "--json", "--skip-git-repo-check",
         "--dangerously-bypass-approvals-and-sandbox", "--output-last-message", last, arguments[-1]],
        cwd=work, env={**os.environ, "HOME": str(home), "CODEX_HOME": str(home)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if interrupted:
        # Once the server works on it.
        while process.poll() is None and not running(at):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    print(arguments[-1], *events, err, sep="\n")
    return process.returncode, events, last.read_text() if last.exists() else ""


file = work / "greeting.py"
file.write_text('def greet(name):\n    return "Helo, " + name\n')
code, events, last = codex("Mend the greeting in greeting.py.")
assert code == 0 and last == "The greeting in greeting.py now says Hello."
assert file.read_text() == 'def greet(name):\n    return "Hello, " + name\n'
items = [event["item"] for event in events if event["type"] == "item.completed"]
commands = [item for item in items if item["type"] == "command_execution"]
assert [item["exit_code"] for item in commands] == [0, 0, 0]
# The two of the first turn run at once.
assert any("Helo" in item["aggregated_output"] for item in commands[:2]) and "Hello" in commands[2]["aggregated_output"]
assert [item["changes"][0]["kind"] for item in items if item["type"] == "file_change"] == ["update"]
assert [item["text"] for item in items if item["type"] == "reasoning"] == ["I have to see the file first."]
assert events[-1]["type"] == "turn.completed" and events[-1]["usage"]["output_tokens"] > 100

code, _, last = codex("resume", "--last", "Say hello.")
assert code == 0 and last == "Hello! It is good to meet you."

schema = work / "schema.json"
schema.write_text(json.dumps({"type": "object", "properties": {"sure": {"type": "boolean"}, "city": {"type": "string"}},
                              "required": ["sure", "city"], "additionalProperties": False}))
code, _, last = codex("--output-schema", schema, "Are you sure?")
assert code == 0 and json.loads(last) == {"sure": True, "city": "Paris"}

# Who interrupts it has the server stop.
_, events, _ = codex("Go on for ever.", interrupted=True)
assert not any(event["type"] == "turn.completed" for event in events)

code, events, _ = codex("--model", "another", "Say hello.")
assert code == 1 and "The model `another` does not exist." in events[-1]["error"]["message"]
code, events, _ = codex("Say hello.", at=url)  # a context that its first prompt does not fit
assert code == 1 and "context window" in events[-1]["error"]["message"]
