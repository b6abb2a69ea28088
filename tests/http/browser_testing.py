"""Headless Chromium, and the page as a reader uses it.

TANDEM_CHROMIUM: the browser (default: /usr/bin/chromium, Debian's). None is downloaded.
"""

import contextlib
import json
import os

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

CHROMIUM = os.environ.get("TANDEM_CHROMIUM", "/usr/bin/chromium")
ANSWER_MS = 60_000  # of a busy machine
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@contextlib.contextmanager
def launch_browser(*flags):
    assert os.access(CHROMIUM, os.X_OK), f"no browser at {CHROMIUM}: install chromium or set TANDEM_CHROMIUM"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        yield running
        running.close()


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as running:
        yield running


@pytest.fixture
def open_chat(browser):
    opened = []

    def open_at(url, **context):
        opened.append(ChatPage(browser, url, **context))
        return opened[-1]

    yield open_at
    for chat in opened:
        chat.close()


class ChatPage:
    """The page as a reader uses it, and what it sends."""

    def __init__(self, browser, url, **context):
        """context: of the browser, such as its viewport. Each page has a storage of its own."""
        self.page = browser.new_page(**context)
        self.url = url
        self.sent = []  # the messages of each request for an answer
        self.errors = []
        self.asked = []  # every address
        self.page.on("request", self._keep)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url)
        self.set("temperature", 0)

    def _keep(self, request):
        self.asked.append(request.url)
        if request.url.endswith("/v1/chat/completions"):
            self.sent.append(json.loads(request.post_data)["messages"])

    def set(self, field, value):
        """A setting, whether or not its panel is open."""
        self.page.eval_on_selector(f"#{field}", """(field, value) => {
          field.value = value;
          field.dispatchEvent(new Event("input", { bubbles: true }));
        }""", str(value))

    def never_end(self):
        """Answers from now on have all their tokens: on a fast machine the model's own end comes too soon."""
        def change(route):
            route.continue_(post_data={**json.loads(route.request.post_data), "ignore_eos": True})
        self.page.route("**/v1/chat/completions", change)

    def say(self, text, max_tokens=8):
        self.set("max-tokens", max_tokens)
        self.page.fill("#message", text)
        self.page.press("#message", "Enter")

    def wait_answered(self):
        expect(self.page.locator("#conversation")).to_have_attribute("aria-busy", "false", timeout=ANSWER_MS)

    def wait_text(self, length=20):
        """Until so much of the last answer is there."""
        self.page.wait_for_function(
            "length => [...document.querySelectorAll('article.assistant .body')].at(-1)?.textContent.length > length",
            arg=length, timeout=ANSWER_MS)

    def ask(self, text, max_tokens=8):
        self.say(text, max_tokens)
        expect(self.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=ANSWER_MS)
        self.wait_answered()

    def last_answer(self):
        return self.page.locator("article.assistant").last

    def titles(self):
        return self.page.locator("#conversations .open").all_inner_texts()

    def check_accessible(self):
        """No serious or critical finding of axe-core."""
        found = Axe().run(self.page).response["violations"]
        severe = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found
                  if each["impact"] in ("serious", "critical")]
        assert severe == []

    def check_fits(self):
        """Nothing is wider than the screen."""
        width, screen = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= screen
        # What lies behind the right edge without making the page wider.
        outside = self.page.evaluate("""[...document.querySelectorAll("body *")].filter((node) => {
          const box = node.getBoundingClientRect();
          const cut = node.closest("pre, .table, .visually-hidden, .lane-track");
          return box.width > 0 && !cut && (box.right > innerWidth + 1 || box.left < -1);
        }).map((node) => node.outerHTML.slice(0, 100))""")
        assert outside == []

    def close(self):
        self.page.close()
        assert self.errors == []
