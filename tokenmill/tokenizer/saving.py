"""The content of the files that describe a saved tokenizer."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tokenmill.errors import ParamsError
from tokenmill.special_tokens import listed

_UNLIMITED = 1000000000000000019884624838656  # transformers' model_max_length for a tokenizer without one
_KEYS = {"begin_of_document": "bos_token", "end_of_document": "eos_token"}


def config_of(
    special_tokens: Collection[str], names: Mapping[str, str | None], model_max_length: int | None
) -> dict[str, Any]:
    """The tokenizer_config.json. `names`: the special token of each argument of `Tokenizer.save`. Raises ParamsError if one is not
    among `special_tokens`."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _UNLIMITED if model_max_length is None else model_max_length,
        "clean_up_tokenization_spaces": False,
    }
    for name, token in names.items():
        if token is None:
            continue
        if token not in special_tokens:
            raise ParamsError(
                name, f"{token!r} is no special token of this tokenizer; it has: {listed(special_tokens)}."
            )
        config[_KEYS.get(name, name)] = token
    return config


def as_json(document: dict[str, Any]) -> bytes:
    """The document as indented JSON."""
    import msgspec

    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    except OverflowError:  # an integer beyond 64 bits; the json module takes ten times as long to indent
        return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()
