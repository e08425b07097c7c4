"""Reports on the file sets of a dataset: their contents, packing and mixture."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tokenmill.dataset.manifest import Manifest, SourceEntry
from tokenmill.quantities import size
from tokenmill.report.html import escaped, look, number, percent, table


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
    tokens: Counter[str | None] = Counter()
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


def asked_weight(source: SourceEntry) -> dict[str, float | None]:
    """The requested weight: a number of `epochs`, or a budget of `tokens`."""
    return {"epochs": source.epochs} if source.tokens is None else {"tokens": source.tokens}


def words_of_weight(weight: Mapping[str, float]) -> str:
    """The requested weight as text."""
    return f"a budget of {weight['tokens']:,} tokens" if "tokens" in weight else f"epochs: {weight['epochs']:g}"


def section(report: Mapping[str, Any]) -> str:
    """The section on file sets, mixture and packing, as HTML; empty without file sets."""
    if not report.get("sets"):
        return ""
    keys = ("split", "source", "epoch")
    used = [key for key in keys if any(one[key] is not None for one in report["sets"])]
    rows = [
        (
            escaped(one["format"]),
            *(escaped("" if one[key] is None else one[key]) for key in used),
            number(one["parts"]),
            number(one["items"]),
            number(one["tokens"]),
            size(one["n_bytes"]),
        )
        for one in report["sets"]
    ]
    words = look(
        "A split or a source that is far smaller than asked for has too few documents, or its glob misses files."
    )
    parts = [
        "<h2>Files for training jobs</h2>",
        words,
        table(("format", *used, "parts", "items", "tokens", "size"), rows, 1 + len(used)),
    ]
    if report.get("mixture"):
        of_sources = [
            (
                escaped(one["split"] or "all"),
                escaped(one["source"]),
                escaped("" if one["weight"] is None else words_of_weight(one["weight"])),
                f"{one['epochs']:.4g}",
                number(one["documents"]),
                number(one["tokens"]),
                percent(one["share"]),
            )
            for one in report["mixture"]
        ]
        parts += [
            look("A source with many epochs repeats its documents: it has few tokens for its weight."),
            table(("split", "source", "asked for", "epochs", "documents", "tokens", "share"), of_sources, 3),
        ]
    if report["packing"]:
        packed = [
            (
                escaped(split or "all"),
                number(one["n_sequences"]),
                percent(one["padding_share"], 3),
                number(one["n_split_documents"]),
                number(one["n_cut_tokens"]),
                number(one["n_dropped_documents"]),
                number(one["n_dropped_tokens"]),
                number(one["n_empty_documents"]),
            )
            for split, one in report["packing"].items()
        ]
        columns = (
            "split",
            "sequences",
            "padding",
            "documents split",
            "tokens cut",
            "documents dropped",
            "their tokens",
            "empty documents",
        )
        parts += [
            look(
                "Padding is what sequences are short of their length. Tokens that were cut or dropped are never trained on."
            ),
            table(columns, packed),
        ]
    return "".join(parts)
