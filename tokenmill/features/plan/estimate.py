"""Estimates from a sample what a build makes: a low, a point and a high for each quantity of the dataset."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenmill.corpus.shards import Shard
from tokenmill.features.plan.measuring import Sample
from tokenmill.features.plan.sampling import Observed, Stratum
from tokenmill.features.plan.work import Distinct, EarlierTotals, Finished

CONFIDENCE = 0.95
_Z = 1.959964  # of a normal distribution, for CONFIDENCE

# The least half-widths, as shares of what is estimated: the beginning of a stream may differ from the rest.
_FLOOR_TEXT = 0.02
_FLOOR_TOKENS = 0.015
_FLOOR_LEARNED = 0.045  # more, if the build learns another tokenizer
_FLOOR_OUTPUT = 0.01  # more, for how well the ids of longer texts compress
_ALONE = 0.15  # the standard error of a ratio that one observation alone shows, as a share
_HEAPS_DEFAULT, _HEAPS_MIN, _HEAPS_MAX = 0.6, 0.3, 1.0
_HEAPS_SPREAD = 0.06  # the exponent's error


@dataclass(frozen=True)
class Estimate:
    """A quantity of a build to come: with a confidence of 95 %, what is found lies from `low` to `high`. Sums and products are
    those of quantities that err in the same direction."""

    low: float
    point: float
    high: float

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.low + other.low, self.point + other.point, self.high + other.high)

    def __mul__(self, other: "float | Estimate") -> "Estimate":
        by = other if isinstance(other, Estimate) else exactly(other)
        return Estimate(self.low * by.low, self.point * by.point, self.high * by.high)

    def each(self, change: Callable[[float], float]) -> "Estimate":
        """The estimate of a function that does not fall."""
        return Estimate(change(self.low), change(self.point), change(self.high))

    def at_most(self, most: float) -> "Estimate":
        """The estimate with nothing above `most`."""
        return self.each(lambda n: min(n, most))

    def without(self, n: float) -> "Estimate":
        """The estimate of what is left without this number, at least 0."""
        return self.each(lambda one: max(one - n, 0))

    def or_more(self, other: "Estimate") -> "Estimate":
        """The estimate of the larger of two quantities."""
        return Estimate(max(self.low, other.low), max(self.point, other.point), max(self.high, other.high))


def exactly(n: float) -> Estimate:
    """A number that is known."""
    return Estimate(n, n, n)


def around(point: float, half: float) -> Estimate:
    """The estimate with this half-width, not below 0."""
    return Estimate(max(point - half, 0.0), point, point + half)


def estimate_dataset(
    sample: Sample | None, finished: Finished, earlier: Mapping[Shard, EarlierTotals]
) -> dict[str, Estimate]:
    """Estimates the documents, tokens, text bytes and file bytes of the whole dataset, by the names of Finished. None is less than
    what is known to be in it.

    `sample`: None if there are no documents to encode. `earlier`: the totals of the documents that were read before."""
    strata = sample.strata if sample else []
    texts = [_scaled(stratum, "text_bytes", "text_bytes", earlier) for stratum in strata]
    documents = [_scaled(stratum, "n_documents", "documents", earlier) for stratum in strata]
    estimates = {"documents": _sum(documents), "text_bytes": _sum(texts)}
    least = {
        "documents": sum(_least(stratum, "n_documents", "documents", earlier) for stratum in strata),
        "text_bytes": sum(_least(stratum, "text_bytes", "text_bytes", earlier) for stratum in strata),
    }
    if sample and not sample.is_other:
        encoded = (observed for stratum in strata if stratum.is_untouched for observed in stratum.tokens)
        least["tokens"] = sum(observed.n for observed in encoded)
    unseen = [_unseen(stratum, text) for stratum, text in zip(strata, texts, strict=True)]
    unsure = _FLOOR_TOKENS + (_FLOOR_LEARNED if sample and sample.is_other else 0)
    for name, floor, observed in (
        ("tokens", unsure, [stratum.tokens for stratum in strata]),
        ("output_bytes", unsure + _FLOOR_OUTPUT, [stratum.files for stratum in strata]),
    ):
        parts = zip(texts, observed, unseen, strict=True)
        whole = _sum(_product(text, _ratio(observations, share)) for text, observations, share in parts)
        floor *= whole.point * max(unseen, default=0.0)
        estimates[name] = around(whole.point, whole.point - whole.low + floor)
    return {
        name: estimates[name].or_more(exactly(least.get(name, 0))) + exactly(n)
        for name, n in finished._asdict().items()
    }


def _scaled(stratum: Stratum, measure: str, total: str, earlier: Mapping[Shard, EarlierTotals]) -> Estimate:
    """Scales a measure of the excerpts up to the whole stratum. `measure`, `total`: its names in an Excerpt and in the totals of
    `earlier`, which are exact. The other files are scaled from their own excerpts, if some were read: new files may be compressed
    otherwise, or hold other texts."""
    before = [earlier[shard] for shard in stratum.shards if shard in earlier]
    known = exactly(sum(getattr(totals, total) for totals in before))
    rest_bytes = stratum.file_bytes - sum(totals.file_bytes for totals in before)
    if rest_bytes <= 0:
        return known
    new = [excerpt for excerpt in stratum.excerpts if excerpt.shard not in earlier]
    n_read = sum(excerpt.shard.n_bytes if excerpt.is_whole else excerpt.file_bytes for excerpt in new)
    unread, excerpts = max(1 - n_read / rest_bytes, 0.0), new or stratum.excerpts
    observed = [Observed(excerpt.file_bytes, getattr(excerpt, measure)) for excerpt in excerpts]
    ratio = _ratio(observed, unread)
    # The standard deviation of a difference of two uniform errors.
    blur = _Z * math.hypot(*(excerpt.blur_bytes for excerpt in excerpts)) / math.sqrt(6)
    blur /= max(sum(observation.of for observation in observed), 1)
    half = ratio.high - ratio.point + ratio.point * (blur + _FLOOR_TEXT * min(2 * unread, 1))
    return around(ratio.point * rest_bytes, half * rest_bytes) + known


def _least(stratum: Stratum, measure: str, total: str, earlier: Mapping[Shard, EarlierTotals]) -> float:
    """What is known of a stratum: the totals of `earlier`, and what was read of other files, unless some of it may be encoded."""
    known: float = sum(getattr(earlier[shard], total) for shard in stratum.shards if shard in earlier)
    if stratum.is_untouched:
        known += stratum.total(lambda excerpt: 0 if excerpt.shard in earlier else getattr(excerpt, measure))
    return known


def _unseen(stratum: Stratum, text: Estimate) -> float:
    """The share of a stratum's text that was not encoded."""
    return min(max(1 - sum(observed.of for observed in stratum.tokens) / max(text.point, 1), 0.0), 1.0)


