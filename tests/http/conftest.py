"""Fixtures of the HTTP suites: they run the real program with a real model.

TANDEM_BINARY: the program (default: build/host-release/tandem).
TANDEM_TEST_MODEL: a model with a chat template (SmolLM2-135M-Instruct as GGUF, or any other).
"""

import os
import pathlib

import pytest
from tandem_server import TandemServer

# Minutes of load: `scripts/test.sh nightly` sets TANDEM_NIGHTLY.
collect_ignore = [] if os.environ.get("TANDEM_NIGHTLY") == "1" else ["soak"]

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("TANDEM_BINARY", str(REPOSITORY / "build/host-release/tandem"))
    assert os.access(path, os.X_OK), f"no program at {path}: build it or set TANDEM_BINARY"
    return path


@pytest.fixture(scope="session")
def model_path():
    path = os.environ.get("TANDEM_TEST_MODEL", "")
    assert os.path.exists(path), "set TANDEM_TEST_MODEL to a model with a chat template"
    return path


@pytest.fixture(scope="module")
def server(binary, model_path):
    """A server that the tests of a module share. At fp32, where a text depends neither on who is served beside it nor
    on what was cached: many tests compare two."""
    with TandemServer(binary, model_path, "--dtype", "fp32") as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


@pytest.fixture
def start_server(binary, model_path):
    """Starts servers with flags of one's own; they end with the test."""
    started = []

    def start(*flags, wait=True, tls=None):
        running = TandemServer(binary, model_path, *flags, wait=wait, tls=tls)
        started.append(running)
        return running

    yield start
    for running in started:
        running.close()
