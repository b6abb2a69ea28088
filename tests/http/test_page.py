"""The chat of the web page in headless Chromium, with the real server and model."""

import json
import re

from browser_testing import ANSWER_MS, browser, open_chat  # noqa: F401
from playwright.sync_api import expect
from tandem_server import TandemServer

POLL_MS = 15_000  # the strip asks once a second

# What is shown of the answer as it grows.
WATCH_ANSWER = """() => {
  window.shown = [];
  new MutationObserver(() => {
    const body = document.querySelector("article.assistant:last-of-type .body");
    if (body && body.innerText !== window.shown.at(-1)) window.shown.push(body.innerText);
  }).observe(document.getElementById("conversation"), { childList: true, subtree: true, characterData: true });
}"""


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
    assert chat.last_answer().locator(".body").inner_text() == shown[-1]
    expect(chat.last_answer().locator(".answer-info")).to_have_text(
        re.compile(r"^[0-9]+ tokens, first after [0-9.]+ s, [0-9.]+ tokens/s"))
    expect(chat.page.locator("#stop")).to_be_hidden()
    # The next request has the whole conversation.
    chat.say("Another one.", max_tokens=4)
    chat.wait_answered()
    assert [message["role"] for message in chat.sent[1]] == ["user", "assistant", "user"]
    assert chat.sent[1][1]["content"].strip() == shown[-1].strip()
    # All of it came from the server.
    assert all(url.startswith(server.url) for url in chat.asked)


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
        chat.wait_text()
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
        # What had come is kept, and a retry that fails as well does not lose it.
        expect(chat.page.locator("#server-state")).to_contain_text("does not answer")
        partial = chat.last_answer().locator(".body").inner_text()
        assert len(partial) > 20
        chat.page.click(".regenerate")
        chat.wait_answered()
        assert chat.last_answer().locator(".body").inner_text() == partial
        expect(chat.last_answer().locator(".error")).to_have_text("The connection to the server was lost.")
        # So is what nobody could answer.
        chat.say("Are you there?", max_tokens=4)
        chat.wait_answered()
        expect(chat.page.locator("article.failed")).to_have_count(2)
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
        expect(chat.page.locator("#server-state")).to_be_hidden()
        expect(chat.page.locator("#status")).to_contain_text("is back")
        chat.page.click(".regenerate:visible")
        expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
        chat.wait_answered()
        assert [(message["role"], message["content"]) for message in chat.sent[-1]][-1] == ("user", "Are you there?")
        assert chat.sent[-1][1]["content"].strip() == partial.strip()
        expect(chat.page.locator("article.failed")).to_have_count(1)
        assert second.process.poll() is None


def test_escape_and_the_button_stop_an_answer(server, open_chat):
    chat = open_chat(server.url)
    chat.never_end()
    for stop in (lambda: chat.page.press("#message", "Escape"), lambda: chat.page.click("#stop")):
        chat.say("Count as far as you can.", max_tokens=700)
        chat.wait_text()
        stop()
        chat.wait_answered()
        expect(chat.page.locator("#status")).to_have_text("Stopped.")
        expect(chat.last_answer().locator(".error")).to_have_text("Stopped.")
        expect(chat.page.locator("#stop")).to_be_hidden()
        expect(chat.page.locator("#message")).to_be_focused()
        server.wait_idle()
    # What had come is part of the conversation.
    assert [message["role"] for message in chat.sent[1]] == ["user", "assistant", "user"]
    assert len(chat.sent[1][1]["content"]) > 20


def test_edit_and_regenerate(server, open_chat):
    chat = open_chat(server.url)
    chat.set("system", "Be brief.")
    chat.ask("What is the sea?", max_tokens=6)
    chat.ask("And a lake?", max_tokens=6)
    chat.page.click(".regenerate:visible")
    chat.wait_answered()
    assert chat.sent[2] == chat.sent[1]
    expect(chat.page.locator("article.user")).to_have_count(2)
    # What came after an edited message is gone with it.
    chat.page.locator("article.user .edit").first.click()
    editor = chat.page.get_by_label("Edit the message")
    expect(editor).to_have_value("What is the sea?")
    editor.press("Escape")
    expect(editor).to_have_count(0)
    chat.page.locator("article.user .edit").first.click()
    editor.fill("What is a river?")
    editor.press("Enter")
    expect(chat.page.locator("article.user")).to_have_count(1)
    chat.wait_answered()
    assert [message["content"] for message in chat.sent[3]] == ["Be brief.", "What is a river?"]
    assert chat.titles() == ["What is a river?"]


