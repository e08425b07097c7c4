"""What the file sets of a build will take: disk, and seconds of the stages that write and check them."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor

from tokenmill.config.params import Encode, FormatName
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.shards import Shard
from tokenmill.dataset.formats.table import SET_FORMATS
from tokenmill.pipeline.estimate import Known, Range, exactly
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.sampling import Sample

_ITEM_BYTES = Range(2.0, 20.0, 36.0)  # of a document or sequence beside its ids, measured on each format
_LABEL_BYTES = 8  # a token's label and position, in formats with columns
_WITH_COLUMNS = ("parquet", "arrow", "mds")
_UNSURE, _UNSURE_MIXED = 0.03, 0.25  # the half-width as a share: of tokens, and of the tokens of each source
_IN_BUCKETS = 40  # bytes of an item beside its ids, while a set is shuffled
_SEGMENT_BYTES = 32  # of a document in a packing, in the unit store
_FILES_A_SET, _BLOCK_BYTES = 6, 4096  # of a small set: its files, and those of the unit store beside them
_PACKING_BYTES = Range(0.0, 30e6, 100e6)  # of memory for each worker; with labels, so many more
_LABELS_BYTES = Range(30e6, 90e6, 140e6)
_SET_S = 1 / 1.5e8  # for a byte of a file set in one thread: to write it, or to read it and what it must hold


def with_sets(
    found: Mapping[str, Range],
    params: Encode,
    sources: Sequence[DocumentSource],
    tokens_of: Mapping[str | None, float],
    id_bytes: int,
    known: Known,
    memory: Memory,
) -> dict[str, Range]:
    """The ranges of a plan with those of the file sets: `sets_bytes`, and their part of disk, memory and seconds. The same without
    formats.

    `found`: as `estimate` gives it. `tokens_of`: see `tokens_of_sources`. `id_bytes`: of an id in the files.
    """
    formats = params.set_formats(sources)
    if not formats:
        return dict(found)
    stored = _stored(params, sources, tokens_of)
    share = stored / max(found["tokens"].point, 1)
    unsure = _UNSURE if all(one.epochs == 1 for one in sources) else _UNSURE_MIXED
    n_items = found["documents"].times(*[share] * 3)
    tokens = found["tokens"].times(share * (1 - unsure), share, share * (1 + unsure))
    pack = params.pack
    if pack is not None and pack.output == "rows":
        if pack.mode != "none":
            n_items = tokens.times(*[1 / pack.length] * 3).plus(exactly(1))
        if pack.pad is not None:
            tokens = n_items.times(*[pack.length] * 3)
    own = found["output_bytes"].point / max(found["tokens"].point, 1)
    per_token = sum(_token_bytes(name, params, id_bytes, own) for name in formats)
    sets = tokens.times(*[per_token] * 3).plus(n_items.times(*(n * len(formats) for n in _ITEM_BYTES)))
    kinds = len({SET_FORMATS[name].one_file for name in formats}) if params.shuffle is not None else 0
    buckets = tokens.times(*[id_bytes * kinds] * 3).plus(n_items.times(*[_IN_BUCKETS * kinds] * 3))
    result: dict[str, Range] = {}
    for name, one in found.items():
        result[name] = one
        if name == "output_bytes":
            result["sets_bytes"] = sets
    if not known.stages["encode"].would_run:
        return result
    is_done = min(
        known.tokens / max(found["tokens"].point, 1), 1.0
    )  # parts of documents that stay are not written again
    new = Range(sets.low * (1 - is_done), sets.point, sets.high)
    if pack is not None:
        segments = found["documents"].times(*[share * _SEGMENT_BYTES] * 3)
        result["disk_bytes"] = result["disk_bytes"].plus(segments)
    n_sets = len(formats) * max(len(params.splits), 1) * (1 if params.shuffle else len(sources))
    small = n_sets * _FILES_A_SET * _BLOCK_BYTES
    result["disk_bytes"] = result["disk_bytes"].plus(Range(small * 0.3, small, small * 2))
    copies = new.times(*[known.copies] * 3)
    result["disk_bytes"] = result["disk_bytes"].plus(new).plus(copies)
    result["dvc_cache_bytes"] = result["dvc_cache_bytes"].plus(copies)
    result["spill_bytes"] = Range(*(max(one, other) for one, other in zip(found["spill_bytes"], buckets, strict=True)))
    if pack is not None and pack.output == "rows":
        each = _PACKING_BYTES.plus(_LABELS_BYTES) if pack.labels else _PACKING_BYTES
        peak = found["peak_memory_bytes"].plus(each.times(*[memory.workers] * 3))
        result["peak_memory_bytes"] = peak.at_most(memory.mb_max * 1e6)
    seconds = new.plus(buckets).times(*(factor * _SET_S / memory.workers for factor in (0.4, 1, 2.5)))
    for stage in ("encode", "validate"):
        if f"seconds {stage}" in found:
            result[f"seconds {stage}"] = found[f"seconds {stage}"].plus(seconds)
            result["seconds"] = result["seconds"].plus(seconds)
    return result


def tokens_of_sources(sample: Sample | None, shards: Iterable[Shard], tokens: float) -> dict[str | None, float]:
    """The tokens of each source by its name, which are `tokens` together: by the bytes of its files, and by the tokens for a byte
    that the sample has of its kind of file."""
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
    """Why a build would refuse a budget of tokens, a text each."""
    share = next(iter(params.splits.values()), 1.0)
    found = [(one, one.tokens / max(tokens_of.get(one.name, 0.0) * share, 1)) for one in sources if one.tokens]
    return [
        f"sources.{one.name}.tokens: {one.tokens:,} are about {epochs:,.0f} epochs of the source; allowed: at most "
        f"{EPOCHS_MAX:,} epochs. Lower it, or add documents."
        for one, epochs in found
        if epochs > EPOCHS_MAX * 1.5  # what the sample says is not exact
    ]


def _stored(params: Encode, sources: Sequence[DocumentSource], tokens_of: Mapping[str | None, float]) -> float:
    """The tokens in all sets of one format, those of linked files once."""
    first = next(iter(params.splits.values()), 1.0)
    is_index = params.pack is not None and params.pack.output == "index"  # documents in the order of the dataset
    shuffle = None if is_index else params.shuffle
    total = 0.0
    for source in sources:
        n = tokens_of.get(source.name, 0.0)
        epochs = source.epochs if source.epochs is not None else (source.tokens or 0) / max(n * first, 1)
        epochs = min(epochs, EPOCHS_MAX)
        if shuffle is None and epochs > 1:
            epochs = 1 + epochs - floor(epochs)  # whole passes are the same files
        total += n * (first * epochs + 1 - first)
    return total * (shuffle.epochs if shuffle else 1)


def _token_bytes(name: FormatName, params: Encode, id_bytes: int, own: float) -> float:
    """The bytes of a token in a format. `own`: in the documents' own files, which are compressed."""
    pack = params.pack
    has_labels = pack is not None and pack.output == "rows" and pack.labels
    if name == "parquet":
        return own * (2 if has_labels else 1)
    more = (_LABEL_BYTES * has_labels + (params.chat is not None)) if name in _WITH_COLUMNS else 0
    return id_bytes + more
