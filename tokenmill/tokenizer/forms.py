"""A tokenizer for other programs: its tokenizer.json, and the names and the chat template beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.features import PARTS, load
from tokenmill.storage.atomic import write_atomic
from tokenmill.tokenizer.chat_files import DEFAULT, chat_templates_of
from tokenmill.tokenizer.formats.folder import names_in
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


def loaded(source: Path, pattern: str | None = None) -> Form:
    """A tokenizer that `Tokenizer.load` takes, with the names and the chat template in its folder. Raises TokenizerError."""
    tokenizer = Tokenizer.load(source, pattern)
    if not source.is_dir():
        return Form(tokenizer, str(source), {})
    return Form(tokenizer, str(source), names_in(source), chat_templates_of(source).get(DEFAULT))


def write_as(form: Form, directory: Path, format: str) -> list[Path]:
    """Writes a tokenizer into a directory in the file format of another program, and returns the files. Raises TokenizerError
    if the program would give other ids."""
    return write_files(load(PARTS["tokenizer_formats"][format])(form), directory)


def write_files(files: Mapping[str, bytes], directory: Path) -> list[Path]:
    """Writes these files by their names, and returns their paths."""
    for name, content in files.items():
        with write_atomic(directory / name) as path:
            path.write_bytes(content)
    return [directory / name for name in files]


def warnings_of(form: Form, program: str) -> list[str]:
    """Sentences on what goes wrong with a tokenizer in a program; none for a program that no feature knows."""
    part = PARTS["elsewhere"].get(program)
    return load(part)(form) if part else []


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
