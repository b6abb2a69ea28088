"""Metrics: all that dashboards and routers made for vLLM read has data, and what is counted is what was done."""

import math
import socket
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tandem_server import BY_HEART, MODEL_NAME, TandemServer, read_until

# What queries read, and by which function: `rate` of a counter or of a histogram's sum, `mean` as the quotient of the
# rates of sum and count, `quantile` and `heatmap` of the buckets' rates, `gauge` as it is, `info` by its labels.
# Of vLLM's examples/online_serving/prometheus_grafana/grafana.json; each query selects by model_name.
VLLM_GRAFANA = [
    ("vllm:e2e_request_latency_seconds", "quantile"),
    ("vllm:e2e_request_latency_seconds", "mean"),
    ("vllm:prompt_tokens_total", "rate"),
    ("vllm:generation_tokens_total", "rate"),
    ("vllm:time_per_output_token_seconds", "quantile"),
    ("vllm:time_per_output_token_seconds", "mean"),
    ("vllm:num_requests_running", "gauge"),
    ("vllm:num_requests_waiting", "gauge"),
    ("vllm:time_to_first_token_seconds", "quantile"),
    ("vllm:time_to_first_token_seconds", "mean"),
    ("vllm:gpu_cache_usage_perc", "gauge"),
    ("vllm:request_prompt_tokens", "heatmap"),
    ("vllm:request_generation_tokens", "heatmap"),
    ("vllm:request_queue_time_seconds_sum", "rate"),
    ("vllm:request_prefill_time_seconds_sum", "rate"),
    ("vllm:request_decode_time_seconds_sum", "rate"),
    ("vllm:request_max_num_generation_tokens_sum", "rate"),
]
# Of vLLM's examples/observability/dashboards/grafana/{performance_statistics,query_statistics,vllm_overview}.json,
# what the one above does not have.
VLLM_DASHBOARDS = [
    ("vllm:inter_token_latency_seconds", "quantile"),
    ("vllm:request_prompt_tokens", "quantile"),
    ("vllm:request_success_total", "rate"),
]
# Of vLLM's vllm/v1/metrics/loggers.py, read by benchmarks and autoscalers.
VLLM_LOGGERS = [
    ("vllm:kv_cache_usage_perc", "gauge"),
    ("vllm:request_inference_time_seconds", "quantile"),
    ("vllm:request_queue_time_seconds", "quantile"),
    ("vllm:request_prefill_time_seconds", "quantile"),
    ("vllm:request_decode_time_seconds", "quantile"),
    ("vllm:request_max_num_generation_tokens", "heatmap"),
    ("vllm:request_params_n", "heatmap"),
    ("vllm:request_params_max_tokens", "heatmap"),
    ("vllm:request_time_per_output_token_seconds", "quantile"),
    ("vllm:iteration_tokens_total", "mean"),
    ("vllm:iteration_tokens_total", "quantile"),
    ("vllm:num_preemptions_total", "zero"),
    ("vllm:prompt_tokens_cached_total", "rate"),
    ("vllm:prefix_cache_queries_total", "rate"),
    ("vllm:prefix_cache_hits_total", "rate"),
]
# Of the protocol between llm-d's endpoint picker and vLLM (llm-d.ai/docs, architecture, model servers, vLLM).
LLMD_ENDPOINT_PICKER = [
    ("vllm:num_requests_waiting", "gauge"),
    ("vllm:num_requests_running", "gauge"),
    ("vllm:kv_cache_usage_perc", "gauge"),
    ("vllm:cache_config_info", "info"),
]
QUERIES = VLLM_GRAFANA + VLLM_DASHBOARDS + VLLM_LOGGERS + LLMD_ENDPOINT_PICKER

# As Prometheus' clients name them (prometheus.io, writing client libraries, process metrics).
PROCESS_METRICS = {
    "process_cpu_seconds_total": "counter",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
    "process_virtual_memory_bytes": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_start_time_seconds": "gauge",
}

PHASES = ("queue", "prefill", "decode")


