"""Headless Chromium, and the chat page as a reader uses it.

TANDEM_CHROMIUM: the browser (default: /usr/bin/chromium, Debian's). None is downloaded.
"""

import contextlib
import json
import os

from playwright.sync_api import expect, sync_playwright

CHROMIUM = os.environ.get("TANDEM_CHROMIUM", "/usr/bin/chromium")
ANSWER_MS = 60_000  # of a busy machine


@contextlib.contextmanager
def launch_browser(*flags):
    assert os.access(CHROMIUM, os.X_OK), f"no browser at {CHROMIUM}: install chromium or set TANDEM_CHROMIUM"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        yield running
        running.close()


class ChatPage:
    """The page as a reader uses it, and what it sends."""

    def __init__(self, browser, url):
        self.page = browser.new_page()
        self.sent = []  # the messages of each request for an answer
        self.errors = []
        self.page.on("request", self._keep)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url)
        self.page.fill("#temperature", "0")

    def _keep(self, request):
        if request.url.endswith("/v1/chat/completions"):
            self.sent.append(json.loads(request.post_data)["messages"])

    def never_end(self):
        """Answers from now on have all their tokens: on a fast machine the model's own end comes too soon."""
        def change(route):
            route.continue_(post_data={**json.loads(route.request.post_data), "ignore_eos": True})
        self.page.route("**/v1/chat/completions", change)

    def say(self, text, max_tokens=8):
        self.page.fill("#max-tokens", str(max_tokens))
        self.page.fill("#message", text)
        self.page.press("#message", "Enter")

    def wait_answered(self):
        expect(self.page.locator("#conversation")).to_have_attribute("aria-busy", "false", timeout=ANSWER_MS)

    def last_answer(self):
        return self.page.locator("article.assistant").last

    def close(self):
        self.page.close()
        assert self.errors == []
