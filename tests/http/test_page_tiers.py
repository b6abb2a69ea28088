"""The page's view of both tiers under load, with the real server and model."""

import json
import re

import pytest
from browser_testing import ANSWER_MS, ChatPage, browser  # noqa: F401
from playwright.sync_api import expect

NUM_RUNNING, NUM_REQUESTS = 3, 5


@pytest.fixture
def loaded(start_server):
    """A server whose cpu tier has requests, with others behind them."""
    server = start_server("--strategy", "full-offload", "--gpu-kv-cache", "4096tok", "--cpu-kv-cache", "8192tok",
                          "--max-num-seqs", str(NUM_RUNNING), "--profile-seconds", "2")
    streams = [server.open_stream(max_tokens=900) for _ in range(NUM_REQUESTS)]
    yield server, streams
    for stream in streams:
        stream.close()


def number(text):
    return float(re.search(r"[0-9][0-9,.]*", text)[0].replace(",", ""))


def test_under_load(loaded, browser):
    server, streams = loaded
    chat = ChatPage(browser, server.url + "/#tiers")
    page = chat.page
    bars = page.locator("#cpu-tier .bars li.decode")
    expect(bars).to_have_count(NUM_RUNNING, timeout=ANSWER_MS)
    expect(page.locator("#queue .bars li.waiting")).to_have_count(NUM_REQUESTS - NUM_RUNNING)
    expect(page.locator("#queue-count")).to_have_text(f"{NUM_REQUESTS - NUM_RUNNING} wait")
    expect(page.locator("#gpu-tier .bars li")).to_have_count(0)
    # The numbers are those of one moment, and /metrics has the same tiers.
    used, held = page.evaluate("""[
      document.getElementById("cpu-blocks").textContent,
      [...document.querySelectorAll("#cpu-tier .bar-text")].map((bar) => Number(/([0-9]+) blocks/.exec(bar.textContent)[1])),
    ]""")
    assert number(used) == sum(held) > 0
    metrics = server.metrics()
    assert metrics["vllm:num_requests_running"] == NUM_RUNNING
    total = next(value for name, value in metrics.items() if name.startswith("tandem:kv_blocks{") and 'tier="cpu"' in name)
    assert f"of {total:.0f} blocks" in used
    # It moves.
    before = page.inner_text("#cpu-tier .bar-text >> nth=0")
    expect(page.locator("#cpu-tier .bar-text").first).not_to_have_text(before, timeout=ANSWER_MS)
    expect(page.locator("#generated-rate")).to_have_text(re.compile(r"^[1-9][0-9.]* /s$"), timeout=ANSWER_MS)
    expect(page.locator("#cpu-tier-share")).to_have_text("100 %", timeout=ANSWER_MS)
    expect(page.locator("#cpu-busy")).to_have_text(re.compile(r"^[0-9]+ %$"))
    expect(page.locator("#bound")).not_to_be_empty()
    expect(page.locator("#strategy h2")).to_have_text("Strategy: full-offload")
    expect(page.locator("#strategy tbody")).to_contain_text("full-offload")
    assert number(page.inner_text("#predicted")) > 0 and number(page.inner_text("#measured")) > 0
    expect(page.locator("#latency-inter_token_latency td").last).not_to_have_text("0", timeout=ANSWER_MS)

    lanes = page.locator("#timeline .lane-name")
    expect(lanes.first).to_have_text("compute stream", timeout=ANSWER_MS)
    assert {"compute stream", "cpu attention", "engine thread"} <= set(lanes.all_inner_texts())
    page.click("#timeline-hold")
    held_text = page.inner_text("#timeline-length")
    with page.expect_download() as download:
        page.click("#timeline-download")
    trace = json.loads(download.value.path().read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {names[span["tid"]] for span in spans} >= {"gpu", "cpu attention", "engine"}
    assert min(span["ts"] for span in spans) == 0
    assert max(span["ts"] + span["dur"] for span in spans) / 1000 == pytest.approx(number(held_text), rel=0.05)
    assert download.value.suggested_filename.endswith(".json")
    assert page.inner_text("#timeline-length") == held_text

    chat.check_accessible()
    for stream in streams:
        stream.close()
    expect(page.locator("#tiers .bars li")).to_have_count(0, timeout=ANSWER_MS)
    expect(page.locator("#queue-count")).to_have_text("Nobody waits.")
    expect(page.locator("#cpu-blocks")).to_contain_text("0 of")
    expect(page.locator("#bound")).to_have_text("Nothing to do.")

    # Nobody looks any more: the server is told.
    with page.expect_event("requestfailed", predicate=lambda request: request.url.endswith("/tiers")):
        page.click("#show-chat")
    # The server ends: the view says so.
    page.click("#show-tiers")
    expect(page.locator("#tiers-state")).to_be_hidden()
    server.terminate()
    server.process.wait(20)
    expect(page.locator("#tiers-state")).to_have_text("The server does not answer.", timeout=ANSWER_MS)
    chat.close()
