"""The page's markdown: what becomes what, and that nothing a model writes becomes markup."""

import random

import pytest
from browser_testing import browser  # noqa: F401

CASES = {
    "A *b* **c** ~~d~~ `e`.": "<p>A <em>b</em> <strong>c</strong> <del>d</del> <code>e</code>.</p>",
    "***a*** and **b *c* d**": "<p><strong><em>a</em></strong> and <strong>b <em>c</em> d</strong></p>",
    "snake_case_name 2 * 3 * 4 _x_": "<p>snake_case_name 2 * 3 * 4 <em>x</em></p>",
    "**open and `**` *": "<p>**open and <code>**</code> *</p>",
    r"\*no\* \`no\`": "<p>*no* `no`</p>",
    "``a ` b``": "<p><code>a ` b</code></p>",
    "one\ntwo\n\nthree": "<p>one<br>two</p><p>three</p>",
    "# A\n## B #\ntext": "<h3>A</h3><h4>B</h4><p>text</p>",
    "#no heading": "<p>#no heading</p>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "- a\n- b\n  - c\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "1. a\n\n   more\n\n2. b": "<ol><li>a<p>more</p></li><li>b</li></ol>",
    "* a\n\ntext": "<ul><li>a</li></ul><p>text</p>",
    "> a\n> b\n\nc": "<blockquote><p>a<br>b</p></blockquote><p>c</p>",
    "[a](https://x.test/?q=1&r=2)":
        '<p><a href="https://x.test/?q=1&amp;r=2" target="_blank" rel="noopener noreferrer">a</a></p>',
    "See http://x.test/a_b_c.":
        '<p>See <a href="http://x.test/a_b_c" target="_blank" rel="noopener noreferrer">http://x.test/a_b_c</a>.</p>',
    "![pic](https://x.test/p.png)":
        '<p><a href="https://x.test/p.png" target="_blank" rel="noopener noreferrer">pic</a></p>',
    "| a | b |\n|:-:|--:|\n| 1 | `x|y` |":
        '<div class="table" tabindex="0"><table><thead><tr><th class="center" scope="col">a</th>'
        '<th class="right" scope="col">b</th></tr></thead><tbody><tr><td class="center">1</td>'
        '<td class="right"><code>x|y</code></td></tr></tbody></table></div>',
    "a | b\nc": "<p>a | b<br>c</p>",
}
INERT = [
    "<script>window.hit = 1</script>", "<img src=x onerror='window.hit = 1'>", "a <b>c</b> &amp; &lt;",
    "[a](javascript:window.hit=1)", "[a](JaVaScRiPt:window.hit=1)", "[a](data:text/html,<script>window.hit=1</script>)",
    "[a](//evil.test)", "[a]( javascript:window.hit=1 )", "<javascript:window.hit=1>", "![a](javascript:window.hit=1)",
    "`<img src=x onerror=window.hit=1>`", "```html\n<img src=x onerror=window.hit=1>\n```",
    "| <img src=x onerror=window.hit=1> |\n|---|\n| <svg onload=window.hit=1> |", "# <img src=x onerror=window.hit=1>",
    "> <iframe srcdoc='<script>parent.hit=1</script>'>", "```\"><script>window.hit=1</script>\nx\n```",
    "[a](https://x.test/\"onmouseover=\"window.hit=1)",
]
ALLOWED = {"A", "BLOCKQUOTE", "BR", "BUTTON", "CODE", "DEL", "DIV", "EM", "H3", "H4", "H5", "H6", "HR", "LI", "OL", "P",
           "PRE", "SPAN", "STRONG", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"}
ATTRIBUTES = {"class", "href", "rel", "scope", "start", "tabindex", "target", "type"}
RENDER = """async (texts) => {
  const { markdownNodes } = await import("/markdown.js");
  return texts.map((text) => {
    const box = document.createElement("div");
    box.append(...markdownNodes(text));
    document.body.append(box);
    const all = [...box.querySelectorAll("*")];
    const result = {
      html: box.innerHTML, text: box.textContent, tags: [...new Set(all.map((node) => node.tagName))],
      attributes: [...new Set(all.flatMap((node) => node.getAttributeNames()))],
      links: [...box.querySelectorAll("a")].map((link) => [link.protocol, link.rel]),
    };
    box.remove();
    return result;
  });
}"""


@pytest.fixture(scope="module")
def page(server, browser):
    opened = browser.new_page()
    opened.goto(server.url)
    yield opened
    opened.close()


def test_what_becomes_what(page):
    for text, result in zip(CASES, page.evaluate(RENDER, list(CASES))):
        assert result["html"] == CASES[text], text


def test_code_blocks_have_their_text_and_a_button(page):
    result = page.evaluate(RENDER, ["Look:\n```python\ndef f():\n    return '<b>'\n```\nDone.", "```\nopen"])
    assert "def f():\n    return '&lt;b&gt;'" in result[0]["html"]
    assert "<span>python</span>" in result[0]["html"] and "Copy</button>" in result[0]["html"]
    assert result[0]["html"].endswith("<p>Done.</p>")
    assert "<code>open</code>" in result[1]["html"]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied = page.evaluate("""async () => {
      const { markdownNodes } = await import("/markdown.js");
      const [block] = markdownNodes("```\\na\\n  <b>\\n```");
      document.body.append(block);
      block.querySelector("button").click();
      await new Promise((resolve) => setTimeout(resolve, 200));
      block.remove();
      return navigator.clipboard.readText();
    }""")
    assert copied == "a\n  <b>"


def check_inert(result):
    assert set(result["tags"]) <= ALLOWED
    assert set(result["attributes"]) <= ATTRIBUTES
    assert all(protocol in ("http:", "https:") and "noopener" in rel for protocol, rel in result["links"])


def test_html_is_text(page):
    for text, result in zip(INERT, page.evaluate(RENDER, INERT)):
        check_inert(result)
        if "`" not in text and "](https" not in text and "|" not in text:
            assert result["text"].strip() == text.lstrip("#> ").strip()
    page.wait_for_timeout(100)
    assert page.evaluate("window.hit") is None


def test_anything_is_rendered_soon_and_inert(page):
    draw = random.Random(7)
    parts = ["*", "**", "_", "`", "```", "~~", "[", "](", ")", "http://a.test", "<img src=x onerror=window.hit=1>", "\n",
             "\n\n", "- ", "1. ", "  ", "    ", "> ", "# ", "|", "|-|-|", "\\", "word", " ", "é", "---"]
    texts = ["".join(draw.choice(parts) for _ in range(draw.randrange(1, 60))) for _ in range(400)]
    texts += ["*" * 20_000, "[" * 20_000, "> " * 5_000, "`" * 9_999 + "a", "- " * 3_000, "_a " * 9_000, "**a" * 9_000,
              "|" * 9_000 + "\n" + "|-" * 4_500]
    for result in page.evaluate(RENDER, texts):
        check_inert(result)
    assert page.evaluate("window.hit") is None


def test_a_growing_text_ends_as_it_would_have_at_once(page):
    """Blocks that stay as they are keep their elements."""
    text = "# T\n\nSome *text*\nmore\n\n- a\n- b\n\n  c\n\n```js\nlet x;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n\nend"
    same, kept = page.evaluate("""async (text) => {
      const { MarkdownView, markdownNodes } = await import("/markdown.js");
      const growing = document.createElement("div");
      const view = new MarkdownView(growing);
      let heading = null, same = true;
      for (let length = 0; length <= text.length; ++length) {
        view.show(text.slice(0, length));
        const whole = document.createElement("div");
        whole.append(...markdownNodes(text.slice(0, length)));
        same &&= whole.innerHTML === growing.innerHTML;
        if (length === 10) heading = growing.firstElementChild;
      }
      return [same, heading === growing.firstElementChild];
    }""", text)
    assert same and kept
