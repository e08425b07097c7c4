"""Estimates the bytes of the file sets of a build, on the disk and while they are shuffled."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import NamedTuple

from tokenmill.config.encode_params import Encode, FormatName, Pack
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.shards import Shard
from tokenmill.formats.table import SET_FORMATS
from tokenmill.pipeline.estimate import Estimate, around, exactly
from tokenmill.pipeline.measuring import Sample

_ITEM_BYTES = Estimate(2.0, 20.0, 36.0)  # of a document or sequence, without its ids; measured on each format
_LABEL_BYTES = 8  # a token's label and position, in formats with columns
_WITH_COLUMNS, _COMPRESSED = ("arrow", "mds"), ("parquet", "megatron_sft_parquet")
_SEGMENT_BYTES = Estimate(
    16.0, 64.0, 70.0
)  # of a segment of a document, in the unit store: encode and validate have them
_INDEX_BYTES = Estimate(3.0, 6.0, 16.0)  # of a segment in the index of sequences, and as much of each sequence
_IN_BUCKETS = 40  # bytes of an item beside its ids, while a set is shuffled
_FILES_BYTES = Estimate(7_000, 25_000, 50_000)  # of a small set: its files, and the facts in the unit store
_UNSURE, _UNSURE_MIXED = 0.03, 0.25  # the half-width as a share: of tokens, and of the tokens of each source


class Sets(NamedTuple):
    """Bytes of the file sets, of the temporary shuffle buckets, and of what the unit store keeps besides the sets."""

    n_bytes: Estimate = exactly(0)
    buckets: Estimate = exactly(0)
    beside: Estimate = exactly(0)


def estimate_sets(
    dataset: Mapping[str, Estimate],
    params: Encode,
    sources: Sequence[DocumentSource],
    tokens_of: Mapping[str | None, float],
    id_bytes: int,
) -> Sets:
    """Estimates the file sets; there are none without formats. `dataset`: what `estimate_dataset` gives. `tokens_of`: what
    `tokens_of_sources` gives. `id_bytes`: bytes per id in the files."""
    formats, pack, shuffle = params.set_formats(sources), params.pack, params.shuffle
    if not formats:
        return Sets()
    epochs = shuffle.epochs if shuffle else 1
    is_index = pack is not None and pack.output == "index"  # documents in the order of the dataset, once
    share = _stored(params, sources, tokens_of) * (1 if is_index else epochs) / max(dataset["tokens"].point, 1)
    unsure = _UNSURE if all(one.epochs == 1 for one in sources) else _UNSURE_MIXED
    documents = dataset["documents"] * share
    tokens = dataset["tokens"] * around(share, share * unsure)
    segments = exactly(0) if pack is None else documents + tokens * (1 / pack.length)
    items = documents
    if pack is not None and not is_index:
        items, tokens = _sequences(pack, documents, tokens)
    compressed = dataset["output_bytes"].point / max(dataset["tokens"].point, 1)
    sets = tokens * sum(_token_bytes(name, params, id_bytes, compressed) for name in formats)
    sets += items * _ITEM_BYTES * len(formats)
    buckets = exactly(0)
    if shuffle and is_index:
        buckets = segments * (_IN_BUCKETS * epochs)
    elif shuffle:
        in_buckets = id_bytes + (params.chat is not None) + _LABEL_BYTES * (pack is not None and pack.labels)
        kinds = len({SET_FORMATS[name].one_file for name in formats})  # each has buckets of its own
        buckets = (tokens * in_buckets + items * _IN_BUCKETS) * kinds
    if is_index:
        sets += segments * _INDEX_BYTES * (2 * epochs)
    n_sets = (len(formats) + is_index) * max(len(params.splits), 1) * (epochs if shuffle else len(sources))
    return Sets(sets, buckets, segments * _SEGMENT_BYTES + _FILES_BYTES * n_sets)


def _sequences(pack: Pack, documents: Estimate, tokens: Estimate) -> tuple[Estimate, Estimate]:
    """Estimates the number of packed sequences and of their tokens. The ranges are wide, because the lengths of documents are
    unknown."""
    if pack.long == "drop":
        tokens = Estimate(0.0, tokens.point, tokens.high)
    elif pack.long == "cut":
        most = documents * pack.length
        tokens = Estimate(min(tokens.low, most.low) / 4, min(tokens.point, most.point), min(tokens.high, most.high))
    items = tokens * (1 / pack.length) + exactly(0 if pack.long == "drop" else 1)
    if pack.mode == "none":
        more = documents.high + (items.high if pack.long == "split" else 0)
        low = 0.0 if pack.long == "drop" else max(documents.low, items.low)
        items = Estimate(low, max(documents.point, items.point), more)
    return items, tokens if pack.pad is None else items * pack.length


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


def _token_bytes(name: FormatName, params: Encode, id_bytes: int, compressed: float) -> float:
    """The bytes per token in a format. `compressed`: those in data/tokens/documents."""
    has_labels = params.pack is not None and params.pack.output == "rows" and params.pack.labels
    if name in _COMPRESSED:
        return compressed * (2 if has_labels else 1)
    if name == "megatron_sft":
        return 4
    more = (_LABEL_BYTES * has_labels + (params.chat is not None)) if name in _WITH_COLUMNS else 0
    return id_bytes + more


def tokens_of_sources(
    sample: Sample | None, shards: Iterable[Shard], tokens: float, built: Mapping[str | None, int]
) -> Mapping[str | None, float]:
    """Divides `tokens` among the sources, by file bytes times the tokens per byte in the sample of such files. `built`: the tokens
    of each source in the present dataset, used if there is no sample."""
    if sample is None and built:
        return built
    rates: dict[Shard, float] = {}
    for one in sample.strata if sample else ():
        n_encoded = sum(batch.of for batch in one.tokens)
        if n_encoded and one.file_bytes:
            rate = one.text_bytes / one.file_bytes * sum(batch.n for batch in one.tokens) / n_encoded
            rates |= dict.fromkeys(one.shards, rate)
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
