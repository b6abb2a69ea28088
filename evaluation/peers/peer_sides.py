"""The engines beside Tandem: each runs in a Python and an environment of its own."""

import json
from pathlib import Path

import dummy_model
import vllm_model
from comparison_sides import Failure, Side

HERE = Path(__file__).resolve().parent


class Peer(Side):
    """Offline by a program beside this file, named after the side as plans name it."""

    name = ""

    def __init__(self, tandem, requests, log_folder, python, environment):
        super().__init__(tandem, requests, log_folder)
        self.python = python
        self._environment = environment

    def words_in_environment(self, words):
        """Of the peer's processes alone; what they print goes to their log."""
        source = f". {self._environment} && " if self._environment else ""
        return ["bash", "-c", source + 'exec "$@" 1>&2', self.name, *words]

    def option_words(self, settings):
        """Of a variant's settings those that this peer alone has."""
        return []

    def _offline(self, row, variant, keys, deadline, run):
        settings = variant.settings
        program = f"{self.name}_offline"
        words = [self.python, HERE / f"{program}.py", "--model", row.model, "--num-warmup", row.fields["num_warmup"]]
        words += ["--max-model-len", row.fields["max_model_len"]]
        if row.fields["gpu_kv_tokens"]:
            words += ["--gpu-kv-tokens", row.fields["gpu_kv_tokens"]]
        if settings.get("prefix_caching"):
            words.append("--prefix-caching")
        if settings.get("engine_args"):
            words += ["--engine-args", json.dumps(settings["engine_args"])]
        words += self.option_words(settings)
        if row.kind == "decode":
            words += ["--decode-batches", ",".join(keys), "--decode-context", row.fields["context"]]
        names = {}
        for index, key in enumerate(keys if row.kind != "decode" else []):
            try:
                csv_file, _ = self.requests.file(row, row.points[key], 1 if row.kind == "prefill" else None)
            except Failure as failure:
                run["points"][key] = {"error": str(failure)}
                continue
            names[f"w{index}"] = key
            words += ["--work", f"w{index}={csv_file}"]
        if row.kind != "decode" and not names:
            return
        _, result, reason = self.program(self.words_in_environment(words), deadline, f"{program}, {variant.name},")
        if result is None:
            raise Failure(reason)
        run["engine"] = {**result["settings"], **result["version"], "start_s": result["start_s"]}
        measured = {names[name]: work for name, work in result["works"].items()} | result["decode"]
        for key, values in measured.items():
            wall_s = values.pop("wall_s")
            run["points"][key] = {"wall_s": wall_s, "result": values}
        for key in keys:
            run["points"].setdefault(key, {"error": result.get("error") or reason})


class Vllm(Peer):
    name = "vllm"

    def option_words(self, settings):
        return ["--kv-offload-gib", settings["kv_offload_gib"]] if settings.get("kv_offload_gib") else []

    def server_words(self, row, variant):
        settings = variant.settings
        arguments = vllm_model.engine_arguments(
            row.model,
            row.fields["max_model_len"],
            row.fields["gpu_kv_tokens"],
            settings.get("kv_offload_gib", 0),
            settings.get("prefix_caching", False),
            settings.get("engine_args"),
        )
        environment = [f"{name}={value}" for name, value in (dummy_model.ENVIRONMENT | vllm_model.ENVIRONMENT).items()]
        words = ["env", *environment, self.python, "-m", "vllm.entrypoints.openai.api_server"]
        words += ["--host", "127.0.0.1", "--port", "{port}", "--served-model-name", row.model]
        words += [*vllm_model.server_words(arguments), "--disable-uvicorn-access-log"]
        return self.words_in_environment(words)


class Sglang(Peer):
    """Offline alone: its server's streams of completions need a tokenizer's text, and there is none."""

    name = "sglang"


PEERS = {peer.name: peer for peer in (Vllm, Sglang)}
