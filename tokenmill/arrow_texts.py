"""Documents from memory as Arrow arrays: lists of str or bytes, and any library's string columns."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tokenmill.errors import CorpusError


class ArrowArray(Protocol):
    """A string, large_string, binary or large_binary array without nulls, of any Arrow library."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


class ArrowStream(Protocol):
    """Such an array in chunks, of any Arrow library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Texts: TypeAlias = Sequence[str] | Sequence[bytes] | ArrowArray | ArrowStream


def text_chunks(texts: Texts) -> list[pa.Array]:
    """The texts in order, as string or binary arrays; those of an Arrow object are not copied.

    Raises CorpusError for a text that is no Unicode (a lone surrogate), TypeError for what holds no texts. Nulls and bytes
    that are not UTF-8 are found by the core.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(f"expected a list of texts; found one {type(texts).__name__}. Put it into a list.")
    if isinstance(texts, pa.ChunkedArray):
        chunks = texts.chunks
    elif isinstance(texts, pa.Array):
        chunks = [texts]
    elif hasattr(texts, "__arrow_c_stream__"):
        chunks = pa.chunked_array(texts).chunks
    elif hasattr(texts, "__arrow_c_array__"):
        chunks = [pa.array(texts)]
    elif isinstance(texts, Sequence):
        chunks = [_from_list(texts)]
    else:
        hint = " Give its tolist()." if hasattr(texts, "tolist") else ""
        raise TypeError(f"expected a list of texts or an Arrow array; found {type(texts).__name__}.{hint}")
    return [_plain(chunk) for chunk in chunks]


def for_core(texts: Texts) -> Any:
    """The texts as the core's encoder takes them: a list of str or bytes as it is, anything else as an Arrow object.

    A str has its UTF-8 at hand, or makes it once and keeps it, where an array would be a copy of all text.
    """
    if isinstance(texts, list | tuple):
        return list(texts) if isinstance(texts, tuple) else texts
    chunks = text_chunks(texts)
    if len(chunks) == 1:
        return chunks[0]
    return pa.chunked_array(chunks) if len({chunk.type for chunk in chunks}) == 1 else _joined(chunks)


def one_array(texts: Texts) -> pa.Array:
    """The texts as one array."""
    chunks = text_chunks(texts)
    return chunks[0] if len(chunks) == 1 else _joined(chunks)


def _joined(chunks: list[pa.Array]) -> pa.Array:
    kind = pa.large_binary() if any(_is_binary(chunk) for chunk in chunks) else pa.large_string()
    return pa.concat_arrays([chunk.cast(kind) for chunk in chunks]) if chunks else pa.array([], kind)


def _from_list(texts: Sequence[str] | Sequence[bytes]) -> pa.Array:
    kinds = set(map(type, texts)) - {type(None)}
    is_bytes = bool(kinds) and all(issubclass(kind, bytes) for kind in kinds)
    if not is_bytes and not all(issubclass(kind, str) for kind in kinds):
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"expected a list of str or a list of bytes; found {names}.")
    try:
        return pa.array(texts, pa.large_binary() if is_bytes else pa.large_string())
    except UnicodeEncodeError as error:
        i = next(i for i, text in enumerate(texts) if text == error.object)
        raise CorpusError(
            f"text {i}",
            f"no Unicode text: lone surrogate at character {error.start}.",
            "Decode the text with errors='replace'.",
        ) from None


def _plain(chunk: pa.Array) -> pa.Array:
    """Strings that an encoding hides, plain; another type is a TypeError."""
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        values = _plain(chunk.dictionary)
        # Nothing can be taken from views, which polars has there.
        return values.cast(pa.large_binary() if _is_binary(values) else pa.large_string()).take(chunk.indices)
    if pa.types.is_binary_view(kind):
        return chunk.cast(pa.large_binary())
    if pa.types.is_null(kind) and not len(chunk):
        return chunk.cast(pa.large_string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_binary(chunk) or _is_view(chunk)):
        raise TypeError(f"expected a column of strings; found {kind}. Pick the text column.")
    return chunk


def _is_binary(chunk: pa.Array) -> bool:
    return bool(pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type))


def _is_view(chunk: pa.Array) -> bool:
    return bool(pa.types.is_string_view(chunk.type))
