"""The words of SGLang's engine, and its environment."""

import dummy_model

# What is carried where no network is has no FlashInfer.
ENVIRONMENT = {
    "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "SGLANG_HOST_IP": "127.0.0.1",
    "HOST_IP": "127.0.0.1",
}
# A request must end some tokens before the context does.
SPARE_TOKENS = 8


def engine_arguments(shape, max_model_len, gpu_kv_tokens=None, prefix_caching=False, more=None):
    """Arguments of sglang.Engine; more: any others, or other values. What is not named is SGLang's own default.

    Attention is FlashAttention 3, its default on sm_90; sampling and grammars are those that need no further package.
    """
    context = max_model_len + SPARE_TOKENS
    arguments = {
        "model_path": str(dummy_model.write_model(shape, context)),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "context_length": context,
        "attention_backend": "fa3",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "disable_radix_cache": not prefix_caching,
        "log_level": "info",
    }
    if gpu_kv_tokens:
        arguments["max_total_tokens"] = gpu_kv_tokens
    return arguments | (more or {})
