"""Tasks of one sample: text, a tool in a loop, a schema; errors."""
import json
import sys

sys.path.pop(0)
import pydantic
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import json_schema

url, model, folder, _, by_heart_url = sys.argv[1:6]


def run(question, target, at, name=model, responses=False, solver=None, **config):
    chat = get_model(f"openai/{name}", base_url=f"{at}/v1", api_key="unused", responses_api=responses,
                     config=GenerateConfig(**config), memoize=False)
    return eval(Task(dataset=[Sample(input=question, target=target)], solver=solver or generate(), scorer=includes()),
                model=chat, display="none", log_dir=folder)[0]


def answer(*arguments, **options):
    log = run(*arguments, **options)
    assert log.status == "success", log.error
    [score] = log.results.scores
    return log.samples[0].output.completion, score.metrics["accuracy"].value


assert answer("Say hello.", "ello", url, max_tokens=8, temperature=0)[0]


@tool
def get_weather():
    async def execute(city: str):
        """The weather in a city.

        Args:
            city: The city.
        """
        return f"18 degrees in {city}"

    return execute


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


for responses in (False, True):
    assert answer("What is the weather in Paris, then in Rome?", "18 degrees", by_heart_url, responses=responses,
                  solver=[use_tools(get_weather()), generate()]) == ("It is 18 degrees in both.", 1)
    text, _ = answer("Are you sure?", "true", by_heart_url, responses=responses,
                     response_schema=ResponseSchema(name="answer", json_schema=json_schema(Answer), strict=True))
    assert json.loads(text) == {"sure": True, "city": "Paris"}
log = run("Say hello.", "ello", url, name="another")
assert log.status == "error" and "does not exist" in log.error.message
