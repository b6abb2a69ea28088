"""A model serves a longer context than it was made for: SmolLM2 has 8,192 tokens, the dummy tiny 4,096."""

import json
import subprocess

import pytest
from tandem_server import TandemServer

OWN_CONTEXT = 8192
DUMMY_CONTEXT = 4096


def model_len(server):
    _, _, body = server.request("GET", "/v1/models")
    return json.loads(body)["data"][0]["max_model_len"]


def dummy_server(binary, *flags):
    """The dummy in the place of MODEL: nine thousand tokens take it a second."""
    return TandemServer(binary, "--dummy=tiny", "--max-model-len", "0", *flags)


@pytest.mark.parametrize("scaling", ["yarn:4", "linear:4", "llama3:4"])
def test_a_prompt_beyond_the_models_own_context(binary, scaling):
    prompt = [token % 250 for token in range(9000)]
    with dummy_server(binary) as server:
        assert model_len(server) == DUMMY_CONTEXT
        status, answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 4})
        assert status == 400 and str(DUMMY_CONTEXT) in answer["error"]["message"]
    with dummy_server(binary, "--rope-scaling", scaling) as server:
        assert model_len(server) == 4 * DUMMY_CONTEXT
        answer = server.complete(prompt=prompt, ignore_eos=True)
        assert answer["usage"] == {**answer["usage"], "prompt_tokens": 9000, "completion_tokens": 4}


def test_a_scaled_model_answers_as_before_on_short_prompts(start_server):
    """YaRN keeps what near tokens mean to each other."""
    prompt = "Count:" + 15 * " one two three four five six seven eight nine ten" + " one two three"
    server = start_server("--rope-scaling", "yarn:2", "--max-model-len", "16384")
    answer = server.complete(prompt=prompt, max_tokens=7)
    assert answer["choices"][0]["text"] == " four five six seven eight nine ten"


def test_the_json_object_of_a_config(start_server):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": OWN_CONTEXT}
    server = start_server("--rope-scaling", json.dumps(scaling), "--max-model-len", "9000")
    assert model_len(server) == 9000
    assert server.complete()["usage"]["completion_tokens"] == 4


def refusal(binary, model_path, *flags):
    result = subprocess.run([binary, "serve", model_path, "--port", "0", *flags], capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode != 0
    return result.stderr.strip().splitlines()[-1]


def test_what_is_refused(binary, model_path):
    assert "RoPE type 'dynamic' is not supported" in refusal(binary, model_path, "--rope-scaling", "dynamic:2")
    assert "max-model-len 16385 is more than the model's context of 16384 tokens" in refusal(
        binary, model_path, "--rope-scaling", "linear:2", "--max-model-len", "16385")
    assert "--rope-scaling stretches it" in refusal(binary, model_path, "--max-model-len", "8193")
