"""Writes first inputs of a fuzzer: make_seeds.py generation_request|http_connection|answer_text FOLDER."""

import json
import pathlib
import sys

CONVERSATIONS = pathlib.Path(__file__).parents[1] / "fixtures/chat_templates/conversations.json"
EVERYTHING = {
    "model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": -1, "n": 2,
    "stop": ["a", "b"], "stop_token_ids": [1], "logit_bias": {"5": -100}, "min_tokens": 1, "ignore_eos": True,
    "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "stream": True,
    "stream_options": {"include_usage": True}, "skip_special_tokens": False, "service_tier": "flex",
    "response_format": {"type": "text"}, "bad_words": ["x"], "allowed_token_ids": [1, 2], "truncate_prompt_tokens": 3,
    "chat_template_kwargs": {"enable_thinking": False}, "metadata": {"a": "b"}, "temprature": 1,
}


def generation_requests():
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    conversations = json.loads(CONVERSATIONS.read_text())
    for conversation in conversations.values() if isinstance(conversations, dict) else conversations:
        yield b"\0", conversation if isinstance(conversation, dict) else {"messages": conversation}
    yield b"\0", {"messages": messages, "tools": tools, "logprobs": True, "top_logprobs": 2, **EVERYTHING}
    yield b"\0", {"messages": [*messages, {"role": "assistant", "content": "A"}], "continue_final_message": True}
    for prompt in ("Hello", ["a", "b"], [1, 2, 3], [[1], [2]]):
        yield b"\1", {"prompt": prompt, "logprobs": 2, "echo": True, **EVERYTHING}


def http_connections():
    body = b'{"prompt": "x"}'
    length = b"Content-Length: %d\r\n" % len(body)
    yield b"\0", b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n" + length + b"\r\n" + body
    yield b"\7", b"POST /stream HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n" + length + b"\r\n" + body
    yield b"\0", b"GET /a%2fb?c=d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 3
    yield b"\0", b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n"
    yield b"\3", b"OPTIONS http://h:1/p HTTP/1.1\r\nHost: t\r\nOrigin: http://o\r\nAuthorization: Bearer k\r\n\r\n"
    yield b"\0", b"HEAD / HTTP/1.1\r\nHost: t\r\nX-Request-Id: 1\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"


def answers():
    f, get = '{"name": "f", "arguments": {"a": "}"}}', '{"arguments": {"b": [1]}, "name": "get"}'
    texts = [
        f"Text\n<tool_call>\n{f}\n</tool_call>\n<tool_call>[{get}, {f}]</tool_call> more",
        f"{f}; {f.replace('arguments', 'parameters')}<|python_tag|>{get}",
        "[f(a=1, b='x\\n', c=[True, {'d': None}]), get()]<|python_start|>[f()]<|python_end|>",
        f'[TOOL_CALLS] [{f}, {get}][TOOL_CALLS]f[ARGS]{{"a": {{}}}}[TOOL_CALLS]get[CALL_ID]x[ARGS]{{}}',
    ]
    for form in range(6):
        for reasoning in (0, 0x40, 0xC0):
            # How they are read is the first byte modulo 6.
            first = next(byte for byte in range(reasoning, reasoning + 0x40) if byte % 6 == form)
            for text in texts:
                yield bytes([first, 3, 5, 1, 7]), f"<think>\nhm\n</think>\n\n{text}".encode()
                yield bytes([first, 0]), text.encode()


def main():
    kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    inputs = {"generation_request": generation_requests, "http_connection": http_connections, "answer_text": answers}[kind]()
    for index, (first, content) in enumerate(inputs):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / f"seed{index}").write_bytes(first + data)


main()
