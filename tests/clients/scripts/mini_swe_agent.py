"""A step of an agent that works in a shell: a chat with its tool, whose call becomes an action."""
import os
import sys

sys.path.pop(0)
url, model, folder = sys.argv[1:4]
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = folder
os.environ["MSWEA_CONFIGURED"] = "true"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
from minisweagent.models.litellm_model import LitellmModel

chat = LitellmModel(model_name=f"hosted_vllm/{model}", cost_tracking="ignore_errors", model_kwargs={
    "api_base": f"{url}/v1", "api_key": "unused", "temperature": 0, "max_tokens": 400, "tool_choice": "required"})
answer = chat.query([{"role": "user", "content": "List the files of this folder."}])
[action, *_] = answer["extra"]["actions"]
assert isinstance(action["command"], str)
