#!/usr/bin/env python3
"""Takes the pictures of docs/page.md: the chat in light and dark, and the tiers under load.

    build/test-venv/bin/python scripts/page_screenshots.py MODEL [--out docs/img]

Needs the program (TANDEM_BINARY, or build/host-release/tandem), Chromium and the packages of tests/http. Each picture is
a PNG of at most 150 KB.
"""

import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/http"))

from browser_testing import ANSWER_MS, ChatPage, launch_browser  # noqa: E402
from playwright.sync_api import expect  # noqa: E402
from tandem_server import TandemServer  # noqa: E402

MAX_BYTES = 150 << 10
SIZE = {"width": 1180, "height": 760}
QUESTION = "Write a Python function that adds two numbers, and explain it in a list."
FOLLOW_UP = "How do I call it?"
NUM_REQUESTS = 9
# The gpu tier fills up, so that others live in the cpu tier.
FLAGS = ("--strategy", "asymmetric", "--gpu-kv-cache", "640tok", "--cpu-kv-cache", "8192tok", "--max-num-seqs", "7")


def take(page, path):
    page.screenshot(path=path)
    assert path.stat().st_size <= MAX_BYTES, f"{path}: {path.stat().st_size} bytes"
    print(f"{path}: {path.stat().st_size // 1000} KB")


def chat_pictures(browser, server, folder):
    for scheme in ("light", "dark"):
        chat = ChatPage(browser, server.url, viewport=SIZE, color_scheme=scheme)
        chat.ask("Name three rivers.", max_tokens=30)
        chat.page.click("#new")
        chat.ask(QUESTION, max_tokens=160)
        chat.ask(FOLLOW_UP, max_tokens=60)
        take(chat.page, folder / f"page_chat_{scheme}.png")
        chat.close()


def tiers_picture(browser, server, folder):
    streams = [server.open_stream(max_tokens=600, prompt="Once upon a time " * (4 + 7 * (i % 6)))
               for i in range(NUM_REQUESTS)]
    chat = ChatPage(browser, server.url + "/#tiers", viewport={"width": 1000, "height": 1000}, color_scheme="light")
    expect(chat.page.locator("#cpu-tier .bars li.decode").nth(2)).to_be_visible(timeout=ANSWER_MS)
    # Rates need some seconds.
    time.sleep(8)
    take(chat.page, folder / "page_tiers.png")
    chat.close()
    for stream in streams:
        stream.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/img")
    arguments = parser.parse_args()
    binary = os.environ.get("TANDEM_BINARY", str(ROOT / "build/host-release/tandem"))
    with TandemServer(binary, arguments.model, *FLAGS) as server, launch_browser() as browser:
        chat_pictures(browser, server, arguments.out)
        tiers_picture(browser, server, arguments.out)


if __name__ == "__main__":
    main()
