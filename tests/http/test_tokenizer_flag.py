"""--tokenizer: the text side of one model's files for the weights of another."""

import subprocess

from tandem_server import TandemServer


def test_a_dummy_speaks_with_the_tokenizer_and_template_of_a_model(binary, model_path):
    with TandemServer(binary, "--dummy=smollm2-135m", "--tokenizer", model_path) as server:
        _, answer = server.post("/tokenize", {"prompt": "Hello world"})
        assert answer["count"] == 2
        status, answer = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "temperature": 1,
            "structured_outputs": {"choice": ["a short answer", "another"]}})
        assert status == 200, answer
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop", "the model's end tokens end an answer"
        assert choice["message"]["content"] in ("a short answer", "another")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(binary, model_path):
    ended = subprocess.run([binary, "serve", "--dummy", "tiny", "--tokenizer", model_path, "--port", "0"],
                           capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert f"the tokenizer of {model_path} has 49152 tokens, more than the model's 1024" in ended.stderr
