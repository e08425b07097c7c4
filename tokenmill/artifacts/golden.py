"""Golden vectors: texts with the ids that a tokenizer gave when it was made, and the check that it still gives them."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

import tokenmill
from tokenmill.config.record import Record
from tokenmill.errors import TokenizerError, first_finding
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.formats.folder import content_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.regular_files import read

GOLDEN_FILE = "golden.json"

Encode = Callable[[str], list[int]]


class Vector(Record):
    """A text and its ids."""

    name: str
    text: str
    ids: list[int]


class GoldenConversation(Record):
    """A conversation and its ids by the tokenizer's chat template."""

    name: str
    messages: list[dict[str, str]]
    ids: list[int]


class Golden(Record):
    """The golden.json of a tokenizer. `engines`: null for an engine that gives these ids, else the reason why it does not.
    `conversations`: none for a tokenizer without a chat template, and before 0.3."""

    format_version: int = 1
    tokenizer_digest: str
    engines: dict[str, str | None]
    conversations: list[GoldenConversation] = Field(default=[])
    vectors: list[Vector]


def write_golden(golden: Golden, directory: Path) -> None:
    """Writes golden.json in ASCII, so that no editor or transport can alter a character of a text."""
    lists = ("conversations", "vectors") if golden.conversations else ("vectors",)
    text = json.dumps(golden.model_dump(exclude={"conversations", "vectors"}), indent=1).removesuffix("\n}")
    for name in lists:
        lines = ",\n".join(f"  {json.dumps(one.model_dump(), separators=(',', ':'))}" for one in getattr(golden, name))
        text += f',\n "{name}": [\n{lines}\n ]'
    with write_atomic(directory / GOLDEN_FILE) as path:
        path.write_text(f"{text}\n}}\n", encoding="ascii")


def checked_tokenizer(directory: Path, cache_mb_max: int) -> Tokenizer:
    """The tokenizer in a directory, after its own engine gave every text the ids in golden.json, with a cache of its own. Loads and
    checks again only if its files changed.

    `cache_mb_max`: see `Tokenizer.load`. Raises TokenizerError or OSError.
    """
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    seen = tuple((path.name, at.st_size, at.st_mtime_ns, at.st_ino) for path in files for at in [path.stat()])
    return _checked(directory, cache_mb_max, seen).shared_in(directory)


@lru_cache(maxsize=1)
def _checked(directory: Path, cache_mb_max: int, _seen: object) -> Tokenizer:
    tokenizer = Tokenizer.load(directory, cache_mb_max=cache_mb_max)
    check_golden(directory, tokenizer, others=False)
    return tokenizer


def check_golden(directory: Path, tokenizer: Tokenizer, others: bool = True) -> dict[str, Encode]:
    """The engines that gave every text the ids in golden.json, by name: tokenmill's own; with `others` also tokenizers, and
    tiktoken if it can.

    Raises TokenizerError for the first text whose ids differ, and for a golden.json of another tokenizer. A directory without
    golden.json (a tokenizer made elsewhere) gives none.
    """
    path = directory / GOLDEN_FILE
    if not path.is_file():
        return {}
    golden = _read(path)
    if golden.tokenizer_digest != tokenizer.digest:
        raise TokenizerError(
            path,
            f"made for the tokenizer {golden.tokenizer_digest}; {directory} holds {tokenizer.digest}.",
            "Fetch or build the tokenizer again.",
        )
    engines: dict[str, Callable[[], Encode | str]] = {
        tokenizer.engine: lambda: tokenizer.encode,
        "tokenizers": lambda: tokenizers_engine(directory),
        "tiktoken": lambda: tiktoken_engine(directory, tokenizer),
    }
    checked: dict[str, Encode] = {}
    for name, make in engines.items():
        if golden.engines.get(name, "") is not None or not (others or name == tokenizer.engine):
            continue
        engine = make()
        if isinstance(engine, str):  # an earlier version compared a tokenizer that the library cannot run
            continue
        if different := first_difference(engine, golden.vectors):
            raise TokenizerError(
                path,
                f"{_release(name)} no longer gives the ids that this tokenizer was made with: {different}",
                "Install the release that was used before, or train and publish a new version.",
            )
        checked[name] = engine
    return checked