class Scrape:
    def __init__(self, server):
        status, headers, body = server.request("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        self.families = list(text_string_to_metric_families(body.decode()))
        self.samples = [sample for family in self.families for sample in family.samples]

    def of_model(self, name):
        """The samples that a dashboard's selection has."""
        return [each for each in self.samples if each.name == name and each.labels.get("model_name") == MODEL_NAME]

    def value(self, name, **labels):
        found = [each.value for each in self.samples
                 if each.name == name and all(each.labels.get(key) == value for key, value in labels.items())]
        assert found, f"no {name} {labels}"
        return sum(found)

    def buckets(self, name):
        """Cumulative, by upper bound."""
        return sorted((float(each.labels["le"]), each.value) for each in self.of_model(f"{name}_bucket"))


class Span:
    """What happened to a server in the block."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.server.wait_idle()
        self.before = Scrape(self.server)
        return self

    def __exit__(self, *unused):
        self.server.wait_idle()
        self.after = Scrape(self.server)

    def increase(self, name, **labels):
        return self.after.value(name, **labels) - self.before.value(name, **labels)

    def buckets(self, name):
        before = dict(self.before.buckets(name))
        return [(bound, count - before[bound]) for bound, count in self.after.buckets(name)]

    def seconds(self, phase):
        return self.increase(f"vllm:request_{phase}_time_seconds_sum")


def histogram_quantile(quantile, buckets):
    """As in Prometheus: linear within the bucket."""
    assert buckets and buckets[-1][0] == math.inf
    rank = quantile * buckets[-1][1]
    below_bound, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > 0:
            if bound == math.inf:
                return below_bound
            return below_bound + (bound - below_bound) * (rank - below) / (count - below)
        below_bound, below = bound, count
    return math.nan


def cancel_at_once(server):
    """Leaves before any answer can have begun."""
    server.open_stream(prompt="word " * 900, max_tokens=100).close()


def wait_ended(server, num_before, num):
    """Until so many more sequences have ended."""
    deadline = time.monotonic() + 30
    while server.metrics()["vllm:request_success_total"] < num_before + num:
        assert time.monotonic() < deadline, "ended sequences are missing"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def mixed(server):
    """The metrics before and after requests of each kind."""
    with Span(server) as span:
        server.complete(max_tokens=12, ignore_eos=True)
        stream = server.open_stream(max_tokens=12)
        read_until(stream, b"[DONE]")
        stream.close()
        text = server.complete(max_tokens=20)["choices"][0]["text"]
        answer = server.complete(max_tokens=20, stop=[text[8:12]])
        assert answer["choices"][0]["finish_reason"] == "stop"
        server.complete(n=3, temperature=1)
        server.complete(max_tokens=0, echo=True)
        for _ in range(2):
            server.complete(prompt="again " * 100)
        ended = server.metrics()["vllm:request_success_total"]
        cancel_at_once(server)
        wait_ended(server, ended, 1)
    return span


@pytest.mark.parametrize("name,function", QUERIES)
def test_queries_have_data(mixed, name, function):
    if function in ("gauge", "info"):
        [sample] = mixed.after.of_model(name)
        assert function == "info" or sample.value >= 0
        if function == "info":
            assert sample.value == 1
            assert int(sample.labels["block_size"]) > 0
            assert int(sample.labels["num_gpu_blocks"]) > 0
    elif function == "zero":
        assert mixed.after.of_model(name)
        assert mixed.increase(name) == 0
    elif function == "rate":
        assert mixed.after.of_model(name)
        assert mixed.increase(name) > 0
    elif function == "mean":
        assert mixed.after.of_model(f"{name}_sum")
        assert mixed.increase(f"{name}_sum") / mixed.increase(f"{name}_count") > 0
    elif function == "heatmap":
        assert sum(count for _, count in mixed.buckets(name)) > 0
    else:
        assert function == "quantile"
        median, high = (histogram_quantile(quantile, mixed.buckets(name)) for quantile in (0.5, 0.99))
        assert 0 < median <= high < math.inf


def test_ends_are_told_apart_by_reason(mixed):
    increases = {reason: mixed.increase("vllm:request_success_total", finished_reason=reason)
                 for reason in ("stop", "length", "abort", "error")}
    # Three of n; the prompt that is scored only ends by its length, too.
    assert increases["stop"] + increases["length"] == 10
    assert increases["stop"] >= 1 and increases["length"] >= 2
    assert increases["abort"] == 1
    assert increases["error"] == 0


def test_gauges_move_while_requests_run_and_wait(start_server):
    server = start_server("--max-num-seqs", "1")
    streams = [server.open_stream(max_tokens=900)]
    read_until(streams[0], b"data: ")
    streams += [server.open_stream(max_tokens=900) for _ in range(2)]
    deadline = time.monotonic() + 20
    while (scrape := Scrape(server)).value("vllm:num_requests_waiting") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert scrape.value("vllm:num_requests_running") == 1
    assert 0 < scrape.value("vllm:kv_cache_usage_perc") < 1
    assert 0 < scrape.value("vllm:gpu_cache_usage_perc") < 1
    for stream in streams:
        stream.close()
    server.wait_idle()


def test_a_scrape_is_well_formed(mixed):
    names = [family.name for family in mixed.after.families]
    assert len(names) == len(set(names))
    for family in mixed.after.families:
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram"), family.name
        if family.name.startswith("vllm:"):
            assert all(sample.labels["model_name"] == MODEL_NAME for sample in family.samples), family.name
        if family.type != "histogram":
            continue
        buckets = mixed.after.buckets(family.name)
        assert buckets[-1] == (math.inf, mixed.after.value(f"{family.name}_count"))
        counts = [count for _, count in buckets]
        assert counts == sorted(counts)


def test_iterations_hold_all_tokens(mixed):
    assert mixed.after.value("vllm:iteration_tokens_total_count") == mixed.after.value("tandem:iterations_total")
    computed = mixed.after.value("vllm:prompt_tokens_total") - mixed.after.value("vllm:prompt_tokens_cached_total")
    assert mixed.after.value("vllm:iteration_tokens_total_sum") == (
        computed + mixed.after.value("tandem:drawn_tokens_total"))


def check_phases(span):
    """The phases of requests that all got tokens follow each other without a gap."""
    e2e = span.increase("vllm:e2e_request_latency_seconds_sum")
    assert sum(span.seconds(phase) for phase in PHASES) == pytest.approx(e2e, abs=1e-6)
    assert span.seconds("prefill") + span.seconds("decode") == pytest.approx(span.seconds("inference"), abs=1e-6)
    num_ended = span.increase("vllm:e2e_request_latency_seconds_count")
    for phase in (*PHASES, "inference"):
        assert span.increase(f"vllm:request_{phase}_time_seconds_count") == num_ended


@pytest.mark.parametrize("fields", [{"max_tokens": 8}, {"max_tokens": 1}, {"max_tokens": 6, "n": 3},
                                    {"max_tokens": 0, "echo": True}])
def test_phases_add_up(server, fields):
    with Span(server) as span:
        server.complete(ignore_eos=True, **fields)
    check_phases(span)
    assert all(span.seconds(phase) > 0 for phase in ("queue", "prefill", "inference"))
    if fields["max_tokens"] > 1:
        assert span.seconds("decode") > 0
    if fields["max_tokens"] > 0:
        assert span.seconds("queue") + span.seconds("prefill") == pytest.approx(
            span.increase("vllm:time_to_first_token_seconds_sum"), abs=1e-6)


def test_who_waits_is_in_the_queue_and_not_in_prefill(start_server):
    server = start_server("--max-num-seqs", "1")
    server.complete()  # first iterations are slow
    with Span(server) as alone:
        server.complete(max_tokens=4, ignore_eos=True)
    with Span(server) as span:
        stream = server.open_stream(max_tokens=150)
        read_until(stream, b"data: ")
        waits = threading.Thread(target=lambda: server.complete(max_tokens=4, ignore_eos=True))
        waits.start()
        read_until(stream, b"[DONE]")
        waits.join()
        stream.close()
    check_phases(span)
    # It came soon after the first token of the other, and waited for the last.
    assert span.seconds("queue") > span.seconds("decode") / 2
    assert span.seconds("prefill") < span.seconds("queue") / 2
    assert alone.seconds("queue") < span.seconds("queue") / 2


def test_tokens_past_a_stop_string_are_not_generated(server):
    text = server.complete(max_tokens=30)["choices"][0]["text"]
    with Span(server) as span:
        answer = server.complete(max_tokens=200, ignore_eos=True, stop=[text[10:14]])
    assert answer["choices"][0]["finish_reason"] == "stop"
    used = answer["usage"]["completion_tokens"]
    assert 0 < used < 30
    assert span.increase("vllm:generation_tokens_total") == used
    assert span.increase("vllm:request_generation_tokens_sum") == used
    # One more is on its way when the stop string is found; on a busy machine a few, until the engine hears of it.
    assert used <= span.increase("tandem:drawn_tokens_total") < used + 50


def test_a_prompt_that_is_only_scored_generates_nothing(server):
    with Span(server) as span:
        answer = server.complete(max_tokens=0, echo=True, logprobs=0)
    assert answer["usage"]["completion_tokens"] == 0
    for name in ("vllm:generation_tokens_total", "vllm:request_generation_tokens_sum",
                 "vllm:request_params_max_tokens_sum", "vllm:request_max_num_generation_tokens_sum",
                 "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count"):
        assert span.increase(name) == 0, name
    assert span.increase("vllm:prompt_tokens_total") == answer["usage"]["prompt_tokens"]
    assert span.increase("vllm:request_params_max_tokens_count") == 1


@pytest.mark.parametrize("prompts,n", [(["Hello"], 3), (["Hello", "Once upon"], 2)])
def test_n_counts_once_a_prompt(server, prompts, n):
    with Span(server) as span:
        server.complete(prompt=prompts, n=n, max_tokens=5, ignore_eos=True, temperature=1)
    assert span.increase("vllm:request_params_n_count") == len(prompts)
    assert span.increase("vllm:request_params_n_sum") == n * len(prompts)
    assert span.increase("vllm:request_max_num_generation_tokens_count") == len(prompts)
    assert span.increase("vllm:request_max_num_generation_tokens_sum") == 5 * len(prompts)
    assert span.increase("vllm:request_success_total") == n * len(prompts)
    assert span.increase("vllm:request_params_max_tokens_count") == n * len(prompts)


def test_the_longest_of_n_is_the_one_that_counts(server):
    # Words that some of them write sooner than others.
    with Span(server) as span:
        answer = server.complete(prompt="Once upon a time", n=4, max_tokens=60, seed=1, temperature=1, stop=["a"],
                                 logprobs=0)
    lengths = [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]]
    assert len(set(lengths)) > 1
    longest = span.increase("vllm:request_max_num_generation_tokens_sum")
    assert longest < answer["usage"]["completion_tokens"]
    # What a stop string cut off has no log-probabilities.
    assert max(lengths) <= longest <= max(lengths) + 1


def test_requests_cancelled_at_once_are_counted(server):
    num = 20
    with Span(server) as span:
        before = server.metrics()["vllm:request_success_total"]
        for _ in range(num):
            cancel_at_once(server)
        wait_ended(server, before, num)
    assert span.increase("vllm:request_success_total", finished_reason="abort") == num
    assert span.increase("vllm:request_success_total") == num
    for name in ("e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens",
                 "request_params_max_tokens", "request_params_n", "request_max_num_generation_tokens"):
        assert span.increase(f"vllm:{name}_count") == num, name


def test_process_metrics(server):
    with Span(server) as span:
        server.complete(max_tokens=30, ignore_eos=True)
    types = {family.name: family.type for family in span.after.families}
    for name, kind in PROCESS_METRICS.items():
        # The parser names a counter's family without its suffix.
        assert types[name.removesuffix("_total") if kind == "counter" else name] == kind
        [sample] = [each for each in span.after.samples if each.name == name]
        assert sample.labels == {}
        assert sample.value > 0
    assert span.increase("process_cpu_seconds_total") > 0
    assert span.increase("process_start_time_seconds") == 0
    assert time.time() - 3600 < span.after.value("process_start_time_seconds") < time.time() + 2
    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as statm:
        _, resident_pages, *_ = statm.read().split()
    assert span.after.value("process_resident_memory_bytes") == pytest.approx(int(resident_pages) * 4096, rel=0.1)
    assert span.after.value("process_resident_memory_bytes") < span.after.value("process_virtual_memory_bytes")
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    deadline = time.monotonic() + 10
    while Scrape(server).value("process_open_fds") < span.after.value("process_open_fds") + len(connections):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for connection in connections:
        connection.close()
    assert span.after.value("process_open_fds") < span.after.value("process_max_fds")


def test_preemptions_say_why(binary):
    # Room for one of four answers and a half.
    with TandemServer(binary, BY_HEART, "--strategy", "gpu-only", "--max-model-len", "512", "--gpu-kv-cache", "512tok") as server:
        streams = [server.open_stream(max_tokens=300) for _ in range(4)]
        for stream in streams:
            received = b""
            while b"[DONE]" not in received:
                data = stream.recv(65536)
                assert data
                received += data
            stream.close()
        metrics = server.wait_idle()
        by_reason = {name.split('reason="')[1].split('"')[0]: value for name, value in metrics.items()
                     if name.startswith("tandem:preemptions_total{")}
        assert set(by_reason) == {"gpu_tier_full", "cpu_tier_full", "both_tiers_full", "cpu_tier_unusable"}
        assert by_reason["gpu_tier_full"] == metrics["vllm:num_preemptions_total"] == sum(by_reason.values()) > 0
        assert server.errors().count("room for KV has run out (gpu_tier_full)") == 1
