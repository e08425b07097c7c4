"""Estimates the bytes of the file sets of a build, on the disk and while they are shuffled."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import NamedTuple

from tokenmill.config.encode_params import Encode
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.shards import Shard
from tokenmill.features.plan.estimate import Estimate, around, exactly
from tokenmill.features.plan.measuring import Sample
from tokenmill.features.plan.measuring_sets import SetRates
from tokenmill.formats.by_name import SET_FORMATS

_IN_BUCKETS = 40  # bytes of an item besides its ids, while a set is shuffled
_LABEL_BYTES = 8  # of a token's label and position, while a set is shuffled
_FILES_BYTES = Estimate(7_000, 25_000, 50_000)  # of a small set: its files, and the facts in the unit store
_PART_BYTES = Estimate(
    500, 2_000, 8_000
)  # of each further file of a set: its head, its entry in the manifest, and its facts
_UNSURE, _UNSURE_MIXED = 0.03, 0.25  # the half-width as a share: of tokens, and of the tokens of each source
_UNSURE_LENGTHS = 0.15  # where the length of a document decides how many of its tokens are in sequences


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
    rates: SetRates,
    id_bytes: int,
) -> Sets:
    """Estimates the file sets; there are none without formats. `dataset`: what `estimate_dataset` gives. `tokens_of`: what
    `tokens_of_sources` gives. `id_bytes`: bytes per id in the files."""
    formats, pack, shuffle = params.set_formats(sources), params.pack, params.shuffle
    if not formats:
        return Sets()
    epochs = shuffle.epochs if shuffle else 1
    is_index = pack is not None and pack.output == "index"  # documents in the order of the dataset, once
    # Whole passes over a source are the same files, unless they are shuffled or one file has several sources. An index lists each.
    n_linked, n_listed = (_n_tokens(params, sources, tokens_of, is_linked) for is_linked in (True, False))
    whole = max(dataset["tokens"].point, 1)
    are_linked = not shuffle or (is_index and whole * id_bytes > params.part_bytes)
    share = (n_linked if are_linked else n_listed) / whole
    unsure = _UNSURE if all(source.epochs == 1 for source in sources) else _UNSURE_MIXED
    unsure += _UNSURE_LENGTHS if pack is not None and pack.long in ("cut", "drop") else 0
    tokens = dataset["tokens"] * around(share, share * unsure)
    index = dataset["tokens"] * around(n_listed / whole, n_listed / whole * unsure) * (rates.index_bytes * epochs)
    sets = tokens * (rates.set_bytes * (1 if is_index else epochs)) + index
    buckets = exactly(0)
    if shuffle and is_index:
        buckets = index * 2
    elif shuffle:
        in_buckets = id_bytes + (params.chat is not None) + _LABEL_BYTES * (pack is not None and pack.labels)
        kinds = len({SET_FORMATS[name].one_file for name in formats})  # each has buckets of its own
        buckets = tokens * ((rates.n_tokens * in_buckets + rates.n_items * _IN_BUCKETS) * epochs * kinds)
    n_sets = (len(formats) + is_index) * max(len(params.splits), 1) * (epochs if shuffle else len(sources))
    beside = tokens * (2 * rates.segment_bytes)  # encode and validate have them
    beside = beside + _FILES_BYTES * n_sets + _PART_BYTES * (n_sets * ((params.min_parts or 1) - 1))
    return Sets(sets, buckets, beside)


def _n_tokens(
    params: Encode, sources: Sequence[DocumentSource], tokens_of: Mapping[str | None, float], is_linked: bool
) -> float:
    """The tokens in the sets of one format, in one epoch. `is_linked`: whether whole passes over a source count once."""
    first = next(iter(params.splits.values()), 1.0)
    total = 0.0
    for source in sources:
        n = tokens_of.get(source.name, 0.0)
        epochs = source.epochs if source.epochs is not None else (source.tokens or 0) / max(n * first, 1)
        epochs = min(epochs, EPOCHS_MAX)
        if is_linked and epochs > 1:
            epochs = 1 + epochs - floor(epochs)  # whole passes are the same files
        total += n * (first * epochs + 1 - first)
    return total


def tokens_of_sources(
    sample: Sample | None, shards: Iterable[Shard], tokens: float, built: Mapping[str | None, int]
) -> Mapping[str | None, float]:
    """Divides `tokens` among the sources, by file bytes times the tokens per byte in the sample of such files. `built`: the tokens
    of each source in the present dataset, used if there is no sample."""
    if sample is None and built:
        return built
    rates: dict[Shard, float] = {}
    for stratum in sample.strata if sample else ():
        n_encoded = sum(batch.of for batch in stratum.tokens)
        if n_encoded and stratum.file_bytes:
            rate = stratum.text_bytes / stratum.file_bytes * sum(batch.n for batch in stratum.tokens) / n_encoded
            rates |= dict.fromkeys(stratum.shards, rate)
    mean = sum(rates.values()) / len(rates) if rates else 1.0
    n_bytes_of: dict[str | None, float] = {}
    for shard in shards:
        name = None if shard.source is None else shard.source.name
        n_bytes_of[name] = n_bytes_of.get(name, 0.0) + shard.n_bytes * rates.get(shard, mean)
    whole = sum(n_bytes_of.values())
    return {name: tokens * n / max(whole, 1) for name, n in n_bytes_of.items()}


def many_epochs(params: Encode, sources: Sequence[DocumentSource], tokens_of: Mapping[str | None, float]) -> list[str]:
    """One text for each budget of tokens that a build would refuse."""
    if not params.set_formats(sources):
        return []
    share = next(iter(params.splits.values()), 1.0)
    epochs_of = [
        (source, source.tokens / max(tokens_of.get(source.name, 0.0) * share, 1)) for source in sources if source.tokens
    ]
    return [
        f"sources.{source.name}.tokens: {source.tokens:,} are about {epochs:,.0f} epochs of the source; allowed: at most "
        f"{EPOCHS_MAX:,} epochs. Lower it, or add documents."
        for source, epochs in epochs_of
        if epochs > EPOCHS_MAX * 1.5  # the estimate is not exact
    ]
