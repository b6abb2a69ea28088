"""deploy/: all that the Grafana dashboard asks for is there, and Prometheus' configuration names the right place."""

import itertools
import json
import pathlib
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tandem_server import MODEL_NAME

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/tandem.json").read_text())
PANELS = DASHBOARD["panels"]
GRID_WIDTH = 24

# A metric and its selection. Every metric of a query is written with one.
SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\b(by|without)\s*\(([^)]*)\)")
WORD = re.compile(r"[A-Za-z_:][\w:]*")
FUNCTIONS = {"sum", "avg", "rate", "histogram_quantile"}
# Prometheus adds it to what it reads.
ADDED_LABELS = {"instance"}
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def queries():
    """(where, PromQL) of all panels."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", [])]


def selections(query):
    """(metric, {label: value}) of a query."""
    return [(name, {label: value for label, _, value in MATCHER.findall(matchers)})
            for name, matchers in SELECTOR.findall(query)]


def variable_queries():
    """(variable, metric, {label: value}, label that it lists)."""
    found = []
    for name, variable in VARIABLES.items():
        if variable["type"] != "query":
            continue
        matched = re.fullmatch(r"label_values\(([\w:]+)(?:\{([^}]*)\})?, (\w+)\)", variable["query"]["query"])
        metric, matchers, label = matched.groups()
        found.append((name, metric, {each: value for each, _, value in MATCHER.findall(matchers or "")}, label))
    return found


@pytest.fixture(scope="module")
def samples(server):
    """Of a server that has worked; by name."""
    server.complete(max_tokens=8, ignore_eos=True)
    server.wait_idle()
    status, _, body = server.request("GET", "/metrics")
    assert status == 200
    all_samples = [sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples]
    return {name: list(group) for name, group in itertools.groupby(
        sorted(all_samples, key=lambda sample: sample.name), key=lambda sample: sample.name)}


def assert_has(samples, metric, labels):
    assert metric in samples, f"there is no metric {metric}"
    for label, value in labels.items():
        if label in ADDED_LABELS:
            continue
        wanted = MODEL_NAME if value == "$model_name" else value
        assert "$" not in wanted, f"{metric} is selected by a variable that this test does not know: {wanted}"
        assert any(sample.labels.get(label) == wanted for sample in samples[metric]), \
            f"no {metric} has {label}={wanted}"


@pytest.mark.parametrize("where,query", queries())
def test_queries_find_what_they_ask_for(samples, where, query):
    found = selections(query)
    assert found, "it selects no metric"
    for metric, labels in found:
        assert_has(samples, metric, labels)
        # Several models may be served at one place.
        has_model = any("model_name" in sample.labels for sample in samples[metric])
        assert has_model == (labels.get("model_name") == "$model_name")
        assert "instance" in labels
    for kind, labels in GROUPING.findall(query):
        assert kind == "by"
        for label in WORD.findall(labels):
            for metric, _ in found:
                assert label in ADDED_LABELS or all(label in sample.labels for sample in samples[metric]), \
                    f"{metric} has no label {label}"


@pytest.mark.parametrize("where,query", queries())
def test_queries_name_nothing_else(where, query):
    rest = re.sub(r"\[\$__rate_interval\]", "", GROUPING.sub("", SELECTOR.sub("", query)))
    assert set(WORD.findall(rest)) <= FUNCTIONS
    assert query.count("(") == query.count(")")
    for counter in re.findall(r"([\w:]+_(?:total|sum|count|bucket))\{[^}]*\}(?!\[)", query):
        raise AssertionError(f"{counter} only grows: a graph of it says nothing without its rate")


@pytest.mark.parametrize("name,metric,labels,label", variable_queries())
def test_variables_have_values(samples, name, metric, labels, label):
    assert_has(samples, metric, labels)
    assert label in ADDED_LABELS or all(label in sample.labels for sample in samples[metric])


def test_variables_and_data_source():
    assert list(VARIABLES) == ["datasource", "model_name", "instance"], "each is chosen by those before it"
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == set(VARIABLES)
    for owner in [*PANELS, *VARIABLES.values(), *itertools.chain.from_iterable(
            panel.get("targets", []) for panel in PANELS)]:
        if owner.get("type") in ("row", "datasource"):
            continue
        assert owner["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, "nobody else's data source"


def test_panels_are_whole():
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids) and all(isinstance(each, int) and each > 0 for each in ids)
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs) and len(set(legends)) == len(legends)
        for legend, target in zip(legends, panel["targets"]):
            for label in re.findall(r"\{\{(\w+)\}\}", legend):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), f"{panel['title']}: no {label} is left"


def test_panels_do_not_overlap():
    taken = {}
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and 0 <= place["x"] and place["x"] + place["w"] <= GRID_WIDTH
        for cell in itertools.product(range(place["x"], place["x"] + place["w"]),
                                      range(place["y"], place["y"] + place["h"])):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]
    lines = {y for _, y in taken}
    assert lines == set(range(len(lines))), "no empty lines"


# What a dashboard of a server with two tiers is for.
@pytest.mark.parametrize("metric", [
    "tandem:kv_blocks_free", "vllm:num_requests_running", "vllm:num_requests_waiting", "tandem:cpu_tier_tokens_total",
    "tandem:drawn_tokens_total", "vllm:time_to_first_token_seconds_bucket",
    "vllm:request_time_per_output_token_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket",
    "vllm:request_queue_time_seconds_bucket", "tandem:gpu_busy_seconds_total", "tandem:gpu_gap_seconds_total",
    "tandem:cpu_attention_busy_seconds_total", "tandem:cpu_attention_kv_bytes_total",
    "tandem:strategy_iterations_total", "tandem:rider_visits_total", "vllm:num_preemptions_total",
    "tandem:swapped_tokens_total", "tandem:rejected_requests_total", "vllm:request_success_total"])
def test_what_is_shown(metric):
    assert metric in {name for _, query in queries() for name, _ in selections(query)}


def test_prometheus_reads_the_default_port():
    text = (DEPLOY / "prometheus.yml").read_text()
    assert re.search(r'^      - targets: \["localhost:8000"\]$', text, re.MULTILINE)
    # /metrics, where it looks unless told otherwise.
    assert "metrics_path" not in text
