"""A tokenizer on its way from one file format to another: its tokenizer.json, and the names and the chat template beside it."""

from dataclasses import dataclass, replace
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.formats.tiktoken_file import last_merge
from tokenmill.tokenizer.model import Model
from tokenmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Form:
    """A tokenizer that was read. `place`: its path. `names`: the texts of special tokens by the names that transformers has for
    them, such as bos_token. `chat_template`: None if it has none."""

    tokenizer: Tokenizer
    place: str
    names: dict[str, str]
    chat_template: str | None = None

    def byte_level(self, format: str) -> Model:
        """The byte-level model. Raises TokenizerError if the tokenizer has another kind."""
        if self.tokenizer.model is None:
            raise self.cannot(format, "model", "it is not byte-level BPE")
        return self.tokenizer.model

    def cannot(self, format: str, field: str, why: str, fix: str = "") -> TokenizerError:
        """The error for a tokenizer that a format cannot hold."""
        advice = fix or "Take another format (--to), or give the program tokenizer.json."
        return TokenizerError(f"{self.place}: {field}", f"cannot become {format} with the same ids: {why}.", advice)


def plain_added(id: int, text: str, special: bool) -> dict[str, Any]:
    """An entry of added_tokens in tokenizer.json, for a token that is found by its text alone."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": text, **flags, "special": special}


def id_of(form: Form, name: str) -> int | None:
    """The id of a special token by its name, such as bos_token; None if it has none."""
    return next((token.id for token in form.tokenizer.added_tokens if token.text == form.names.get(name)), None)


def not_merged(model: Model) -> bytes | None:
    """A token that the merges do not make of its own bytes, so that `ignore_merges` decides what it becomes; None if there is
    none. The core looks at those that are text, ten times as fast."""
    import numpy as np

    alone = Tokenizer(replace(model.merging_alone(), ignore_merges=False))
    long = {id: token for id, token in model.tokens.items() if len(token) > 1}
    texts = {id: token for id, token in long.items() if _is_text(token)}
    lists = alone.encode_batch(list(texts.values()))
    is_whole = np.diff(lists.offsets.to_numpy()) == 1
    if not is_whole.all() or (lists.values.to_numpy() != np.fromiter(texts, np.uint32, len(texts))).any():
        return list(texts.values())[int(np.argmin(is_whole))]
    rules = {(merge.left, merge.right): merge for merge in model.merges}
    ids = {token: id for id, token in model.tokens.items()}
    for id, token in long.items() - texts.items():
        if (last := last_merge(token, rules, ids)) is None or last.token != id:
            return token
    return None


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
