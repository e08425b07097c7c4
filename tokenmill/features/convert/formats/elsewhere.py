"""What goes wrong with a tokenizer in other programs, said before a model is trained with it."""

from collections.abc import Iterator

from tokenmill.errors import TokenizerError
from tokenmill.features.convert.formats import gguf
from tokenmill.tokenizer.forms import Form, id_of

_LLAMA_TOKENS = {"bos_token": (1, b"<s>"), "eos_token": (2, b"</s>")}
"""The ids in LlamaConfig of transformers, and in configurations made from it, unless a model says others, with their tokens."""

_NO_PAD = "No pad token: transformers' collators for language models stop."
_SPECIAL_IN_TEXT = "transformers makes ids of special tokens in a text, unless a call has split_special_tokens=True."


def of_transformers(form: Form) -> list[str]:
    """A sentence for each setting of transformers with which it would give other ids, or stop."""
    return [
        *_default_ids(form),
        *([] if "pad_token" in form.names else [_NO_PAD]),
        *([_SPECIAL_IN_TEXT] if form.tokenizer.special_tokens else []),
    ]


def of_llama_cpp(form: Form) -> list[str]:
    """Why llama.cpp would give other ids. Empty if it gives the same, or where that is not known: of what is no BPE."""
    try:
        if form.tokenizer.model is not None or form.tokenizer.document["model"]["type"] == "BPE":
            gguf.refuse_other_ids(form)
    except TokenizerError as error:
        return [f"llama.cpp would give other ids: {error.what.partition(': ')[2]}"]
    return []


def _default_ids(form: Form) -> Iterator[str]:
    tokens = form.tokenizer.tokens
    wrong = [
        f"{name.removesuffix('_token')} {id} is {tokens[id].decode(errors='replace')!r:.40}"
        for name, (id, token) in _LLAMA_TOKENS.items()
        if id in tokens and id != id_of(form, name) and (name in form.names or tokens[id] != token)
    ]
    if wrong:
        yield f"LlamaConfig's default ids mean other tokens: {', '.join(wrong)}. Set bos_token_id and eos_token_id."
