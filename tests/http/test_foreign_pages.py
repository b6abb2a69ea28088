"""What web pages of others can do in the browser of someone whose server runs on this machine: nothing."""

import http.server
import json
import threading
import time

import pytest
from browser_testing import ANSWER_MS, ChatPage, launch_browser
from playwright.sync_api import expect
from tandem_server import MODEL_NAME, TandemServer

COMPUTED = ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
            "tandem:iterations_total")
SECRET = "sk-the-secret-of-this-test"

# Each attempt resolves to what the page could read, or to "blocked: ...".
ATTEMPTS = """async (server) => {
  const body = JSON.stringify({ prompt: "Hello", max_tokens: 4 });
  const read = async (path, options) => {
    try {
      const response = await fetch(server + path, options);
      return response.type === "opaque" ? "blocked: opaque" : `${response.status} ${await response.text()}`;
    } catch (error) {
      return "blocked: " + error.message;
    }
  };
  const loaded = (element, url) => new Promise((resolve) => {
    element.onload = () => resolve("loaded");
    element.onerror = () => resolve("blocked: error");
    element.src = url;
    document.body.append(element);
  });
  const events = () => new Promise((resolve) => {
    const source = new EventSource(server + "/v1/models");
    source.onopen = () => resolve("opened");
    source.onerror = () => { source.close(); resolve("blocked: error"); };
  });
  const json = { "Content-Type": "application/json" };
  const result = {
    json: await read("/v1/completions", { method: "POST", headers: json, body }),
    text: await read("/v1/completions", { method: "POST", headers: { "Content-Type": "text/plain" }, body }),
    noCors: await read("/v1/completions", { method: "POST", mode: "no-cors", body }),
    chat: await read("/v1/chat/completions", { method: "POST", mode: "no-cors",
      body: JSON.stringify({ messages: [{ role: "user", content: "Hi" }], max_tokens: 4 }) }),
    tokenize: await read("/tokenize", { method: "POST", mode: "no-cors", body: JSON.stringify({ prompt: "Hi" }) }),
    models: await read("/v1/models", {}),
    metrics: await read("/metrics", {}),
    noCorsModels: await read("/v1/models", { mode: "no-cors" }),
    events: await events(),
    image: await loaded(document.createElement("img"), server + "/v1/models"),
    script: await loaded(document.createElement("script"), server + "/v1/models"),
  };
  const form = document.createElement("form");
  const target = document.createElement("iframe");
  target.name = "target";
  form.method = "post";
  form.enctype = "text/plain";
  form.action = server + "/v1/completions";
  form.target = "target";
  const field = document.createElement("input");
  field.name = '{"prompt": "Hello", "max_tokens": 4, "user": "';
  field.value = '"}';
  form.append(field);
  document.body.append(target, form);
  const answered = new Promise((resolve) => { target.onload = resolve; });
  form.submit();
  await answered;
  navigator.sendBeacon(server + "/v1/completions", body);
  return result;
}"""


