"""What one server makes of agents that resume at once, and of a long request beside short ones: timed streams."""

import asyncio
import random
import sys
import time
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "peers"))
from agents_load import gaps_s  # noqa: E402
from completion_client import completion_body, require_length, stream_completion  # noqa: E402
from repeats import percentile  # noqa: E402

# Ids below: every model has so many.
PROMPT_VOCAB_SIZE = 1000
SHORT_PROMPT_TOKENS, SHORT_OUTPUT_TOKENS = 128, 200
LONG_OUTPUT_TOKENS = 32
# Short streams that run before the long request comes.
SECONDS_BEFORE = 2.0


def random_tokens(seed, count):
    return random.Random(seed).choices(range(PROMPT_VOCAB_SIZE), k=count)


def reset_prefix_cache(url):
    request = urllib.request.Request(url + "/reset_prefix_cache", method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        reply.read()


def read_counters(url, names):
    """Each counter summed over its labels."""
    with urllib.request.urlopen(url + "/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    sums = dict.fromkeys(names, 0.0)
    for line in lines:
        name, _, rest = line.partition("{")
        if name in sums:
            sums[name] += float(rest.rpartition(" ")[2])
    return sums


class Prompts:
    """Streams of one server and model. What goes wrong is a RuntimeError."""

    def __init__(self, url, model):
        self._url = url
        self._model = model

    async def stream(self, prompt, num_tokens, **extra):
        try:
            stream = await stream_completion(self._url, completion_body(self._model, prompt, num_tokens, extra))
            require_length(stream, num_tokens)
        except SystemExit as error:
            raise RuntimeError(str(error)) from None
        return stream

    async def first_tokens_s(self, prompts, salts=None):
        """(seconds to the first token, cached tokens) of prompts that are sent at once, a token each."""
        extras = [{"cache_salt": salt} for salt in salts] if salts else [{}] * len(prompts)
        streams = await asyncio.gather(
            *(self.stream(prompt, 1, **extra) for prompt, extra in zip(prompts, extras, strict=True))
        )
        return [(each["first"] - each["start"], cached_tokens(each)) for each in streams]


def cached_tokens(stream):
    return (stream["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def run_with_limit(coroutine, seconds):
    """Its result. A stream that goes wrong, or no end in time, is a RuntimeError."""
    try:
        return asyncio.run(asyncio.wait_for(coroutine, seconds))
    except asyncio.TimeoutError:
        raise RuntimeError(f"not done after {seconds:.0f} s") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise RuntimeError(str(error)) from None


def summarize_resumes(first_tokens):
    seconds = [each for each, _ in first_tokens]
    return {
        "requests": len(seconds),
        "median_ttft_ms": 1e3 * percentile(seconds, 0.5),
        "p99_ttft_ms": 1e3 * percentile(seconds, 0.99),
        "cached_tokens": sum(cached for _, cached in first_tokens),
    }


async def resume(prompts, url, num_agents, shared, history, new, rounds, seed):
    """Agents that come back with `new` tokens behind a history, whose first `shared` tokens all have in common: at once
    and alone; the same in full, with nothing cached nor shared."""
    found = {"resumed": [], "in_full": [], "alone_resumed": [], "alone_in_full": []}
    for index in range(rounds):
        first = seed + 1000 * index
        system = random_tokens(first, shared)
        histories = [system + random_tokens(first + 1 + agent, history - shared) for agent in range(num_agents)]
        turns = [each + random_tokens(first + 200 + agent, new) for agent, each in enumerate(histories)]
        salts = [f"{first} {agent}" for agent in range(num_agents)]
        reset_prefix_cache(url)
        # As in a session: each begins alone, when what all have in common is known.
        for each in histories:
            await prompts.first_tokens_s([each])
        found["resumed"] += await prompts.first_tokens_s(turns)
        # They all have paused again.
        for agent, each in enumerate(histories):
            other_turn = each + random_tokens(first + 400 + agent, new)
            found["alone_resumed"] += await prompts.first_tokens_s([other_turn])
        found["in_full"] += await prompts.first_tokens_s(turns, salts)
        for agent in range(2):
            found["alone_in_full"] += await prompts.first_tokens_s(turns[agent : agent + 1], [f"{salts[agent]} alone"])
    return {name: summarize_resumes(each) for name, each in found.items()}


async def long_request(prompts, num_tokens, num_short, seed, seconds):
    """A request of num_tokens, output included, beside short streams that follow each other; given up after so long."""
    over = asyncio.Event()
    streams = []

    async def short_ones(index):
        number = 0
        while not over.is_set():
            prompt = random_tokens(seed + 1 + index + num_short * number, SHORT_PROMPT_TOKENS)
            streams.append(await prompts.stream(prompt, SHORT_OUTPUT_TOKENS, return_token_ids=True))
            number += 1

    tasks = [asyncio.create_task(short_ones(index)) for index in range(num_short)]
    try:
        await asyncio.sleep(SECONDS_BEFORE)
        begin = time.perf_counter()
        prompt = random_tokens(seed, num_tokens - LONG_OUTPUT_TOKENS)
        tasks.append(asyncio.create_task(prompts.stream(prompt, LONG_OUTPUT_TOKENS)))
        # Short ones that end by themselves have failed.
        ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        end = time.perf_counter()
        over.set()
        await asyncio.gather(*(tasks[:num_short]))
        long_stream = tasks[-1].result() if tasks[-1] in ended else None
    finally:
        for task in tasks:
            task.cancel()
    return summarize_long(begin, end, long_stream, streams)


def summarize_long(begin, end, long_stream, short_streams):
    """Gaps count that end while the long request was there. long_stream: None if it was given up."""
    gaps, waits = [], []
    for stream in short_streams:
        inside = zip(stream["times"][1:], gaps_s(stream["times"]))
        gaps += [gap for at, gap in inside if begin <= at <= end]
        if begin <= stream["first"] <= end:
            waits.append(stream["first"] - stream["start"])
    def milliseconds(value):
        return None if value is None else 1e3 * value

    served = {"served": long_stream is not None, "seconds": end - begin}
    if long_stream:
        usage, times = long_stream["usage"], long_stream["times"]
        served["prompt_tokens"] = usage["prompt_tokens"]
        served["prefill_s"] = times[0] - begin
        served["token_ms"] = milliseconds((times[-1] - times[0]) / max(1, usage["completion_tokens"] - 1))
    return {
        **served,
        "short_requests": len(waits),
        "short_gaps": len(gaps),
        "short_gap_median_ms": milliseconds(percentile(gaps, 0.5)),
        "short_gap_p99_ms": milliseconds(percentile(gaps, 0.99)),
        "short_gap_max_ms": milliseconds(max(gaps, default=None)),
        "short_ttft_max_ms": milliseconds(max(waits, default=None)),
    }
