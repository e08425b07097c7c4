"""The draft vocabulary of a dataset, for speculative decoding: its most frequent tokens, and the maps between both vocabularies."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pydantic import ValidationError as NotValid

from tokenmill.config.record import Record
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.errors import ParamsError, ValidationError, first_finding
from tokenmill.formats.parquet import read_ahead
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import read

FACTS_FILE = "draft_vocab.json"
_MAPS_FILE = "draft_vocab.safetensors"
_CURVE_FROM = 1024
_AGAIN = "Make it again with `tokenmill draft-vocab`."

Counts = npt.NDArray[np.uint64]


class DraftVocab(Record):
    """The draft_vocab.json. `tokenizer_digest` and `tokens_digest` name the dataset that was counted. `n_tokens`: the tokens that
    were counted. `coverage`: the share of them that the most frequent N ids have, by N."""

    format_version: int = 1
    tokenizer_digest: str
    tokens_digest: str
    vocab_size: int
    top: int
    trained_only: bool
    n_tokens: int
    coverage: dict[int, float]


def count(dataset: Path, trained_only: bool) -> Counts:
    """How often each id occurs in the documents of a dataset: uint64, by id. `trained_only`: where the loss mask is 1, alone.

    Raises ParamsError for a dataset without masks, ValidationError for a file that cannot be read."""
    manifest = read_manifest(dataset)
    if trained_only and not manifest.has_mask:
        raise ParamsError(
            "--trained-only", f"{dataset} has no loss masks: all of its tokens are trained.", "Leave it out."
        )
    counts = TokenCounts(manifest.id_max)
    for _, _, batch in read_ahead([dataset / shard.name for shard in manifest.shards]):
        ids = batch["input_ids"].flatten()
        if trained_only:
            ids = ids.filter(pc.equal(batch["loss_mask"].flatten(), 1))
        counts.add(ids)
    return counts.counts


def draft_vocab(
    dataset: Path, directory: Path, top: int, vocab_size: int | None = None, trained_only: bool = False
) -> DraftVocab:
    """Writes the maps of the `top` most frequent ids into a directory, and says what they are.

    d2t: int64[top], what to add to a draft id for the id that it stands for. t2d: bool[vocab_size], whether the draft vocabulary
    has an id. Both are in d2t.npy, t2d.npy and draft_vocab.safetensors, in the layout of SpecForge and SGLang. Of equally
    frequent ids, the lower comes first; draft ids are in the order of the ids. `vocab_size` is that of the model, if it has more
    rows than the tokenizer; None: one more than the largest id.

    Raises ParamsError for a `top` or a `vocab_size` that does not fit, and what `count` raises."""
    manifest, counts = read_manifest(dataset), count(dataset, trained_only)
    size = len(counts) if vocab_size is None else vocab_size
    if size < len(counts):
        raise ParamsError(
            "--vocab-size", f"expected {len(counts):,} or more, as many as the tokenizer has ids; found {size:,}."
        )
    if not 0 < top <= size:
        raise ParamsError("--top", f"expected 1 to {size:,}, the size of the vocabulary; found {top:,}.", "Give --top.")
    facts = _facts(manifest, counts, size, top, trained_only)
    for name, content in _files(counts, facts).items():
        with write_atomic(directory / name) as path:
            path.write_bytes(content)
    return facts


def differences(dataset: Path, directory: Path) -> list[str]:
    """How a draft vocabulary differs from that of a dataset, counted again; nothing if it is right. Raises ValidationError for a
    draft_vocab.json that cannot be read."""
    path = directory / FACTS_FILE
    try:
        draft = DraftVocab.model_validate_json(read(path))
    except FileNotFoundError:
        raise ValidationError(path, "missing; expected what `tokenmill draft-vocab` writes.", _AGAIN) from None
    except NotValid as error:
        raise ValidationError(path, f"{first_finding(error)}.", _AGAIN) from None
    manifest = read_manifest(dataset)
    if draft.tokenizer_digest != manifest.tokenizer_digest:
        return [f"tokenizer: expected {manifest.tokenizer_digest}, that of {dataset}; found {draft.tokenizer_digest}"]
    counts = count(dataset, draft.trained_only)
    expected = _files(counts, _facts(manifest, counts, draft.vocab_size, draft.top, draft.trained_only))
    wrong = []
    for name, content in expected.items():
        file = directory / name
        if not file.is_file():
            wrong.append(f"{name}: missing")
        elif read(file) != content:
            wrong.append(f"{name}: other than that of {dataset}")
    return wrong


def lines_of(draft: DraftVocab, directory: Path) -> list[str]:
    """What was written, for people: the coverage of a few sizes."""
    what = "trained tokens" if draft.trained_only else "tokens"
    lines = [
        f"{directory}: {draft.top:,} of {draft.vocab_size:,} ids, counted in {draft.n_tokens:,} {what}",
        "ids  coverage",
    ]
    return lines + [
        f"{n:,}  {share:.3%}{'  <- this one' if n == draft.top else ''}" for n, share in draft.coverage.items()
    ]


def _facts(manifest: Manifest, counts: Counts, size: int, top: int, trained_only: bool) -> DraftVocab:
    covered, n_tokens = np.cumsum(np.sort(counts)[::-1]), int(counts.sum())
    sizes = {_CURVE_FROM << i for i in range(size.bit_length()) if _CURVE_FROM << i < size} | {top, size}
    return DraftVocab(
        tokenizer_digest=manifest.tokenizer_digest,
        tokens_digest=manifest.tokens_digest(),
        vocab_size=size,
        top=top,
        trained_only=trained_only,
        n_tokens=n_tokens,
        coverage={n: round(int(covered[min(n, len(covered)) - 1]) / max(n_tokens, 1), 6) for n in sorted(sizes)},
    )


def _files(counts: Counts, facts: DraftVocab) -> dict[str, bytes]:
    of_all = np.zeros(facts.vocab_size, np.uint64)
    of_all[: len(counts)] = counts
    hot = np.sort(np.argsort(of_all.max() - of_all, kind="stable")[: facts.top])
    d2t = hot.astype(np.int64) - np.arange(facts.top)
    t2d = np.zeros(facts.vocab_size, np.bool_)
    t2d[hot] = True
    return {
        "d2t.npy": _npy(d2t),
        "t2d.npy": _npy(t2d),
        _MAPS_FILE: _safetensors([("d2t", "I64", d2t), ("t2d", "BOOL", t2d)]),
        FACTS_FILE: facts.model_dump_json(indent=1).encode() + b"\n",
    }


def _npy(values: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _safetensors(tensors: Sequence[tuple[str, str, npt.NDArray[Any]]]) -> bytes:
    """A file of tensors. Source: the README of safetensors: the length of the header in 8 bytes, the header in JSON, the values."""
    header, end = {}, 0
    for name, kind, values in tensors:
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end := end + values.nbytes]}
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for *_, values in tensors)
