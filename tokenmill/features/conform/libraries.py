"""Compares a tokenizer's ids with those of every library that is installed here: on golden vectors, on generated texts and, if it
has a chat template, on conversations."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenmill.artifacts.golden import GOLDEN_FILE, check_golden
from tokenmill.artifacts.golden_conversations import encoded_conversations
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.console import say
from tokenmill.errors import TokenizerError
from tokenmill.features.conform.program.answer import Result
from tokenmill.features.conform.program.compare import compare
from tokenmill.features.conform.program.consumer import Subject
from tokenmill.features.conform.program.consumers import CONSUMERS
from tokenmill.features.conform.program.write import write_program
from tokenmill.features.conform.texts import generated_texts, texts_of_tokens
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.chat_files import copy_chat_templates
from tokenmill.tokenizer.forms import loaded, write_as
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.regular_files import read

N_TEXTS = 2_000
N_CONVERSATIONS = 50
_READ_HERE = (".jinja", ".json")
_MADE = {
    "mistral-common": ("tekken.json", "tekken"),
    "sentencepiece": (".model", "sentencepiece"),
    "llama.cpp": (".gguf", "gguf"),
}
"""The libraries that read files which no build writes: how the names of these end, and their format."""


def conform(path: Path, names: Sequence[str] = tuple(CONSUMERS)) -> list[Result]:
    """How these libraries compare for the tokenizer in a folder or in a tokenizer.json, which then counts alone.

    Raises TokenizerError or PatternError if tokenmill cannot load it, and TokenizerError if its golden.json is of another one.
    """
    if path.is_file() and path.suffix != ".json":
        fix = f"`tokenmill convert {path} DIR` writes one."
        raise TokenizerError(path, "expected a folder with tokenizer.json, or such a file.", fix)
    tokenizer = Tokenizer.load(path)
    with _folder_of(path) as folder:
        check_golden(folder, tokenizer, others=False)
        pattern = None if tokenizer.steps is None else list(tokenizer.steps)
        refused = _make_files(path, folder, names)
        subject = Subject(str(folder), pattern, tokenizer.special_tokens, _vectors(folder, tokenizer))
        return [
            one._replace(why=refused[one.consumer]) if one.verdict == "cannot" and one.consumer in refused else one
            for one in compare(subject, names, write_program(folder.parent), say)
        ]


@contextmanager
def _folder_of(path: Path) -> Iterator[Path]:
    """Yields a folder with the files of a tokenizer, or with a single file alone. It is alone in a temporary folder. Those that
    tokenmill reads are copied, as it follows no link out of a tokenizer's folder. The others, such as a model, are links."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as name:
        folder = Path(name, "tokenizer")
        folder.mkdir()
        if path.is_file():
            shutil.copyfile(path, folder / "tokenizer.json")
        for file in path.iterdir() if path.is_dir() else ():
            if file.suffix in _READ_HERE:
                shutil.copyfile(followed(path, file.name), folder / file.name)
            elif file.is_file():
                (folder / file.name).symlink_to(file.absolute())
        copy_chat_templates(path, folder)
        yield folder


def _make_files(source: Path, folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Writes the files of _MADE for these libraries, unless the tokenizer has them. Returns by library why its file cannot be
    made."""
    files = [child.name for child in folder.iterdir()]
    missing = [name for name in names if name in _MADE and not any(file.endswith(_MADE[name][0]) for file in files)]
    form = loaded(source) if missing else None
    refused = {}
    for name in missing:
        assert form is not None
        try:
            write_as(form, folder, _MADE[name][1])
        except TokenizerError as error:
            refused[name] = error.what.removesuffix(".")
    return refused


def _vectors(folder: Path, tokenizer: Tokenizer) -> dict[str, list[tuple[str, Any, list[int]]]]:
    """What is compared: texts with the ids that tokenmill gives. Texts with a byte that has no token are left out."""
    if (folder / GOLDEN_FILE).is_file():
        texts = {vector["name"]: vector["text"] for vector in json.loads(read(folder / GOLDEN_FILE))["vectors"]}
    else:
        texts = {f"panel/{name}": text for name, text in PANEL.items()}
        texts |= {f"hard/{name}": text for name, text in HARD.items()}
    generated = generated_texts(N_TEXTS, [token.text for token in tokenizer.added_tokens])
    texts |= {f"generated/{i}": text for i, text in enumerate(generated)} | texts_of_tokens(tokenizer)

    def encoded(policy: SpecialTokensInText) -> Iterator[tuple[str, str, list[int]]]:
        for name, text in texts.items():
            try:
                yield name, text, tokenizer.encode(text, special=policy)
            except TokenizerError:
                continue

    chats = encoded_conversations(folder, tokenizer, generated, N_CONVERSATIONS)
    if chats.why:
        say(f"conform: conversations are left out: {chats.why}")
    return {
        "text": list(encoded("as_text")),
        "special": list(encoded("allow")),
        "token": [(f"special/{id}", text, [id]) for text, id in tokenizer.special_tokens.items()],
        "chat": [(f"conversation/{i}", messages, ids) for i, (messages, ids) in enumerate(chats.encoded)],
    }
