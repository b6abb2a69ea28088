"""Traces: what a receiver of OTLP gets to see of requests, and that no request waits for it."""

import contextlib
import json
import os
import ssl
import time

import pytest
from certificates import Certificate
from otlp_collector import Collector
from tandem_server import MODEL_NAME, TandemServer, free_port, read_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SERVER_KIND, INTERNAL_KIND = 2, 1
PHASES = ["queue", "prefill", "decode"]


@pytest.fixture(scope="module", autouse=True)
def environment():
    """None of the variables that the tests' own environment may have."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("OTEL_"):
                patch.delenv(name)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield


@pytest.fixture(scope="module")
def collector():
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def server(binary, model_path, collector, environment):
    with TandemServer(binary, model_path, "--otlp-traces-endpoint", collector.url) as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


def traced(server, path="/v1/completions", headers=None, **fields):
    """The answer and its X-Request-Id."""
    body = {"prompt": "Hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields}
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    status, answer_headers, answer = server.request("POST", path, body, headers)
    return status, json.loads(answer), answer_headers["X-Request-Id"]


def traceparent(flags="01"):
    return {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}


def by_phase(spans):
    assert sorted(span.name for span in spans) == sorted(PHASES)
    return [next(span for span in spans if span.name == phase) for phase in PHASES]


def wait_ended(server, num_before):
    deadline = time.monotonic() + 30
    while server.metrics()["vllm:request_success_total"] == num_before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_spans_are_below_the_callers(server, collector):
    status, answer, request_id = traced(server, headers={**traceparent(), "tracestate": "rojo=1, congo=2"})
    assert status == 200
    span, children = collector.trace_of(request_id)
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, PARENT, SERVER_KIND)
    assert span.trace_state == "rojo=1,congo=2"
    assert span.name == f"text_completion {MODEL_NAME}"
    assert span.resource["service.name"] == "tandem" and span.resource["service.version"]
    for child in by_phase(children):
        assert (child.trace_id, child.trace_state, child.kind) == (TRACE, span.trace_state, INTERNAL_KIND)
    assert len({each.span_id for each in [span, *children]}) == 4
    told = span.attributes
    assert told["gen_ai.response.id"] == answer["id"]
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == MODEL_NAME
    assert told["gen_ai.operation.name"] == "text_completion"
    assert told["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"] == 8
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    assert told["http.response.status_code"] == 200
    assert span.status == {}


def test_spans_name_the_answer_as_its_client_does(server, collector):
    chat = [{"role": "user", "content": "Hello"}]
    for path, body, beginning in (("/v1/responses", {"input": "Hello", "max_output_tokens": 4}, "resp_"),
                                  ("/v1/messages", {"messages": chat, "max_tokens": 4}, "msg_"),
                                  ("/v1/chat/completions", {"messages": chat, "max_tokens": 4}, "chatcmpl-")):
        status, headers, answer = server.request("POST", path, body)
        assert status == 200, answer
        span, _ = collector.trace_of(headers["X-Request-Id"])
        answer_id = json.loads(answer)["id"]
        assert answer_id.startswith(beginning)
        assert span.attributes["gen_ai.response.id"] == answer_id


def test_embeddings_have_spans(server, collector):
    body = {"input": [[1, 2, 3], [4]], "dimensions": 8}
    status, headers, answer = server.request("POST", "/v1/embeddings", body, traceparent())
    assert status == 200, answer
    span, children = collector.trace_of(headers["X-Request-Id"])
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, PARENT, SERVER_KIND)
    assert span.name == f"embeddings {MODEL_NAME}"
    told = span.attributes
    assert told["gen_ai.operation.name"] == "embeddings" and told["gen_ai.embeddings.dimension.count"] == 8
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (4, 0)
    assert told["gen_ai.response.finish_reasons"] == ["stop", "stop"]
    assert sorted(child.name for child in children) == ["prefill", "prefill", "queue", "queue"]
    status, headers, _ = server.request("POST", "/v1/embeddings", {"input": ""})
    assert status == 400
    assert collector.trace_of(headers["X-Request-Id"])[0].attributes["http.response.status_code"] == 400


def test_times_are_those_of_the_request_and_of_the_metrics(server, collector):
    server.wait_idle()
    before = server.metrics()
    started_ns = time.time_ns()
    _, _, request_id = traced(server, max_tokens=40, prompt="word " * 200)
    ended_ns = time.time_ns()
    after = server.wait_idle()
    span, children = collector.trace_of(request_id)
    queue, prefill, decode = by_phase(children)
    slack_ns = 20_000_000  # the clocks of the day and of durations may part by so much
    assert started_ns - slack_ns <= span.start <= span.end <= ended_ns + slack_ns
    assert span.start == queue.start <= queue.end == prefill.start <= prefill.end == decode.start
    assert decode.start < decode.end <= span.end
    assert prefill.seconds > 0
    # What is behind the last token is the answer's writing.
    assert sum(child.seconds for child in children) == pytest.approx(span.seconds, abs=0.1)
    for phase, child in zip(PHASES, (queue, prefill, decode)):
        name = f"vllm:request_{phase}_time_seconds_sum"
        assert child.seconds == pytest.approx(after[name] - before[name], abs=1e-5), phase
    name = "vllm:e2e_request_latency_seconds_sum"
    assert (decode.end - span.start) / 1e9 == pytest.approx(after[name] - before[name], abs=1e-5)


@pytest.mark.parametrize("strategy,tier", [("gpu-only", "gpu"), ("full-offload", "cpu")])
def test_tiers(start_server, collector, strategy, tier):
    running = start_server("--strategy", strategy, "--otlp-traces-endpoint", f"{collector.url}/v1/traces")
    _, _, request_id = traced(running)
    span, children = collector.trace_of(request_id)
    _, prefill, decode = by_phase(children)
    assert prefill.attributes["tandem.kv.tier"] == tier
    assert decode.attributes["tandem.kv.tiers"] == span.attributes["tandem.kv.tiers"] == [tier]
    assert decode.attributes["tandem.kv.cpu_tier_tokens"] == (8 if tier == "cpu" else 0)
    assert running.metrics()["tandem:cpu_tier_tokens_total"] == decode.attributes["tandem.kv.cpu_tier_tokens"]


@pytest.mark.parametrize("header", [None, "", "00-short", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01",
                                    f"00-{TRACE.upper()}-{PARENT}-01"])
def test_without_a_valid_traceparent_a_trace_begins(server, collector, header):
    headers = {"tracestate": "a=1"} if header is None else {"traceparent": header, "tracestate": "a=1"}
    _, _, request_id = traced(server, headers=headers)
    span, children = collector.trace_of(request_id)
    assert span.parent_id is None and span.trace_state is None
    assert span.trace_id.lower() != TRACE and int(span.trace_id, 16) != 0
    assert {child.trace_id for child in children} == {span.trace_id}


def test_what_the_caller_does_not_record_is_not_sent(server, collector):
    _, _, unsampled = traced(server, headers=traceparent("00"))
    _, _, sampled = traced(server, headers=traceparent("01"))
    collector.trace_of(sampled)
    assert not [span for span in collector.spans() if span.attributes.get("tandem.request.id") == unsampled]


def test_a_streamed_chat(server, collector):
    request_id = "stream-1"
    status, _, answer = server.request(
        "POST", "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "stream": True, "ignore_eos": True},
        {**traceparent(), "X-Request-Id": request_id})
    assert status == 200 and b"[DONE]" in answer
    span, children = collector.trace_of(request_id)
    _, prefill, decode = by_phase(children)
    assert span.name == f"chat {MODEL_NAME}"
    assert span.attributes["gen_ai.request.stream"] is True
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(
        (decode.start - span.start) / 1e9, abs=1e-5)
    assert decode.attributes["gen_ai.usage.output_tokens"] == 5
    assert prefill.attributes["gen_ai.usage.input_tokens"] == span.attributes["gen_ai.usage.input_tokens"] > 0


def test_each_sequence_has_its_phases(server, collector):
    _, answer, request_id = traced(server, prompt=["Hello", "Once upon"], n=2, temperature=1)
    span, children = collector.trace_of(request_id)
    assert sorted(child.name for child in children) == sorted(PHASES * 4)
    decodes = [child for child in children if child.name == "decode"]
    assert sorted(child.attributes["tandem.choice.index"] for child in decodes) == [0, 1, 2, 3]
    assert span.attributes["gen_ai.response.finish_reasons"] == ["length"] * 4
    assert span.attributes["gen_ai.request.choice.count"] == 2
    assert span.attributes["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"] == 32


def test_a_request_that_is_refused(server, collector):
    status, answer, request_id = traced(server, temperature=5)
    assert status == 400
    span, children = collector.trace_of(request_id)
    assert children == [] and span.name == "POST /v1/completions"
    assert span.attributes["http.response.status_code"] == 400
    assert span.attributes["error.type"] == answer["error"]["code"]
    assert span.status == {}, "the client's error, not the server's"


def test_a_client_that_leaves(server, collector):
    before = server.metrics()["vllm:request_success_total"]
    stream = server.open_stream(max_tokens=900)
    read_until(stream, b"data:")
    stream.close()
    wait_ended(server, before)
    [span] = [each for each in collector.wait(lambda spans: [
        each for each in spans if each.attributes.get("error.type") == "client_gone"])
        if each.attributes.get("error.type") == "client_gone"]
    assert span.attributes["gen_ai.response.finish_reasons"] == ["abort"]
    assert 0 < span.attributes["gen_ai.usage.output_tokens"] < 900


def test_spans_that_were_sent_are_counted(server, collector):
    before = server.metrics()["tandem:trace_spans_sent_total"]
    _, _, request_id = traced(server)
    collector.trace_of(request_id)
    deadline = time.monotonic() + 10
    while server.metrics()["tandem:trace_spans_sent_total"] < before + 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert server.metrics()["tandem:trace_spans_dropped_total"] == 0


def test_standard_variables(start_server, monkeypatch):
    with Collector([503, 429]) as own:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", own.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-service")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret")
        running = start_server()
        _, _, request_id = traced(running)
        span, children = own.trace_of(request_id)
        by_phase(children)
        assert [status for *_, status in own.requests] == [503, 429, 200], "a busy receiver is asked again"
        assert {path for path, *_ in own.requests} == {"/v1/traces"}
        assert {headers["api-key"] for _, headers, *_ in own.requests} == {"a secret"}
        assert span.resource["service.name"] == "my-service"
        assert span.resource["deployment.environment.name"] == "test"


@pytest.mark.parametrize("sampler,recorded", [
    ("always_off", []), ("always_on", ["none", "unsampled", "sampled"]), ("parentbased_always_off", ["sampled"])])
def test_samplers(start_server, monkeypatch, sampler, recorded):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    with Collector() as own:
        running = start_server("--otlp-traces-endpoint", own.url)
        for name, headers in (("none", {}), ("unsampled", traceparent("00")), ("sampled", traceparent("01"))):
            traced(running, headers={**headers, "X-Request-Id": name})
        running.close()  # sends what is left
        seen = {span.attributes.get("tandem.request.id") for span in own.spans()} - {None}
        assert seen == set(recorded)


def test_the_end_sends_what_is_left(start_server, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with Collector([503]) as own:
        running = start_server("--otlp-traces-endpoint", own.url)
        for _ in range(3):
            traced(running)
        assert own.requests == []
        running.close()
        assert len(own.spans()) == 12


def test_no_request_waits_for_a_receiver_that_hangs(start_server, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    with Collector() as own:
        own.hangs.set()
        running = start_server("--otlp-traces-endpoint", own.url)
        seconds = []
        for _ in range(30):
            before = time.monotonic()
            assert traced(running, max_tokens=1)[0] == 200
            seconds.append(time.monotonic() - before)
        assert max(seconds) < 5
        dropped = running.metrics()['tandem:trace_spans_dropped_total{reason="queue_full"}']
        # Of 120, those on their way and those in the queue are not.
        assert 120 - 20 - 20 <= dropped < 120
        assert dropped % 4 == 0, "whole requests"
        before = time.monotonic()
        running.close()
        assert time.monotonic() - before < 15, "the end has a deadline"


def test_a_receiver_that_is_not_there_is_no_matter(start_server):
    running = start_server("--otlp-traces-endpoint", f"http://127.0.0.1:{free_port()}")
    assert traced(running)[0] == 200
    before = time.monotonic()
    running.terminate()
    assert running.process.wait(20) == 0
    assert time.monotonic() - before < 10
    assert "no spans reach" in running.errors()


def test_tls(start_server, monkeypatch, tmp_path):
    certificate = Certificate(tmp_path, "collector")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificate.certificate))
    with Collector(tls=context) as own:
        running = start_server("--otlp-traces-endpoint", own.url)
        _, _, request_id = traced(running)
        own.trace_of(request_id)


@pytest.mark.parametrize("variables", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_nothing_is_sent_where_nobody_wants_it(start_server, monkeypatch, variables):
    with Collector() as own, contextlib.ExitStack() as ended:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        running = start_server(*(["--otlp-traces-endpoint", own.url] if variables else []))
        ended.callback(running.close)
        assert traced(running, headers=traceparent())[0] == 200
        assert not [name for name in running.metrics() if "trace_spans" in name]
        ended.close()
        assert own.requests == []
