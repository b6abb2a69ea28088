"""An agent that works in a shell: it edits a file to the end; errors."""
import os
import pathlib
import sys

sys.path.pop(0)
url, model, folder, _, by_heart_url = sys.argv[1:6]
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = folder
os.environ["MSWEA_CONFIGURED"] = "true"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"
import litellm
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

fields = {"api_key": "unused", "temperature": 0, "max_tokens": 400}
# With its own prompts, and a model that knows what to call.
config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
work = pathlib.Path(folder, "work")
work.mkdir()
file = work / "greeting.py"
file.write_text('def greet(name):\n    return "Helo, " + name\n')
chat = LitellmModel(**{**config["model"], "model_name": f"hosted_vllm/{model}", "cost_tracking": "ignore_errors",
                       "model_kwargs": {"api_base": f"{by_heart_url}/v1", **fields}})
agent_config = {key: value for key, value in config["agent"].items() if key in ("system_template", "instance_template")}
agent = DefaultAgent(chat, LocalEnvironment(cwd=str(work)), **agent_config, step_limit=6)
ended = agent.run("Mend the greeting in greeting.py.")
assert ended["exit_status"] == "Submitted", ended
assert file.read_text() == 'def greet(name):\n    return "Hello, " + name\n'

try:
    LitellmModel(model_name="hosted_vllm/another", cost_tracking="ignore_errors", model_kwargs={
        "api_base": f"{url}/v1", **fields}).query([{"role": "user", "content": "Say hello."}])
except litellm.exceptions.NotFoundError:
    pass
else:
    raise AssertionError("there is no such model")
