"""Writes the tokenizer of a GGUF file of SmolLM2 as a folder that Hugging Face's libraries read.

    make_tokenizer.py MODEL.gguf FOLDER        (needs the packages gguf and tokenizers)
"""
import json
import pathlib
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # of tokenizer.ggml.token_type

reader = GGUFReader(sys.argv[1])
folder = pathlib.Path(sys.argv[2])


def field(name):
    return reader.fields[f"tokenizer.ggml.{name}"].contents()


texts = field("tokens")
tokenizer = Tokenizer(models.BPE(vocab={text: token for token, text in enumerate(texts)},
                                 merges=[tuple(merge.split(" ")) for merge in field("merges")]))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(text, special=True)
                              for text, kind in zip(texts, field("token_type")) if kind == CONTROL])
folder.mkdir(parents=True, exist_ok=True)
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(json.dumps({
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": texts[field("bos_token_id")],
    "eos_token": texts[field("eos_token_id")], "pad_token": texts[field("eos_token_id")]}))
