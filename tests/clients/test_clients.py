"""Programs and libraries that people use, unmodified, each in an environment of its own below build/clients.

Each has a script, which gets the URL of a server with a real model, the name of the model, an empty folder, the
model's tokenizer as a folder, and the URL of a server whose model knows by heart what to answer (tests/fixtures/by_heart),
under the same name. clients.json says what is installed, and of how many streams the client leaves at least (`leaves`).

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

from tandem_server import BY_HEART, BY_HEART_FLAGS, MODEL_NAME, TandemServer  # noqa: E402

CLIENTS = json.loads((HERE / "clients.json").read_text())
TOKENIZER_PACKAGES = ["gguf==0.19.0", "tokenizers==0.23.3"]
SECONDS = 400
IDLE_S = 20


def environment(name, packages):
    """The Python of an environment with the packages."""
    folder = REPOSITORY / "build/clients" / name
    installed = folder / "installed"
    wanted = "\n".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--no-compile",
                        "--disable-pip-version-check", *packages], check=True)
        installed.write_text(wanted)
    return folder / "bin/python"


@pytest.fixture(scope="session")
def model_path():
    return os.environ["TANDEM_TEST_MODEL"]


def serve(model, *flags):
    binary = os.environ.get("TANDEM_BINARY", str(REPOSITORY / "build/host-release/tandem"))
    with TandemServer(binary, model, *flags) as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


@pytest.fixture(scope="session")
def server(model_path):
    yield from serve(model_path)


@pytest.fixture(scope="session")
def by_heart():
    yield from serve(BY_HEART, *BY_HEART_FLAGS)


def left(metrics):
    return sum(value for name, value in metrics.items()
               if name.startswith("vllm:request_success_total{") and 'finished_reason="abort"' in name)


@pytest.fixture(scope="session")
def tokenizer(model_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([environment("tokenizer", TOKENIZER_PACKAGES), HERE / "make_tokenizer.py", model_path, folder],
                   check=True)
    return folder


@pytest.mark.parametrize("name", CLIENTS)
def test_client(server, by_heart, tokenizer, tmp_path, name):
    client = CLIENTS[name]
    python = environment(name, client["packages"])
    before = left(server.metrics()) + left(by_heart.metrics())
    ended = subprocess.run([python, HERE / "scripts" / f"{name}.py", server.url, MODEL_NAME, tmp_path, tokenizer,
                            by_heart.url], capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    # Nothing goes on for a client that has gone.
    after = left(server.wait_idle(IDLE_S)) + left(by_heart.wait_idle(IDLE_S))
    assert after - before >= client.get("leaves", 0)
