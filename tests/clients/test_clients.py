"""Programs and libraries that people use, unmodified, each in an environment of its own below build/clients.

TANDEM_BINARY, TANDEM_TEST_MODEL: as in tests/http, whose server they share."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "http"))

from tandem_server import MODEL_NAME, TandemServer  # noqa: E402

CLIENTS = json.loads((HERE / "clients.json").read_text())
# What a client may need that a server may lack: a request that it answers with 200 where it has it.
HELLO = [{"role": "user", "content": "Hi"}]
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
NEEDS = {
    "tools": ("/v1/chat/completions", {
        "messages": HELLO, "max_tokens": 64, "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "nothing", "parameters": NOTHING}}]}),
    "schema": ("/v1/chat/completions", {
        "messages": HELLO, "max_tokens": 16, "response_format": {
            "type": "json_schema", "json_schema": {"name": "nothing", "strict": True, "schema": NOTHING}}}),
    "responses": ("/v1/responses", {"input": "Hi", "max_output_tokens": 16}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 4}),
}
TOKENIZER_PACKAGES = ["gguf==0.19.0", "tokenizers==0.23.3"]
SECONDS = 400


def environment(name, packages):
    """The Python of an environment with the packages."""
    folder = REPOSITORY / "build/clients" / name
    installed = folder / "installed"
    wanted = "\n".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
        installed.write_text(wanted)
    return folder / "bin/python"


@pytest.fixture(scope="session")
def model_path():
    return os.environ["TANDEM_TEST_MODEL"]


@pytest.fixture(scope="session")
def server(model_path):
    binary = os.environ.get("TANDEM_BINARY", str(REPOSITORY / "build/host-release/tandem"))
    with TandemServer(binary, model_path) as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


@pytest.fixture(scope="session")
def lacking(server):
    """Of NEEDS, what the server does not have."""
    statuses = {name: server.request("POST", path, {"model": MODEL_NAME, **body})[0]
                for name, (path, body) in NEEDS.items()}
    assert set(statuses.values()) <= {200, 400, 404}, statuses
    return {name for name, status in statuses.items() if status != 200}


@pytest.fixture(scope="session")
def tokenizer(model_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([environment("tokenizer", TOKENIZER_PACKAGES), HERE / "make_tokenizer.py", model_path, folder],
                   check=True)
    return folder


@pytest.mark.parametrize("name", CLIENTS)
def test_client(server, lacking, tokenizer, tmp_path, name):
    client = CLIENTS[name] if isinstance(CLIENTS[name], dict) else {"packages": CLIENTS[name], "needs": []}
    missing = sorted(lacking.intersection(client["needs"]))
    if missing:
        pytest.skip(f"the server has no {', '.join(missing)}")
    python = environment(name, client["packages"])
    ended = subprocess.run([python, HERE / "scripts" / f"{name}.py", server.url, MODEL_NAME, tmp_path, tokenizer],
                           capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert server.wait_idle()["vllm:num_requests_running"] == 0
