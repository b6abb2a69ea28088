"""Stands in for SGLang's engine: the same calls, tokens out of nothing, time as STAND_IN_TOKEN_S says.

STAND_IN_FAIL=load lets it not start. Each request of a batch of more than a thousand is retracted once.
"""

import os
import time

TOKEN_S = float(os.environ.get("STAND_IN_TOKEN_S", "0.00001"))
MAX_RUNNING_REQUESTS = 1000


class Engine:
    def __init__(self, **arguments):
        if os.environ.get("STAND_IN_FAIL") == "load":
            raise RuntimeError("there is no memory for the KV pool")
        assert arguments["load_format"] == "dummy" and arguments["skip_tokenizer_init"]
        assert os.path.exists(os.path.join(arguments["model_path"], "config.json"))
        self._arguments = arguments
        self._is_running = True

    def get_server_info(self):
        room = self._arguments.get("max_total_tokens", 16000)
        state = {"effective_max_running_requests_per_dp": MAX_RUNNING_REQUESTS}
        return {**self._arguments, "max_total_num_tokens": room, "internal_states": [state]}

    def generate(self, input_ids, sampling_params):
        assert self._is_running and len(input_ids) == len(sampling_params)
        for prompt, sampling in zip(input_ids, sampling_params, strict=True):
            assert sampling["temperature"] == 0 and sampling["ignore_eos"]
            assert len(prompt) + sampling["max_new_tokens"] < self._arguments["context_length"]
        most = max(sampling["max_new_tokens"] for sampling in sampling_params)
        time.sleep(TOKEN_S * (sum(map(len, input_ids)) / 100 + 100 * most))
        retracted = int(len(input_ids) > MAX_RUNNING_REQUESTS)
        return [self._output(sampling["max_new_tokens"], retracted) for sampling in sampling_params]

    def _output(self, count, retracted):
        return {"output_ids": [7] * count, "meta_info": {"completion_tokens": count, "num_retractions": retracted}}

    def shutdown(self):
        self._is_running = False
