"""Six requests, two at a time; all succeed with the tokens that were asked for."""
import json
import pathlib
import subprocess
import sys

url, model, folder, tokenizer = sys.argv[1:5]
program = pathlib.Path(sys.executable).with_name("guidellm")
answer = subprocess.run([program, "run", "--backend", f"kind=openai_http,target={url},model={model}", "--profile",
                         "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6", "--tokenizer",
                         f"kind=hf_auto,model={tokenizer}", "--data",
                         "kind=synthetic_text,prompt_tokens=16,output_tokens=8", "--disable-console-interactive"],
                        cwd=folder, capture_output=True, text=True)
assert answer.returncode == 0, answer.stdout + answer.stderr
totals = json.loads(pathlib.Path(folder, "benchmarks.json").read_text())["benchmarks"][0]["metrics"]["request_totals"]
assert totals["successful"] == 6 and totals["errored"] == 0, totals
