"""Answers of random weights at temperature 1 obey the schemas that they are asked for; what would not be held to is refused."""

import concurrent.futures
import json
import pathlib
import sys

import jsonschema
import pytest
from tandem_server import TandemServer

GRAMMAR = pathlib.Path(__file__).resolve().parents[1] / "grammar"
sys.path.insert(0, str(GRAMMAR))
from make_random_model import write_model  # noqa: E402

SCHEMAS = json.loads((GRAMMAR / "schemas.json").read_text())
NOT_HELD_TO = ["not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains",
               "maxContains", "uniqueItems", "$dynamicRef", "contentEncoding", "contentMediaType", "mininum"]  # fmt: skip
VALUES = {"uniqueItems": True, "minContains": 1, "maxContains": 2, "contentEncoding": "base64", "contentMediaType": "text/html",
          "$dynamicRef": "#a"}  # fmt: skip


@pytest.fixture(scope="module")
def random_server(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, seed=1)
    with TandemServer(binary, str(folder), "--gpu-kv-cache", "40000tok") as running:
        yield running


def test_answers_of_random_weights_obey_their_schemas(random_server):
    def answers(number):
        schema = SCHEMAS[number]
        form = {"json": schema, "disable_any_whitespace": number % 2 == 0, "disable_additional_properties": number % 3 != 0}
        answer = random_server.complete(prompt=f"{number}", structured_outputs=form, temperature=1, max_tokens=300, n=12,
                                        seed=number)  # fmt: skip
        return schema, [choice["text"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]

    num_finished = 0
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for schema, texts in pool.map(answers, range(len(SCHEMAS))):
            validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
            for text in texts:
                validator.validate(json.loads(text))
            num_finished += len(texts)
    assert num_finished > 6 * len(SCHEMAS)


@pytest.mark.parametrize("keyword", NOT_HELD_TO)
def test_a_keyword_that_is_not_held_to_is_refused_with_its_place(random_server, keyword):
    schema = {"type": "object", "properties": {"a": {keyword: VALUES.get(keyword, {})}}}
    for form, param in (
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
         "response_format.json_schema.schema"),
        ({"structured_outputs": {"json": schema}}, "structured_outputs.json"),
    ):  # fmt: skip
        status, answer = random_server.post("/v1/completions", {"prompt": "a", **form})
        assert status == 400
        assert answer["error"]["param"] == param
        assert f"#/properties/a/{keyword}: " in answer["error"]["message"]


def test_a_schema_that_would_take_too_long_is_refused_at_once(random_server):
    schema = {"type": "integer"}
    for _ in range(8):
        schema = {"type": "array", "minItems": 50, "maxItems": 100, "items": {"anyOf": [schema, schema]}}
    status, answer = random_server.post("/v1/completions", {"prompt": "a", "structured_outputs": {"json": schema}})
    assert status == 400
    assert "too large" in answer["error"]["message"]
    assert random_server.complete()["usage"]["completion_tokens"] > 0
