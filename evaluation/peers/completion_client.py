"""A small client for OpenAI-compatible servers: streamed completions, timed token by token."""

import asyncio
import json
import random
import time
import urllib.parse
import urllib.request

from server_process import CpuMeter

WORDS = """amber anchor apple arch autumn basket beacon bell birch bread bridge candle canvas castle cedar chalk
circle cloud copper coral cotton creek crown dawn desert drum eagle echo ember engine fable falcon feather field
flute forest fountain garden glacier granite harbor hazel hill honey island ivory jacket kettle ladder lantern
lemon letter lily linen lunar maple marble market meadow mirror morning mountain needle north oak ocean olive
orchard paper pearl pepper pillar plain planet plum pocket prairie quartz rain ribbon river road rose saddle
sail salt scarlet shadow silver smoke spring stone storm summer table thunder timber tower train valley velvet
village violet walnut water wheat willow window winter wool yellow""".split()


def random_prompt(rng):
    """Between about 64 and 128 tokens: nearly every word is one token."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(60, 110)))


def model_name(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=30) as reply:
        return json.load(reply)["data"][0]["id"]


async def read_body_lines(reader, chunked):
    """Lines of an HTTP/1.1 body, either chunked or ended by the connection."""
    pending = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0], 16)
            data = await reader.readexactly(size) if size else b""
            await reader.readline()
        else:
            data = await reader.read(65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")


async def stream_completion(url, body):
    """Sends one request. Returns its start, first-token and last-token times (seconds), those of all events with tokens
    (a text, or ids where return_token_ids asks for them) and usage."""
    address = urllib.parse.urlsplit(url)
    payload = json.dumps(body).encode()
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80, limit=1 << 20)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + payload)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    chunked = False
    while (line := (await reader.readline()).strip().lower()) != b"":
        chunked |= line.startswith(b"transfer-encoding:") and b"chunked" in line
    if status != 200:
        raise SystemExit(f"{url} answered {status}: {(await reader.read(2000)).decode(errors='replace')}")
    times, usage, done = [], None, False
    async for line in read_body_lines(reader, chunked):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            raise SystemExit(f"{url}: {event['error']}")
        usage = event.get("usage") or usage
        if any(choice.get("text") or choice.get("token_ids") for choice in event.get("choices", [])):
            times.append(time.perf_counter())
    writer.close()
    if not done or not times:
        raise SystemExit(f"{url}: the stream ended early after {len(times)} pieces")
    if usage is None:
        raise SystemExit(f"{url}: no usage in the stream; stream_options.include_usage is needed")
    return {"start": start, "first": times[0], "last": times[-1], "times": times, "usage": usage}


def completion_body(model, prompt, num_tokens, extra):
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    } | extra


def require_length(stream, num_tokens):
    produced = stream["usage"]["completion_tokens"]
    if produced != num_tokens:
        raise SystemExit(f"asked for {num_tokens} tokens and got {produced}: is ignore_eos obeyed?")


def measure_single(url, model, seed, num_tokens, extra, server):
    """Decode rate of one stream alone."""
    body = completion_body(model, random_prompt(random.Random(seed)), num_tokens, extra)
    meter = CpuMeter(server.pid)
    stream = asyncio.run(stream_completion(url, body))
    share = meter.other_share()
    require_length(stream, num_tokens)
    return {
        "tok_s": (num_tokens - 1) / (stream["last"] - stream["first"]),
        "ttft_ms": (stream["first"] - stream["start"]) * 1e3,
        "prompt_tokens": stream["usage"]["prompt_tokens"],
        "stream_pieces": len(stream["times"]),
        "other_cpu_share": share,
    }


def measure_concurrent(url, model, seed, num_streams, num_tokens, extra, server):
    """Total output rate of streams that start together, prompts included in the time."""
    rng = random.Random(seed + 100_000)
    bodies = [completion_body(model, random_prompt(rng), num_tokens, extra) for _ in range(num_streams)]

    async def run():
        return await asyncio.gather(*(stream_completion(url, body) for body in bodies))

    meter = CpuMeter(server.pid)
    streams = asyncio.run(run())
    share = meter.other_share()
    for stream in streams:
        require_length(stream, num_tokens)
    elapsed = max(s["last"] for s in streams) - min(s["start"] for s in streams)
    ttft = sorted((s["first"] - s["start"]) * 1e3 for s in streams)
    return {
        "tok_s": num_streams * num_tokens / elapsed,
        "duration_s": elapsed,
        "median_ttft_ms": ttft[len(ttft) // 2],
        "prompt_tokens": sum(s["usage"]["prompt_tokens"] for s in streams),
        "other_cpu_share": share,
    }
