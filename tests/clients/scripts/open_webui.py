"""The web page as a server of its own: the list of models, a chat, a stream, a model that is not there."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

url, model, folder = sys.argv[1:4]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
page = f"http://127.0.0.1:{port}"
# Nothing is fetched: neither models for its own search nor news.
environment = {**os.environ, "DATA_DIR": str(pathlib.Path(folder, "data")), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "any",
               "ENABLE_OLLAMA_API": "False", "OPENAI_API_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none",
               "RAG_EMBEDDING_ENGINE": "openai", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1"}
running = subprocess.Popen([pathlib.Path(sys.executable).with_name("open-webui"), "serve", "--host", "127.0.0.1",
                            "--port", str(port)], cwd=folder, env=environment, stdin=subprocess.DEVNULL)
token = None


def ask(path, body=None):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(page + path, None if body is None else json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


try:
    while True:
        try:
            ask("/health")
            break
        except OSError:
            assert running.poll() is None, "open-webui ended"
            time.sleep(1)
    token = json.loads(ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
    assert [found["id"] for found in json.loads(ask("/api/models"))["data"]] == [model]

    chat = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12, "temperature": 0}
    answer = json.loads(ask("/api/chat/completions", {**chat, "stream": False}))
    text = answer["choices"][0]["message"]["content"]
    assert text and answer["usage"]["completion_tokens"] <= 12

    lines = [line[6:] for line in ask("/api/chat/completions", {**chat, "stream": True}).splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    deltas = [choice["delta"].get("content") or "" for line in lines[:-1] for choice in json.loads(line)["choices"]]
    assert "".join(deltas) == text

    try:
        ask("/api/chat/completions", {**chat, "model": "nothing"})
        raise AssertionError("a model that is not there was taken")
    except urllib.error.HTTPError as error:
        assert error.code == 400
finally:
    running.terminate()
    running.wait()
