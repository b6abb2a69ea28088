"""A multiple choice by log-probabilities of the prompt; tokenized by the client, and by the server."""
import json
import pathlib
import subprocess
import sys

url, model, folder, tokenizer = sys.argv[1:5]
questions = pathlib.Path(folder, "questions.jsonl")
questions.write_text("".join(json.dumps({"q": f"The capital of {land} is", "choices": choices}) + "\n"
                             for land, choices in (("France", ["Paris", "Rome"]), ("Italy", ["Rome", "Paris"]))))
pathlib.Path(folder, "capitals.yaml").write_text(f"""
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}]
""")
program = pathlib.Path(sys.executable).with_name("lm_eval")
for name, arguments in (("folder", f"tokenizer={tokenizer}"), ("server", "tokenizer_backend=remote")):
    output = pathlib.Path(folder, name)
    answer = subprocess.run([program, "--model", "local-completions", "--model_args",
                             f"model={model},base_url={url}/v1/completions,{arguments},num_concurrent=2",
                             "--tasks", "capitals", "--include_path", folder, "--output_path", output],
                            capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    [results] = output.rglob("results*.json")
    assert json.loads(results.read_text())["results"]["capitals"]["acc,none"] == 1.0
