"""Describes the file sets of a dataset: their files, the mixture of sources, and the packing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Optional

from tokenmill_reader.manifest import Manifest, Source


def sets_of(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each file set: format, split, source, epoch, and numbers of parts, items, tokens and bytes."""
    return [
        {
            "format": one.format,
            "split": one.split,
            "source": one.source,
            "epoch": one.epoch,
            "parts": len(one.parts),
            "items": sum(part.n_items for part in one.parts),
            "tokens": sum(part.n_tokens for part in one.parts),
            "n_bytes": sum(file.n_bytes for file in one.files),
        }
        for one in manifest.sets
    ]


def packing_of(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """The numbers of the packing by split ("" without splits), with `padding_share`: padding tokens per token of full-length
    sequences."""
    pack = manifest.files.pack if manifest.files else None
    if pack is None:
        return {}
    return {
        split: {**numbers, "padding_share": numbers["n_padding"] / max(numbers["n_sequences"] * pack.length, 1)}
        for split, numbers in manifest.packed.items()
    }


def mixture_of(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each split and named source: the requested `weight` (null except in the first split, the only mixed one), the
    resulting `epochs`, documents, tokens, and their `share` of the split's tokens."""
    weights = {one.name: asked_weight(one) for one in manifest.sources}
    tokens: Counter[Optional[str]] = Counter()
    for one in manifest.mixture:
        tokens[one.split] += one.n_tokens
    return [
        {
            "split": one.split,
            "source": one.source,
            "weight": weights.get(one.source) if one.split == manifest.mixture[0].split else None,
            "epochs": float(Fraction(one.epochs)),
            "documents": one.n_documents,
            "tokens": one.n_tokens,
            "share": one.n_tokens / max(tokens[one.split], 1),
        }
        for one in manifest.mixture
    ]


def asked_weight(source: Source) -> dict[str, float | None]:
    """The requested weight: a number of `epochs`, or a budget of `tokens`."""
    return {"epochs": source.epochs} if source.tokens is None else {"tokens": source.tokens}


def words_of_weight(weight: Mapping[str, float]) -> str:
    """The requested weight as text."""
    return f"a budget of {weight['tokens']:,} tokens" if "tokens" in weight else f"epochs: {weight['epochs']:g}"
