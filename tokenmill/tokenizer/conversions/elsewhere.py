"""What goes wrong with a tokenizer in other programs, said before a model is trained with it."""

from collections.abc import Iterator
from typing import NamedTuple

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.conversions import gguf
from tokenmill.tokenizer.conversions.forms import Form, id_of

_LLAMA_TOKENS = {"bos_token": (1, b"<s>"), "eos_token": (2, b"</s>")}
"""The ids in LlamaConfig of transformers, and in configurations made from it, unless a model says others, with their tokens."""

_NO_PAD = "No pad token: transformers' collators for language models stop."
_SPECIAL_IN_TEXT = "transformers makes ids of special tokens in a text, unless a call has split_special_tokens=True."


class Elsewhere(NamedTuple):
    """A program that gives other ids, or stops, with this tokenizer. `what`: a sentence."""

    program: str
    what: str


def warnings_of(form: Form) -> list[Elsewhere]:
    """Each program or setting that would give other ids, or stop."""
    of_llama_cpp = without_llama_cpp(form)
    of_transformers = [
        *_default_ids(form),
        *([] if "pad_token" in form.names else [_NO_PAD]),
        *([_SPECIAL_IN_TEXT] if form.tokenizer.special_tokens else []),
    ]
    return [
        *([] if of_llama_cpp is None else [Elsewhere("llama.cpp", of_llama_cpp)]),
        *(Elsewhere("transformers", what) for what in of_transformers),
    ]


def without_llama_cpp(form: Form) -> str | None:
    """Why llama.cpp would give other ids; None if it gives the same, or where that is not known: of what is no BPE."""
    try:
        if form.tokenizer.model is not None or form.tokenizer.document["model"]["type"] == "BPE":
            gguf.refuse_other_ids(form)
    except TokenizerError as error:
        return f"llama.cpp would give other ids: {error.what.partition(': ')[2]}"
    return None


def _default_ids(form: Form) -> Iterator[str]:
    tokens = form.tokenizer.tokens
    wrong = [
        f"{name.removesuffix('_token')} {id} is {tokens[id].decode(errors='replace')!r:.40}"
        for name, (id, token) in _LLAMA_TOKENS.items()
        if id in tokens and id != id_of(form, name) and (name in form.names or tokens[id] != token)
    ]
    if wrong:
        yield f"LlamaConfig's default ids mean other tokens: {', '.join(wrong)}. Set bos_token_id and eos_token_id."