def first_difference(engine: Encode, vectors: Iterable[Vector]) -> str | None:
    """Describes the first text for which the engine gives other ids, with both ids; None if all are equal."""
    for vector in vectors:
        ids = engine(vector.text)
        if ids != vector.ids:
            pairs = enumerate(zip(ids, vector.ids, strict=False))
            at = next((k for k, (a, b) in pairs if a != b), min(len(ids), len(vector.ids)))
            return (
                f"{vector.name}: {vector.text!r:.60}: from token {at} on: found {ids[at : at + 5]}, "
                f"expected {vector.ids[at : at + 5]}."
            )
    return None


def sample_engines(
    path: Path, tokenizer: Tokenizer, special_in_text: bool, made: Mapping[str, Encode] = MappingProxyType({})
) -> dict[str, Encode]:
    """The other engines that give the ids of a tokenizer, by name: tokenizers always, and tiktoken if golden.json says so.

    `path`: the tokenizer's folder, or its file, which has no golden.json. `special_in_text`: whether the texts of special tokens
    become their ids. `made`: what `check_golden` gave for the folder: these engines are not made again.
    """
    made = {} if special_in_text else made
    engines = _Engines({"tokenizers": made.get("tokenizers") or tokenizers_engine(path, special_in_text)})
    engines.made_of = path, tokenizer, special_in_text
    golden = path / GOLDEN_FILE
    if not special_in_text and golden.is_file() and _read(golden).engines.get("tiktoken", "") is None:
        engine = made.get("tiktoken") or tiktoken_engine(path, tokenizer)
        if not isinstance(engine, str):
            engines["tiktoken"] = engine
    return engines


class _Engines(dict[str, Encode]):
    """Engines that travel to another process as what they are made of, and are made there once."""

    made_of: tuple[Path, Tokenizer, bool]

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_once, self.made_of


@lru_cache(maxsize=4)
def _made_once(path: Path, tokenizer: Tokenizer, special_in_text: bool) -> dict[str, Encode]:
    return sample_engines(path, tokenizer, special_in_text)


def tokenizers_engine(path: Path, special_in_text: bool = False) -> Encode:
    """The tokenizers library with the same tokenizer.json, in a folder or as a file of any name; with the tokens that the other
    files of a folder add.

    The text of special tokens stays text unless `special_in_text`.
    """
    from tokenizers import Tokenizer as Reference

    reference: Any = Reference.from_buffer(content_of(path))
    reference.no_truncation()
    reference.no_padding()
    reference.encode_special_tokens = not special_in_text

    def encode(text: str) -> list[int]:
        # A batch of one lets other threads run meanwhile. The fast variant, without offsets, takes half the time.
        [encoding] = reference.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    return encode


def tiktoken_engine(directory: Path, tokenizer: Tokenizer) -> Encode | str:
    """tiktoken with vocab.tiktoken, or the reason why tiktoken cannot run this tokenizer."""
    if tokenizer.steps is None:
        return "the tokenizer is not a byte-level BPE"
    if found_in_text := texts_found(tokenizer):
        return f"it finds no added tokens in a text but special ones, and this tokenizer has {found_in_text[0]!r:.60}"
    if flagged := [added_token.text for added_token in tokenizer.added_tokens if added_token.has_flags]:
        return f"it knows no flags of added tokens, such as those of {flagged[0]!r:.60}"
    if len(tokenizer.steps) != 1:
        return f"its split is one regex, this one has {len(tokenizer.steps)} steps"
    import tiktoken

    from tokenmill.tokenizer.formats.tiktoken_file import read_ranks

    file = directory / "vocab.tiktoken"
    ranks = read_ranks(read(file), str(file))
    if len({token for token in ranks if len(token) == 1}) < 256:
        return "the vocabulary has no token for some bytes"
    encoding = tiktoken.Encoding(
        "golden", pat_str=tokenizer.steps[0], mergeable_ranks=ranks, special_tokens=tokenizer.special_tokens
    )
    return encoding.encode_ordinary


def texts_found(tokenizer: Tokenizer) -> list[str]:
    """The texts of the added tokens that are found in any text: those that are not special."""
    return [token.text for token in tokenizer.added_tokens if not token.special]


def read_golden(directory: Path) -> Golden | None:
    """The golden.json in a directory; None if there is none. Raises TokenizerError."""
    path = directory / GOLDEN_FILE
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Golden:
    try:
        return Golden.model_validate_json(read(followed(path.parent, path.name)))
    except ValidationError as error:
        raise TokenizerError(path, f"{first_finding(error)}.", "Fetch or build the tokenizer again.") from None


def _release(engine: str) -> str:
    from importlib import metadata

    return f"tokenmill {tokenmill.__version__}'s core" if engine == "core" else f"{engine} {metadata.version(engine)}"
