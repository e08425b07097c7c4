"""What the file sets of a build will take: disk, memory, and seconds of the stages that write and check them."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import NamedTuple

from tokenmill.config.params import Encode, FormatName, Pack
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.shards import Shard
from tokenmill.formats.table import SET_FORMATS
from tokenmill.pipeline.estimate import Known, Range, exactly
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.sampling import Sample

_ITEM_BYTES = Range(2.0, 20.0, 36.0)  # of a document or sequence beside its ids, measured on each format
_LABEL_BYTES = 8  # a token's label and position, in formats with columns
_WITH_COLUMNS, _COMPRESSED = ("arrow", "mds"), ("parquet", "megatron_sft_parquet")
_SEGMENT_BYTES = 32  # of a segment of a document, in the unit store
_INDEX_BYTES = Range(3.0, 6.0, 16.0)  # of a segment in the index of sequences, and as much of each sequence
_IN_BUCKETS = 40  # bytes of an item beside its ids, while a set is shuffled
_FILES_A_SET, _BLOCK_BYTES = 6, 4096  # of a small set: its files, and those of the unit store beside them
_UNSURE, _UNSURE_MIXED = 0.03, 0.25  # the half-width as a share: of tokens, and of the tokens of each source
_PACKING_BYTES = Range(0.0, 30e6, 100e6)  # of memory for each worker
_LABELS_BYTES = Range(30e6, 90e6, 140e6)  # added with labels
_SET_S = 1 / 1.5e8  # for a byte of a file set in one thread: to write it, or to read it and what it must hold


class _Needs(NamedTuple):
    """Bytes of the file sets, of the temporary shuffle buckets, and of what the unit store keeps besides the sets."""

    sets: Range
    buckets: Range
    beside: Range


def with_sets(
    found: Mapping[str, Range],
    params: Encode,
    sources: Sequence[DocumentSource],
    tokens_of: Mapping[str | None, float],
    id_bytes: int,
    known: Known,
    memory: Memory,
) -> dict[str, Range]:
    """Adds the file sets to a plan: `sets_bytes`, `buckets_bytes` (temporary, on the project's disk), and their disk, memory and
    seconds. Without formats, only `buckets_bytes` 0 is added.

    `found`: what `estimate` gives. `tokens_of`: what `tokens_of_sources` gives. `id_bytes`: bytes per id in the files.
    """
    if not params.set_formats(sources):
        return {**found, "buckets_bytes": exactly(0)}
    needs = _needs(found, params, sources, tokens_of, id_bytes)
    result: dict[str, Range] = {}
    for name, one in found.items():
        result[name] = one
        if name == "output_bytes":
            result["sets_bytes"] = needs.sets
    if not known.stages["encode"].would_run:
        return {**result, "buckets_bytes": exactly(0)}
    # parts of documents that stay are not written again
    is_done = min(known.finished.tokens / max(found["tokens"].point, 1), 1.0)
    new = Range(needs.sets.low * (1 - is_done), needs.sets.point, needs.sets.high)
    copies = new.times(*[known.copies] * 3)
    result["disk_bytes"] = result["disk_bytes"].plus(new).plus(needs.beside).plus(copies)
    result["dvc_cache_bytes"] = result["dvc_cache_bytes"].plus(copies)
    result["spill_bytes"] = Range(
        *(max(one, other) for one, other in zip(found["spill_bytes"], needs.buckets, strict=True))
    )
    result["buckets_bytes"] = needs.buckets
    if params.pack is not None and params.pack.output == "rows":
        each = _PACKING_BYTES.plus(_LABELS_BYTES) if params.pack.labels else _PACKING_BYTES
        peak = found["peak_memory_bytes"].plus(each.times(*[memory.workers] * 3))
        result["peak_memory_bytes"] = peak.at_most(memory.mb_max * 1e6)
    seconds = new.plus(needs.buckets).times(*(factor * _SET_S / memory.workers for factor in (0.4, 1, 2.5)))
    for stage in ("encode", "validate"):
        if f"seconds {stage}" in found:
            result[f"seconds {stage}"] = found[f"seconds {stage}"].plus(seconds)
            result["seconds"] = result["seconds"].plus(seconds)
    return result


def _needs(
    found: Mapping[str, Range],
    params: Encode,
    sources: Sequence[DocumentSource],
    tokens_of: Mapping[str | None, float],
    id_bytes: int,
) -> _Needs:
    formats, pack, has_mask = params.set_formats(sources), params.pack, params.chat is not None
    shuffle_epochs = params.shuffle.epochs if params.shuffle else 1
    is_index = pack is not None and pack.output == "index"  # documents in the order of the dataset, once
    once = _stored(params, sources, tokens_of)
    share = once * (1 if is_index else shuffle_epochs) / max(found["tokens"].point, 1)
    unsure = _UNSURE if all(one.epochs == 1 for one in sources) else _UNSURE_MIXED
    documents = found["documents"].times(*[share] * 3)
    tokens = found["tokens"].times(share * (1 - unsure), share, share * (1 + unsure))
    segments = exactly(0) if pack is None else documents.plus(tokens.times(*[1 / pack.length] * 3))
    items = documents
    if pack is not None and not is_index:
        items, tokens = _sequences(pack, documents, tokens)
    own = found["output_bytes"].point / max(found["tokens"].point, 1)
    per_token = sum(_token_bytes(name, params, id_bytes, own) for name in formats)
    sets = tokens.times(*[per_token] * 3).plus(items.times(*(n * len(formats) for n in _ITEM_BYTES)))
    buckets = exactly(0)
    if is_index:
        index = segments.times(*_INDEX_BYTES).times(*[2 * shuffle_epochs] * 3)
        sets = sets.plus(index)
    if params.shuffle is not None:
        in_buckets = id_bytes + has_mask + (_LABEL_BYTES if pack is not None and pack.labels else 0)
        whole = tokens.times(*[in_buckets] * 3).plus(items.times(*[_IN_BUCKETS] * 3))
        kinds = len({SET_FORMATS[name].one_file for name in formats})  # each has buckets of its own
        buckets = segments.times(*[_IN_BUCKETS * shuffle_epochs] * 3) if is_index else whole.times(*[kinds] * 3)
    n_sets = (
        (len(formats) + is_index) * max(len(params.splits), 1) * (shuffle_epochs if params.shuffle else len(sources))
    )
    small = n_sets * _FILES_A_SET * _BLOCK_BYTES
    kept = segments.times(*(factor * _SEGMENT_BYTES for factor in (0.5, 2, 2.2)))  # encode and validate have them
    return _Needs(sets, buckets, kept.plus(Range(small * 0.3, small, small * 2)))


def _sequences(pack: Pack, documents: Range, tokens: Range) -> tuple[Range, Range]:
    """Estimates the number of packed sequences and of their tokens. The ranges are wide, because the lengths of documents are
    unknown."""
    filled = tokens.times(*[1 / pack.length] * 3).plus(exactly(1))
    if pack.long == "drop":
        tokens, filled = Range(0.0, tokens.point, tokens.high), Range(0.0, filled.point, filled.high)
    elif pack.long == "cut":
        most = documents.times(*[pack.length] * 3)
        tokens = Range(min(tokens.low, most.low) / 4, min(tokens.point, most.point), min(tokens.high, most.high))
        filled = tokens.times(*[1 / pack.length] * 3).plus(exactly(1))
    items = filled
    if pack.mode == "none":
        more = documents.high + (filled.high if pack.long == "split" else 0)
        middle = max(documents.point, filled.point)
        items = Range(0.0 if pack.long == "drop" else max(documents.low, filled.low), middle, more)
    if pack.pad is not None:
        tokens = items.times(*[pack.length] * 3)
    return items, tokens


def tokens_of_sources(
    sample: Sample | None, shards: Iterable[Shard], tokens: float, built: Mapping[str | None, int]
) -> dict[str | None, float]:
    """Divides `tokens` among the sources, by file bytes times the tokens per byte in the sample of such files. `built`: the tokens
    of each source in the present dataset, used if there is no sample."""
    if sample is None and built:
        return dict(built)
    rates: dict[Shard, float] = {}
    for stratum in sample.strata if sample else ():
        n_encoded = sum(one.text_bytes for one in stratum.encoded)
        n_read = sum(piece.file_bytes for piece in stratum.pieces)
        if n_encoded and n_read:
            texts = sum(piece.text_bytes for piece in stratum.pieces) / n_read
            rate = texts * sum(one.n_tokens for one in stratum.encoded) / n_encoded
            rates |= dict.fromkeys(stratum.shards, rate)
    mean = sum(rates.values()) / len(rates) if rates else 1.0
    found: dict[str | None, float] = {}
    for shard in shards:
        name = None if shard.source is None else shard.source.name
        found[name] = found.get(name, 0.0) + shard.n_bytes * rates.get(shard, mean)
    whole = sum(found.values())
    return {name: tokens * n / max(whole, 1) for name, n in found.items()}


def many_epochs(params: Encode, sources: Sequence[DocumentSource], tokens_of: Mapping[str | None, float]) -> list[str]:
    """One text for each budget of tokens that a build would refuse."""
    if not params.set_formats(sources):
        return []
    share = next(iter(params.splits.values()), 1.0)
    found = [(one, one.tokens / max(tokens_of.get(one.name, 0.0) * share, 1)) for one in sources if one.tokens]
    return [
        f"sources.{one.name}.tokens: {one.tokens:,} are about {epochs:,.0f} epochs of the source; allowed: at most "
        f"{EPOCHS_MAX:,} epochs. Lower it, or add documents."
        for one, epochs in found
        if epochs > EPOCHS_MAX * 1.5  # the estimate is not exact
    ]


def _stored(params: Encode, sources: Sequence[DocumentSource], tokens_of: Mapping[str | None, float]) -> float:
    """The tokens that the sets of one format store. Hard-linked files of whole passes count once."""
    first = next(iter(params.splits.values()), 1.0)
    is_linked = params.shuffle is None or (params.pack is not None and params.pack.output == "index")
    total = 0.0
    for source in sources:
        n = tokens_of.get(source.name, 0.0)
        epochs = source.epochs if source.epochs is not None else (source.tokens or 0) / max(n * first, 1)
        epochs = min(epochs, EPOCHS_MAX)
        if is_linked and epochs > 1:
            epochs = 1 + epochs - floor(epochs)  # whole passes are the same files
        total += n * (first * epochs + 1 - first)
    return total


def _token_bytes(name: FormatName, params: Encode, id_bytes: int, own: float) -> float:
    """The bytes per token in a format. `own`: bytes per token in data/tokens/documents, which are compressed."""
    pack = params.pack
    has_labels = pack is not None and pack.output == "rows" and pack.labels
    if name in _COMPRESSED:
        return own * (2 if has_labels else 1)
    if name == "megatron_sft":
        return 4
    more = (_LABEL_BYTES * has_labels + (params.chat is not None)) if name in _WITH_COLUMNS else 0
    return id_bytes + more
