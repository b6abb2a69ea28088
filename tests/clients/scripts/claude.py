"""The coding agent: edits a file to the end, answers by a schema, goes on; leaving it, errors, a full context."""
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.pop(0)
url, model, folder, _, by_heart_url = sys.argv[1:6]
home, work = pathlib.Path(folder, "home"), pathlib.Path(folder, "work")
home.mkdir()
work.mkdir()
program = pathlib.Path(importlib.util.find_spec("claude_agent_sdk").origin).with_name("_bundled") / "claude"


def running(at):
    """How many requests the server is answering."""
    lines = urllib.request.urlopen(f"{at}/metrics").read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def claude(*arguments, at=by_heart_url, name=model, interrupted=False):
    """The exit status, the events and the result of `claude -p`."""
    # The names that the program runs under in this environment, if it does, are not for the one that is tested.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "CLAUDE"))}
    process = subprocess.Popen(
        [program, *arguments[:-1], "-p", arguments[-1], "--permission-mode", "acceptEdits", "--output-format",
         "stream-json", "--verbose"], cwd=work,
        env={**inherited, "HOME": str(home), "ANTHROPIC_BASE_URL": at, "ANTHROPIC_API_KEY": "unused",
             "ANTHROPIC_MODEL": name, "CLAUDE_CODE_MAX_RETRIES": "0"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if interrupted:
        # Once the server works on it.
        while process.poll() is None and not running(at):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    print(arguments[-1], *events, err, sep="\n")
    results = [event for event in events if event["type"] == "result"]
    return process.returncode, events, results[-1] if results else {}


file = work / "greeting.py"
file.write_text('def greet(name):\n    return "Helo, " + name\n')
code, events, result = claude("Mend the greeting in greeting.py.")
assert code == 0 and result["result"] == "The greeting in greeting.py now says Hello." and not result["is_error"]
assert file.read_text() == 'def greet(name):\n    return "Hello, " + name\n'
blocks = [block for event in events if event["type"] in ("assistant", "user")
          for block in event["message"]["content"] if isinstance(block, dict)]
assert [block["name"] for block in blocks if block["type"] == "tool_use"] == ["Read", "Bash", "Edit", "Read"]
assert not any(block.get("is_error") for block in blocks if block["type"] == "tool_result")
assert [block["thinking"] for block in blocks if block["type"] == "thinking"] == ["I have to see the file first."]
assert result["usage"]["output_tokens"] > 100

code, _, result = claude("--continue", "Say hello.")
assert code == 0 and result["result"] == "Hello! It is good to meet you."

schema = {"type": "object", "properties": {"sure": {"type": "boolean"}, "city": {"type": "string"}},
          "required": ["sure", "city"], "additionalProperties": False}
code, _, result = claude("--json-schema", json.dumps(schema), "Are you sure?")
assert code == 0 and result["structured_output"] == {"sure": True, "city": "Paris"}

# Who interrupts it has the server stop.
_, _, result = claude("Go on for ever.", interrupted=True)
assert result["terminal_reason"] == "aborted_streaming"

code, _, result = claude("Say hello.", name="another")
assert code == 1 and result["is_error"] and "another" in result["result"]
code, _, result = claude("Say hello.", at=url)  # a context that its first prompt does not fit
assert code == 1 and "too long" in result["result"].lower()
