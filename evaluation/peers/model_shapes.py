"""The Llama shapes that `tandem --dummy` has, in the words of a Hugging Face config.json."""

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def shape(layers, hidden, intermediate, heads, kv_heads, vocab, positions, rope, tied=False, head_dim=None):
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim or hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "rope_parameters": rope,
    }


def plain_rope(theta=10000.0):
    return {"rope_type": "default", "rope_theta": theta}


SHAPES = {
    "llama-2-7b": shape(32, 4096, 11008, 32, 32, 32000, 4096, plain_rope()),
    "llama-2-13b": shape(40, 5120, 13824, 40, 40, 32000, 4096, plain_rope()),
    "llama-3.1-8b": shape(32, 4096, 14336, 32, 8, 128256, 131072, LLAMA3_ROPE | {"factor": 8.0}),
    "llama-3.1-70b": shape(80, 8192, 28672, 64, 8, 128256, 131072, LLAMA3_ROPE | {"factor": 8.0}),
    "llama-3.1-70b-half": shape(80, 8192, 14336, 32, 4, 64128, 131072, LLAMA3_ROPE | {"factor": 8.0}, head_dim=128),
    "llama-3.2-1b": shape(16, 2048, 8192, 32, 8, 128256, 131072, LLAMA3_ROPE | {"factor": 32.0}, True),
    "smollm2-135m": shape(30, 576, 1536, 9, 3, 49152, 8192, plain_rope(100000.0), True),
    "tiny": shape(2, 256, 512, 4, 2, 1024, 4096, plain_rope()),
}