def _ratio(observed: Sequence[Observed], unseen: float) -> Estimate:
    """The ratio of the sums of `n` and `of`, and its range from the spread between the observations.

    `unseen`: the share of the whole that they are not: without any, the ratio is exact. (Cochran, Sampling Techniques, 6.3: the
    ratio estimate with the correction for a finite population.)

    >>> _ratio([Observed(1, 2), Observed(1, 2)], 1.0)
    Estimate(low=2.0, point=2.0, high=2.0)
    """
    n, whole = len(observed), sum(observation.of for observation in observed)
    if not whole:
        return exactly(0)
    ratio = sum(observation.n for observation in observed) / whole
    if n < 2:
        return around(ratio, _Z * _ALONE * ratio * math.sqrt(unseen))
    spread = sum((observation.n - ratio * observation.of) ** 2 for observation in observed) * n / (n - 1)
    return around(ratio, _quantile(n - 1) * math.sqrt(unseen * spread) / whole)


def _quantile(freedom: int) -> float:
    """Student's t for CONFIDENCE, by its expansion in 1 / degrees of freedom (Abramowitz and Stegun, 26.7.5), and at most 5.

    >>> round(_quantile(10), 2)
    2.23
    """
    first, second = (_Z**3 + _Z) / 4, (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return min(_Z + first / freedom + second / freedom**2, 5.0)


def _product(text: Estimate, ratio: Estimate) -> Estimate:
    """Multiplies two estimates whose errors are independent."""
    half = math.hypot((text.high - text.point) * ratio.point, text.point * (ratio.high - ratio.point))
    return around(text.point * ratio.point, half)


def _sum(parts: Iterable[Estimate]) -> Estimate:
    """Adds estimates whose errors are independent."""
    found = list(parts)
    return around(sum(one.point for one in found), math.hypot(*(one.high - one.point for one in found)))


class DistinctAll(NamedTuple):
    """Distinct pre-tokens of the whole corpus, their bytes, and those of one unit of `count`. `file_byte`: bytes of a file of
    counts for a distinct pre-token."""

    n: Estimate
    n_bytes: Estimate
    n_unit: Estimate
    file_byte: float = 0.0


def estimate_distinct(
    sample: Sample | None, counted: Distinct | None, least: Sequence[Distinct], text_bytes: float, unit_bytes: float
) -> DistinctAll:
    """Extrapolates the distinct pre-tokens of the sample by Heaps' law. `counted`: those of the counts that stay; None without any.
    `least`: those of parts of the corpus. `text_bytes`: the whole text; `unit_bytes`: that of a unit."""
    if counted is not None or sample is None or sample.half is None or sample.all is None:
        known = counted or Distinct(0, 0, 0)
        return DistinctAll(exactly(known.n), exactly(known.n_bytes), exactly(0))
    half, whole = sample.half, sample.all
    n = _grown(half, whole, lambda one: one.n, text_bytes)
    n_bytes = _grown(half, whole, lambda one: one.n_bytes, text_bytes)
    for part in least:
        n, n_bytes = n.or_more(exactly(part.n)), n_bytes.or_more(exactly(part.n_bytes))
    n_unit = _grown(half, whole, lambda one: one.n, unit_bytes)
    return DistinctAll(n, n_bytes, n_unit, sample.counts_bytes / max(whole.n, 1))


def _grown(half: Distinct, whole: Distinct, measure: Callable[[Distinct], int], text_bytes: float) -> Estimate:
    """Extrapolates a measure of `whole` to `text_bytes` by Heaps' law, which says that it grows by a power of the text."""
    few, n = measure(half), measure(whole)
    exponent = _HEAPS_DEFAULT
    if few and half.text_bytes < whole.text_bytes:
        exponent = math.log(n / few) / math.log(whole.text_bytes / half.text_bytes)
        exponent = min(max(exponent, _HEAPS_MIN), _HEAPS_MAX)
    factor = text_bytes / max(whole.text_bytes, 1)
    ends = (exponent - _HEAPS_SPREAD, exponent, min(exponent + _HEAPS_SPREAD, 1.0))
    low, point, high = sorted(factor**end for end in ends)
    return Estimate(n * low * 0.95, n * point, n * high * 1.05)
