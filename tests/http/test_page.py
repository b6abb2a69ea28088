"""The web page in headless Chromium, with the real server and model."""

import re

import pytest
from browser_testing import ANSWER_MS, ChatPage, launch_browser
from playwright.sync_api import expect
from tandem_server import TandemServer

POLL_MS = 15_000  # the strip asks once a second

# What is shown of the answer as it grows.
WATCH_ANSWER = """() => {
  window.shown = [];
  new MutationObserver(() => {
    const body = document.querySelector("article.assistant:last-of-type > p");
    if (body && body.textContent !== window.shown.at(-1)) window.shown.push(body.textContent);
  }).observe(document.getElementById("conversation"), { childList: true, subtree: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as running:
        yield running


@pytest.fixture
def open_chat(browser):
    opened = []

    def open_at(url):
        opened.append(ChatPage(browser, url))
        return opened[-1]

    yield open_at
    for chat in opened:
        chat.close()


def test_an_answer_streams(server, open_chat):
    chat = open_chat(server.url)
    chat.page.evaluate(WATCH_ANSWER)
    chat.say("Write one sentence about the sea.", max_tokens=24)
    expect(chat.page.locator("#stop")).to_be_visible()
    expect(chat.page.locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
    chat.wait_answered()
    shown = [text for text in chat.page.evaluate("window.shown") if text]
    # A browser paints several events at once, but not all of an answer.
    assert len(shown) >= 3, shown
    assert all(later.startswith(earlier) for earlier, later in zip(shown, shown[1:]))
    assert chat.last_answer().locator("> p").first.inner_text().strip() == shown[-1].strip()
    expect(chat.page.locator("#stop")).to_be_hidden()
    # The next request has the whole conversation.
    chat.say("Another one.", max_tokens=4)
    chat.wait_answered()
    assert [message["role"] for message in chat.sent[1]] == ["user", "assistant", "user"]
    assert chat.sent[1][1]["content"] == shown[-1]


def test_what_was_refused_is_no_part_of_the_conversation(server, open_chat):
    chat = open_chat(server.url)
    chat.say("Hello.", max_tokens=4)
    chat.wait_answered()
    too_long = "word " * 1500  # the context is 1,024 tokens
    chat.say(too_long)
    expect(chat.page.locator("#status")).to_have_text("The request failed.", timeout=ANSWER_MS)
    chat.wait_answered()
    refused = chat.last_answer()
    expect(refused).to_have_class(re.compile(r"\bfailed\b"))
    expect(refused).to_contain_text("1024")
    expect(chat.page.locator("#message")).to_have_value(too_long.strip())
    # What is short enough is answered, as if the other had never been sent.
    chat.say("Hello again.", max_tokens=4)
    expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
    chat.wait_answered()
    expect(chat.page.locator("article.failed")).to_have_count(1)
    expect(chat.page.locator("#message")).to_have_value("")
    said = [message["content"] for message in chat.sent[2] if message["role"] == "user"]
    assert said == ["Hello.", "Hello again."]


def test_the_strip_says_when_the_server_has_gone_and_when_it_is_back(binary, model_path, open_chat):
    figures = ("#strip-waiting", "#strip-kv-text", "#strip-rate")
    with TandemServer(binary, model_path) as first:
        chat = open_chat(first.url)
        chat.never_end()
        chat.say("Count as far as you can.", max_tokens=900)
        expect(chat.page.locator("#strip-running")).to_have_text("1", timeout=POLL_MS)
        expect(chat.page.locator("#strip-rate")).to_have_text(re.compile(r"^[1-9][0-9.]*$"), timeout=POLL_MS)
        expect(chat.page.locator("#strip-kv-text")).to_have_text(re.compile(r"^[0-9.]+ %$"))
        assert chat.page.eval_on_selector("#strip-kv", "meter => meter.value") > 0
        first.process.kill()
        first.process.wait()
        expect(chat.page.locator("#strip-running")).to_have_text("offline", timeout=POLL_MS)
        for figure in figures:
            expect(chat.page.locator(figure)).to_have_text("–", timeout=1)
        assert chat.page.eval_on_selector("#strip-kv", "meter => meter.value") == 0
        chat.wait_answered()
        expect(chat.page.locator("#status")).to_have_text("The request failed.")
    # A new server begins to count at 0: what the old one had counted would make the rate negative.
    rates = "rate => { window.rates = []; new MutationObserver(() => window.rates.push(rate.textContent))" \
            ".observe(rate, { childList: true }); }"
    chat.page.eval_on_selector("#strip-rate", rates)
    with TandemServer(binary, model_path, port=first.port) as second:
        expect(chat.page.locator("#strip-running")).to_have_text("0", timeout=POLL_MS)
        expect(chat.page.locator("#strip-waiting")).to_have_text("0")
        expect(chat.page.locator("#strip-kv-text")).to_have_text("0.0 %")
        expect(chat.page.locator("#strip-rate")).to_have_text("0.0", timeout=POLL_MS)
        assert all(re.fullmatch(r"–|[0-9.]+", rate) for rate in chat.page.evaluate("window.rates"))
        chat.say("Hello.", max_tokens=4)
        expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
        assert second.process.poll() is None