def test_history_survives_a_reload(server, open_chat):
    chat = open_chat(server.url)
    chat.ask("Tell me of the sea.", max_tokens=6)
    answer = chat.last_answer().locator(".body").inner_text()
    chat.page.click("#new")
    expect(chat.page.locator("article")).to_have_count(0)
    chat.ask("Tell me of the moon.", max_tokens=6)
    chat.page.reload()
    assert chat.titles() == ["Tell me of the moon.", "Tell me of the sea."]
    expect(chat.page.locator("article.user .said")).to_have_text("Tell me of the moon.")
    assert chat.page.input_value("#temperature") == "0"
    chat.page.locator("#conversations .open").nth(1).click()
    expect(chat.page.locator("article.user .said")).to_have_text("Tell me of the sea.")
    assert chat.last_answer().locator(".body").inner_text() == answer
    # It goes on where it was.
    chat.ask("More.", max_tokens=4)
    assert [message["content"] for message in chat.sent[-1] if message["role"] == "user"] == [
        "Tell me of the sea.", "More."]

    row = chat.page.locator("#conversations li").first
    row.hover()
    row.locator(".rename").click()
    chat.page.get_by_label("Name of the conversation").fill("Seas")
    chat.page.keyboard.press("Enter")
    assert chat.titles() == ["Seas", "Tell me of the moon."]
    row = chat.page.locator("#conversations li").nth(1)
    row.hover()
    row.locator(".remove").click()
    assert len(chat.titles()) == 2  # asks first
    row.locator(".remove").click()
    chat.page.reload()
    assert chat.titles() == ["Seas"]


def test_an_answer_goes_on_while_another_conversation_is_shown(server, open_chat):
    chat = open_chat(server.url)
    chat.ask("First.", max_tokens=4)
    chat.page.click("#new")
    chat.never_end()
    chat.say("Count as far as you can.", max_tokens=60)
    chat.wait_text(4)
    chat.page.locator("#conversations .open").nth(1).click()
    expect(chat.page.locator("article.user .said")).to_have_text("First.")
    expect(chat.page.locator("#stop")).to_be_visible()
    expect(chat.page.locator("#stop")).to_be_hidden(timeout=ANSWER_MS)
    expect(chat.page.locator("article.user")).to_have_count(1)
    chat.page.locator("#conversations .open").first.click()
    expect(chat.last_answer().locator(".answer-info")).to_contain_text("60 tokens")


def test_a_page_that_is_left_amid_an_answer_keeps_what_came(server, open_chat):
    chat = open_chat(server.url)
    chat.never_end()
    chat.say("Count as far as you can.", max_tokens=700)
    chat.wait_text()
    chat.page.reload()
    assert len(chat.last_answer().locator(".body").inner_text()) > 20
    expect(chat.last_answer().locator(".error")).to_contain_text(re.compile("was left|was lost"))
    expect(chat.last_answer().locator(".regenerate")).to_have_text("Retry")
    server.wait_idle()


def test_reasoning_is_folded(server, open_chat):
    """The test's model does not reason, so the stream is written here."""
    chat = open_chat(server.url)
    deltas = [{"role": "assistant"}, {"reasoning_content": "Let me *think*."}, {"content": "It is 4."}]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    chat.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        body=body, headers={"Content-Type": "text/event-stream"}))
    chat.say("What is 2 + 2?")
    expect(chat.last_answer().locator(".body")).to_have_text("It is 4.")
    chat.wait_answered()
    reasoning = chat.last_answer().locator(".reasoning")
    expect(reasoning.locator("em")).to_be_hidden()
    reasoning.locator("summary").click()
    expect(reasoning.locator("em")).to_have_text("think")
    # The model is not told what it thought.
    chat.page.unroute("**/v1/chat/completions")
    chat.ask("And 3 + 3?", max_tokens=4)
    assert chat.sent[-1][1] == {"role": "assistant", "content": "It is 4."}
