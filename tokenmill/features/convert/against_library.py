"""Compares a tokenizer's ids with those of the `tokenizers` library, document by document, until the first difference."""

import glob
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import Batch, Shard, find_shards, read_batches
from tokenmill.errors import CorpusError, TokenizerError
from tokenmill.quantities import number_of
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.tokenizer.formats.folder import content_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.tokenizer.tokenizers_engine import GrownError, as_tokenizer_error

COLUMNS = ("text", "content", "body")
"""The columns of the text that are tried, in this order, if none is named."""

_KEY = "source.text_column in params.yaml"
_N_IDS_SHOWN = 8
_N_CHARACTERS_SHOWN = 40


@dataclass(frozen=True)
class Difference:
    """The first difference in a document. `at`: the index of the token. `byte`: where that token begins in the text, in UTF-8.
    The ids are those from there on."""

    document: str
    at: int
    byte: int
    ours: list[int]
    theirs: list[int]
    text: str


@dataclass
class Amount:
    """The amount compared. `n_refused`: documents with a character without a token, which is an error here; `tokenizers` drops
    such characters."""

    n_documents: int = 0
    text_bytes: int = 0
    n_tokens: int = 0
    n_refused: int = 0
    first_refused: str = ""


def compare(
    path: Path,
    pattern: str | None,
    files: Sequence[str],
    text_column: str | None,
    text_separator: str | None,
    special: SpecialTokensInText,
) -> tuple[dict[str, Any], list[str]]:
    """What was compared, as JSON values, with the first difference or None; and the lines that say it.

    `path`: as for `Tokenizer.load`, with the `pattern` of a .tiktoken file. `files`: files of documents, or folders of them.
    `special`: as_text or allow. Raises TokenizerError, PatternError and CorpusError.
    """
    tokenizer = Tokenizer.load(path, pattern=pattern)
    reference = reference_of(tokenizer, path, special)
    names = [f"{glob.escape(name)}/**/*" if Path(name).is_dir() else glob.escape(name) for name in files]
    documents = documents_of(find_shards(Path(), names, "--against"), text_column, text_separator)
    compared = Amount()
    try:
        difference = first_difference(tokenizer, reference, documents, special, compared)
    except CorpusError as error:
        if _KEY not in str(error):
            raise
        what, fix = error.what.replace(_KEY, "--text-column"), error.fix.replace(_KEY, "--text-column")
        raise CorpusError(error.where, what, fix, code=error.code) from None
    if not compared.n_documents:
        raise CorpusError(", ".join(files), "no documents; expected some to compare.")
    result = asdict(compared) | {"difference": None if difference is None else asdict(difference)}
    if difference is not None:
        return result, _lines_of(difference, tokenizer)
    lines = []
    if tokenizer.engine != "core":
        lines.append(f"The engine is tokenizers itself: {tokenizer.engine_reason}.")
    if compared.n_refused:
        lines.append(
            f"{number_of(compared.n_refused, 'document')} refused here; tokenizers drops bytes there. "
            f"First: {compared.first_refused}"
        )
    lines.append(
        f"{number_of(compared.n_documents - compared.n_refused, 'document')} equal, of {compared.n_documents:,} "
        f"({compared.text_bytes / 1e6:.1f} MB, {number_of(compared.n_tokens, 'token')})."
    )
    return result, lines


