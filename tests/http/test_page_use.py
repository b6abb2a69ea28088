"""The web page without a mouse, on a phone, in the dark, and for screen readers."""

import re

import pytest
from browser_testing import PHONE, browser, open_chat  # noqa: F401
from playwright.sync_api import expect

LIGHT, DARK = "rgb(247, 246, 243)", "rgb(20, 23, 26)"


def background(chat):
    return chat.page.evaluate("getComputedStyle(document.body).backgroundColor")


def tab_to(chat, selector, key="Tab", most=60):
    """Presses the key until the element has the focus."""
    for _ in range(most):
        if chat.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        chat.page.keyboard.press(key)
    raise AssertionError(f"{selector} is not reached by {key}")


def test_everything_works_without_a_mouse(server, open_chat):
    chat = open_chat(server.url)
    keyboard = chat.page.keyboard
    expect(chat.page.locator("#message")).to_be_focused()
    chat.set("max-tokens", 6)
    keyboard.type("What is the sea?")
    keyboard.press("Shift+Enter")
    keyboard.type("Be brief.")
    keyboard.press("Enter")
    chat.wait_answered()
    assert chat.sent[0][0]["content"] == "What is the sea?\nBe brief."
    # The last message again, from an empty field.
    keyboard.press("ArrowUp")
    expect(chat.page.get_by_label("Edit the message")).to_be_focused()
    keyboard.press("End")
    keyboard.type("!")
    keyboard.press("Enter")
    chat.wait_answered()
    assert chat.sent[1][0]["content"].endswith("!")
    tab_to(chat, ".regenerate", "Shift+Tab")
    keyboard.press("Enter")
    chat.wait_answered()
    assert len(chat.sent) == 3
    tab_to(chat, "#conversations .open", "Shift+Tab")
    tab_to(chat, "#conversations .rename", most=2)
    keyboard.press("Enter")
    keyboard.type("Seas")
    keyboard.press("Enter")
    assert chat.titles() == ["Seas"]
    tab_to(chat, "#new", "Shift+Tab")
    keyboard.press("Enter")
    expect(chat.page.locator("article")).to_have_count(0)
    expect(chat.page.locator("#message")).to_be_focused()
    tab_to(chat, "#show-tiers", "Shift+Tab")
    keyboard.press("Enter")
    expect(chat.page.locator("#tiers")).to_be_visible()
    tab_to(chat, "#show-chat", "Shift+Tab")
    keyboard.press("Enter")
    expect(chat.page.locator("#chat")).to_be_visible()
    keyboard.press("/")
    expect(chat.page.locator("#message")).to_be_focused()


def test_a_phone(server, open_chat):
    chat = open_chat(server.url, **PHONE)
    chat.check_fits()
    for panel in ("#history", "#settings"):
        expect(chat.page.locator(panel)).to_be_hidden()
    chat.page.tap("#toggle-settings")
    expect(chat.page.locator("#settings")).to_be_visible()
    chat.check_fits()
    chat.page.fill("#max-tokens", "8")
    chat.page.tap("#toggle-history")
    expect(chat.page.locator("#settings")).to_be_hidden()
    chat.check_fits()
    chat.page.keyboard.press("Escape")
    expect(chat.page.locator("#history")).to_be_hidden()
    chat.page.fill("#message", "averyveryveryverylongword" * 10)
    chat.page.tap("#send")
    expect(chat.last_answer().locator(".answer-info")).to_contain_text("tokens", timeout=60_000)
    chat.wait_answered()
    chat.check_fits()
    # Wide code and tables scroll in themselves.
    chat.page.evaluate("""async () => {
      const { markdownNodes } = await import("/markdown.js");
      const wide = "wide ".repeat(60);
      document.querySelector("article.assistant .body").append(
        ...markdownNodes("```\\n" + wide + "\\n```\\n\\n| a | b |\\n|---|---|\\n| `" + wide + "` | " + wide + " |"));
    }""")
    chat.check_fits()
    chat.page.tap("#show-tiers")
    expect(chat.page.locator("#gpu-blocks")).to_contain_text("blocks in use")
    chat.check_fits()


def test_dark_and_light(server, open_chat):
    chat = open_chat(server.url, color_scheme="dark")
    assert background(chat) == DARK
    chat.page.click("#theme")
    assert background(chat) == LIGHT
    chat.page.reload()
    assert background(chat) == LIGHT
    chat.page.click("#theme")
    # It follows the system again.
    chat.page.emulate_media(color_scheme="light")
    assert background(chat) == LIGHT
    expect(chat.page.locator("#theme")).to_have_attribute("aria-label", "Dark theme")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_in_the_way_of_assistive_technology(server, open_chat, scheme):
    chat = open_chat(server.url, color_scheme=scheme)
    chat.check_accessible()
    chat.ask("Hello.", max_tokens=4)
    chat.page.evaluate("""async () => {
      const { markdownNodes } = await import("/markdown.js");
      document.querySelector("article.assistant .body").append(...markdownNodes(
        "# A\\n\\n- b `c`\\n\\n> d\\n\\n```py\\ne\\n```\\n\\n|f|g|\\n|-|-|\\n|h|[i](http://j.test)|"));
    }""")
    chat.page.locator("#conversations li").first.hover()
    chat.check_accessible()
    chat.page.click("#show-tiers")
    expect(chat.page.locator("#gpu-blocks")).to_contain_text("blocks in use")
    expect(chat.page.locator("#tiers-state")).to_be_hidden()
    chat.check_accessible()


def test_a_key_is_asked_for_where_it_is_missing(start_server, open_chat):
    server = start_server("--api-key", "sk-1")
    chat = open_chat(server.url + "/#tiers")
    expect(chat.page.locator("#tiers-state")).to_contain_text("key")
    chat.page.click("#show-chat")
    expect(chat.page.locator("#api-key")).to_have_attribute("aria-invalid", "true")
    chat.page.fill("#api-key", "sk-1")
    chat.page.press("#api-key", "Enter")
    expect(chat.page.locator("#model-name")).to_have_text(re.compile("test-model"))
    chat.page.click("#show-tiers")
    expect(chat.page.locator("#gpu-blocks")).to_contain_text("blocks in use")
