"""Six streamed chats, two at a time."""
import json
import pathlib
import subprocess
import sys

url, model, folder, tokenizer = sys.argv[1:5]
program = pathlib.Path(sys.executable).with_name("aiperf")
answer = subprocess.run([program, "profile", "-m", model, "-u", url, "--endpoint-type", "chat", "--streaming",
                         "--tokenizer", tokenizer, "--concurrency", "2", "--request-count", "6",
                         "--synthetic-input-tokens-mean", "20", "--output-tokens-mean", "8", "--ui", "none",
                         "--output-artifact-dir", folder], capture_output=True, text=True)
assert answer.returncode == 0, answer.stdout + answer.stderr
report = json.loads(pathlib.Path(folder, "profile_export_aiperf.json").read_text())
assert report["request_count"]["avg"] == 6, report["request_count"]
