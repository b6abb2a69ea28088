"""A task of one sample."""
import sys

sys.path.pop(0)
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes

url, model, folder = sys.argv[1:4]
chat = get_model(f"openai/{model}", base_url=f"{url}/v1", api_key="unused", responses_api=False,
                 config=GenerateConfig(max_tokens=8, temperature=0))
log = eval(Task(dataset=[Sample(input="Say hello.", target="ello")], scorer=includes()), model=chat, display="none",
           log_dir=folder)[0]
assert log.status == "success", log.error
assert log.samples[0].output.completion