def first_difference(
    tokenizer: Tokenizer,
    reference: Any,
    documents: Iterator[tuple[str, Batch]],
    special: SpecialTokensInText,
    compared: Amount,
) -> Difference | None:
    """The first difference in batches of documents, each with its shard's name. Updates `compared` while it reads."""
    for shard, batch in documents:
        texts: list[str] = batch.texts.to_pylist()
        ours = [*_ours(tokenizer, texts, special)]
        bounded = [text for text, ids in zip(texts, ours, strict=True) if not isinstance(ids, GrownError)]
        with as_tokenizer_error(f"{shard}: from row {batch.first_row} on"):
            theirs = iter([encoding.ids for encoding in reference.encode_batch(bounded, add_special_tokens=False)])
        for i, (text, ids) in enumerate(zip(texts, ours, strict=True)):
            expected = [] if isinstance(ids, GrownError) else next(theirs)
            compared.n_documents += 1
            compared.text_bytes += len(text.encode())
            compared.n_tokens += len(expected)
            name = f"{shard}, row {batch.first_row + i}"
            if isinstance(ids, TokenizerError):
                if tokenizer.decode_bytes(expected) == text.encode():
                    return Difference(f"{name}: {ids}", 0, 0, [], expected[:_N_IDS_SHOWN], text[:_N_CHARACTERS_SHOWN])
                compared.n_refused += 1
                compared.first_refused = compared.first_refused or f"{name}: {ids}"
            elif ids != expected:
                return _difference(tokenizer, name, text, ids, expected)
    return None


def _ours(tokenizer: Tokenizer, texts: list[str], special: SpecialTokensInText) -> Iterator[list[int] | TokenizerError]:
    try:
        yield from tokenizer.encode_batch(texts, special=special).to_pylist()
    except TokenizerError:
        for text in texts:
            try:
                yield tokenizer.encode(text, special=special)
            except TokenizerError as error:
                yield error


def _difference(tokenizer: Tokenizer, name: str, text: str, ours: list[int], theirs: list[int]) -> Difference:
    first = next(i for i, (one, other) in enumerate(zip_longest(ours, theirs)) if one != other)
    byte = len(tokenizer.decode_bytes(ours[:first]))
    around = text.encode()[max(0, byte - _N_CHARACTERS_SHOWN) : byte + _N_CHARACTERS_SHOWN]
    end = first + _N_IDS_SHOWN
    return Difference(name, first, byte, ours[first:end], theirs[first:end], around.decode(errors="replace"))


def _lines_of(difference: Difference, tokenizer: Tokenizer) -> list[str]:
    def shown(ids: list[int]) -> str:
        known = [tokenizer.token_bytes(id) if id <= tokenizer.id_max else b"?" for id in ids]
        return f"{ids}  {' '.join(repr(token.decode(errors='replace')) for token in known)}"

    return [
        f"{difference.document}: differs from token {difference.at}, byte {difference.byte} on",
        f"  tokenmill   {shown(difference.ours)}",
        f"  tokenizers  {shown(difference.theirs)}",
        f"  text around {difference.text!r}",
    ]


def documents_of(
    shards: Sequence[Shard], text_column: str | None, separator: str | None
) -> Iterator[tuple[str, Batch]]:
    """Every batch of the shards with its shard's name. Without `text_column`, the text is in the first of the columns text,
    content and body that a shard has."""
    for shard in shards:
        column = text_column or _column(shard, separator)
        for batch in read_batches(shard, Reading(column, text_separator=separator)):
            yield shard.name, batch


def _column(shard: Shard, separator: str | None) -> str:
    for column in COLUMNS:
        try:
            next(read_batches(shard, Reading(column, text_separator=separator)), None)
        except CorpusError:
            continue
        return column
    return COLUMNS[0]  # reading it raises the error that says what is wrong


def reference_of(tokenizer: Tokenizer, path: Path, special: SpecialTokensInText) -> Any:
    """Loads the tokenizer into the `tokenizers` library, from its own file or folder, or from the saved form of a .tiktoken
    file."""
    from tokenizers import Tokenizer as Reference

    with tempfile.TemporaryDirectory() as directory, as_tokenizer_error(str(path)):
        if path.suffix == ".tiktoken":
            tokenizer.save(directory)
            path = Path(directory) / "tokenizer.json"
        reference = Reference.from_buffer(content_of(path))
    reference.no_truncation()
    reference.no_padding()
    reference.encode_special_tokens = special != "allow"
    return reference