class Blank(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = b"<!doctype html><title>foreign</title><body></body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *unused):
        pass


@pytest.fixture(scope="module")
def foreign_port():
    """Of a web server of someone else; the browser takes evil.test for its name."""
    foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    yield foreign.server_port
    foreign.shutdown()
    foreign.server_close()


@pytest.fixture(scope="module")
def browser():
    with launch_browser("--host-resolver-rules=MAP evil.test 127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def logged(binary, model_path, tmp_path_factory):
    """A server, and its access log."""
    log = tmp_path_factory.mktemp("foreign") / "access.log"
    with TandemServer(binary, model_path, "--access-log", str(log)) as running:
        yield running, log


def statuses_of(log):
    """Of the requests so far that were answered to a page: (path, status)."""
    time.sleep(0.3)  # the log is written a moment later
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [(line["path"], line["status"]) for line in lines if line["path"] != "/favicon.ico"]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_foreign_page_reads_nothing_and_computes_nothing(browser, foreign_port, logged, name):
    server, log = logged
    before = server.metrics()
    seen = len(statuses_of(log))
    page = browser.new_page()
    page.goto(f"http://evil.test:{foreign_port}/")
    could = page.evaluate(ATTEMPTS, f"http://{name}:{server.port}")
    time.sleep(0.3)  # for the beacon
    page.close()
    assert all(value.startswith("blocked") for value in could.values()), could
    attempts = statuses_of(log)[seen:]
    assert len(attempts) >= len(could), "they got as far as the server"
    assert {status for _, status in attempts} == {403}, attempts
    after = server.metrics()
    for metric in COMPUTED:
        assert after.get(metric, 0) == before.get(metric, 0), metric


def test_a_foreign_page_that_is_allowed_can(browser, foreign_port, start_server):
    server = start_server("--allowed-origins", f"http://evil.test:{foreign_port}")
    page = browser.new_page()
    page.goto(f"http://evil.test:{foreign_port}/")
    could = page.evaluate(ATTEMPTS, server.url)
    page.close()
    assert could["json"].startswith("200 ") and could["text"].startswith("200 ")
    assert MODEL_NAME in could["models"]


def test_a_name_that_was_pointed_here_gets_nothing(browser, logged):
    """DNS rebinding: the page's own name now means this machine, so that its requests are of the same origin."""
    server, log = logged
    before = server.metrics()
    seen = len(statuses_of(log))
    page = browser.new_page()
    answer = page.goto(f"http://evil.test:{server.port}/")
    assert answer.status == 403
    could = page.evaluate("""async () => {
      const body = JSON.stringify({ prompt: "Hello", max_tokens: 4 });
      const answers = [await fetch("/v1/models"), await fetch("/metrics"), await fetch("/health"),
                       await fetch("/v1/completions", { method: "POST", body })];
      return Promise.all(answers.map(async (answer) => `${answer.status} ${await answer.text()}`));
    }""")
    page.close()
    assert all(value.startswith("403 ") and MODEL_NAME not in value for value in could), could
    assert {status for _, status in statuses_of(log)[seen:]} == {403}
    after = server.metrics()
    for metric in COMPUTED:
        assert after.get(metric, 0) == before.get(metric, 0), metric


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_own_page_works(browser, logged, name):
    server, _ = logged
    chat = ChatPage(browser, f"http://{name}:{server.port}/")
    expect(chat.page.locator("#model-name")).to_have_text(MODEL_NAME, timeout=ANSWER_MS)
    chat.say("Hello.", max_tokens=4)
    expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
    expect(chat.page.locator("#strip-running")).to_have_text("0", timeout=ANSWER_MS)
    chat.close()


def test_a_link_on_a_foreign_page_leads_to_the_own_page(browser, foreign_port, logged):
    server, _ = logged
    page = browser.new_page()
    page.goto(f"http://evil.test:{foreign_port}/")
    with page.expect_navigation():
        page.evaluate("url => { location.href = url; }", server.url + "/")
    expect(page.locator("#model-name")).to_have_text(MODEL_NAME, timeout=ANSWER_MS)
    page.close()


def test_the_own_page_below_a_path_and_with_a_key(browser, start_server):
    server = start_server("--root-path", "/tandem", "--api-key", SECRET)
    chat = ChatPage(browser, server.url + "/tandem")
    assert chat.page.url == server.url + "/tandem/"
    field = chat.page.locator("#api-key")
    expect(field).to_have_attribute("aria-invalid", "true", timeout=ANSWER_MS)
    expect(chat.page.locator("#model-name")).to_contain_text("key is missing", timeout=ANSWER_MS)
    expect(chat.page.locator("#strip-running")).to_have_text("needs a key", timeout=ANSWER_MS)
    field.fill(SECRET)
    field.press("Enter")
    expect(chat.page.locator("#model-name")).to_have_text(MODEL_NAME, timeout=ANSWER_MS)
    expect(chat.page.locator("#strip-running")).to_have_text("0", timeout=ANSWER_MS)
    chat.say("Hello.", max_tokens=4)
    expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
    # For as long as the tab is open, and no longer.
    chat.page.reload()
    expect(chat.page.locator("#model-name")).to_have_text(MODEL_NAME, timeout=ANSWER_MS)
    kept, cookie = chat.page.evaluate("[JSON.stringify(Object.entries(localStorage)), document.cookie]")
    assert SECRET not in kept and cookie == ""
    chat.close()
