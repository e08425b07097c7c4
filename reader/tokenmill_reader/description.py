"""Describes a token dataset by its manifest, and names the tools that read its formats."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike, fspath
from typing import Any, NamedTuple, Optional

from tokenmill_reader.manifest import Chat, Manifest, Source, check_is_dataset, read_manifest
from tokenmill_reader.shown import size
from tokenmill_reader.urls import dataset_folder


class Readers(NamedTuple):
    """The names of tools. `tools` read the files of every dataset, and `of_labels` also need those of `encode.pack.labels`."""

    tools: tuple[str, ...]
    of_labels: tuple[str, ...] = ()


LOADERS = ("PyTorch", "torchdata", "Grain", "LitGPT")
"""The loaders that take what `open` gives, in each format that it reads."""

_OF_LABELS = ("transformers", "TRL", "Axolotl", "LLaMA-Factory", "torchtitan")

READERS: Mapping[str, Readers] = {
    "parquet": Readers(("datasets", "polars", "pyarrow"), _OF_LABELS),
    "arrow": Readers(("datasets", "pyarrow"), _OF_LABELS),
    "megatron": Readers(("Megatron-LM", "Megatron Core", "NeMo", "GPT-NeoX")),
    "datatrove": Readers(("datatrove", "nanotron")),
    "olmo": Readers(("OLMo-core", "dolma")),
    "mds": Readers(("MosaicML Streaming", "LLM Foundry")),
    "nanogpt": Readers(("nanoGPT",)),
    "llmc": Readers(("llm.c", "modded-nanogpt")),
    "litdata": Readers(("LitData", "LitGPT")),
    "olmo_sft": Readers(("OLMo-core",)),
    "megatron_sft": Readers(("Megatron-Bridge",)),
    "megatron_sft_parquet": Readers(("Megatron-Bridge",)),
    "trl_dpo": Readers(("TRL",)),
}
"""The tools that read each format, by its name in params.yaml."""


def info(dataset: str | PathLike[str]) -> dict[str, Any]:
    """The manifest of a dataset without its lists of files, as values of JSON. `dataset`: its folder. Raises ValidationError if
    there is none.

    `sources`: the named sources. `file_bytes`: the size of the dataset's files. `shards`: the number of input files.
    `bytes_per_token`: None without tokens.
    """
    folder = dataset_folder(fspath(dataset))
    check_is_dataset(folder)
    return described(read_manifest(folder), str(folder))


def described(manifest: Manifest, name: str) -> dict[str, Any]:
    """What `info` gives of a dataset, from its manifest. `name`: its folder or URL."""
    n_damaged = len({rows.name for shard in manifest.shards for rows in shard.rows if rows.n_bad is None})
    return {
        "dataset": name,
        "format_version": manifest.format_version,
        "documents": manifest.n_documents,
        "tokens": manifest.n_tokens,
        "text_bytes": manifest.text_bytes,
        "bytes_per_token": round(manifest.text_bytes / manifest.n_tokens, 6) if manifest.n_tokens else None,
        "files": len(manifest.shards),
        "file_bytes": sum(shard.n_bytes for shard in manifest.shards),
        "shards": len(manifest.inputs),
        "shard_bytes": sum(shard.n_bytes for shard in manifest.inputs),
        "documents_bad": manifest.n_bad,
        "documents_dropped": sum(manifest.n_dropped.values()),
        "shards_damaged": n_damaged,
        "id_type": manifest.id_type,
        "id_max": manifest.id_max,
        "begin_of_document_id": manifest.begin_of_document_id,
        "end_of_document_id": manifest.end_of_document_id,
        "special_tokens_in_text": manifest.special_tokens_in_text,
        "sources": [
            {
                "name": source.name,
                "documents": source.n_documents,
                "tokens": source.n_tokens,
                "text_bytes": source.text_bytes,
                "weight": asked_weight(source),
                "special_tokens_in_text": source.special_tokens_in_text,
            }
            for source in manifest.sources
        ],
        "tokenizer_digest": manifest.tokenizer_digest,
        "tokenizer_origin": manifest.tokenizer_origin,
        "chat": None if manifest.chat is None else _chat(manifest.chat, manifest.n_tokens),
        "sets": sets_of(manifest),
        "read_by": read_by(manifest),
        "mixture": mixture_of(manifest),
        "packing": packing_of(manifest),
        "tables": [table.name for table in manifest.tables],
        "made_by": manifest.engine,
    }


def _chat(chat: Chat, n_tokens: int) -> dict[str, Any]:
    """How conversations became tokens: the template's name, the digest of its texts, its variables, and trained tokens."""
    templates = [one for one in (chat.template, chat.tool_use_template) if one is not None]
    return {
        "template": chat.template_name,
        "template_sha256": hashlib.sha256("\0".join(templates).encode()).hexdigest(),
        "mask": chat.mask,
        **({"untrained": chat.untrained} if chat.untrained else {}),
        "turns": chat.turns,
        **({} if chat.n_repeated is None else {"tokens_repeated": chat.n_repeated}),
        "variables": chat.variables,
        "tokens_trained": chat.n_trained,
        "trained_share": round(chat.n_trained / max(n_tokens, 1), 6),
    }


def lines_of(description: dict[str, Any]) -> list[str]:
    """The result of `info` as lines for a terminal."""
    origin = description["tokenizer_origin"] or {}
    words = " ".join(filter(None, (origin.get("name") or origin.get("source"), origin.get("version"))))
    version = f" ({words})" if words else ""
    per_token = (
        ""
        if description["bytes_per_token"] is None
        else f", {description['bytes_per_token']:.4f} bytes of text a token"
    )
    left_out = [
        f"{description[key]:,} {words}"
        for key, words in (
            ("documents_bad", "bad documents"),
            ("documents_dropped", "documents by filters"),
            ("shards_damaged", "damaged input files"),
        )
        if description[key]
    ]
    lines = {
        "documents": f"{description['documents']:,}, {size(description['text_bytes'])} of text",
        "tokens": f"{description['tokens']:,}{per_token}",
        **{f"source {source['name']}": _of_source(source) for source in description["sources"]},
        "files": f"{description['files']:,}, {size(description['file_bytes'])}, from {description['shards']:,} input files of "
        f"{size(description['shard_bytes'])}",
        "left out": ", ".join(left_out) or "nothing",
        "ids": f"{description['id_type']}, up to {description['id_max']:,}",
        "each document": f"{_framing(description)}; special tokens in text: {_policy(description)}",
        "tokenizer": f"{description['tokenizer_digest'][:16]}…{version}",
        **({} if description["chat"] is None else {"conversations": _of_chat(description["chat"])}),
        "tables": ", ".join(description["tables"]) or "none",
        "made by": f"{description['made_by']}, format {description['format_version']}",
    }
    for file_set in description["sets"]:
        epoch = None if file_set["epoch"] is None else f"epoch-{file_set['epoch']}"
        name = "/".join(
            part for part in (file_set["format"], file_set["split"], file_set["source"], epoch) if part is not None
        )
        lines[name] = (
            f"{file_set['items']:,} items, {file_set['tokens']:,} tokens in {file_set['parts']:,} parts, "
            f"{size(file_set['n_bytes'])}"
        )
    lines |= {f"{entry['format']} suits": words_of(entry) for entry in description["read_by"]}
    lines |= {
        "/".join(filter(None, ("packed", split))): _of_packing(entry) for split, entry in description["packing"].items()
    }
    for entry in description["mixture"]:
        name = "/".join(part for part in ("mixture", entry["split"], entry["source"]) if part is not None)
        lines[name] = (
            f"{entry['documents']:,} documents, {entry['tokens']:,} tokens ({entry['share']:.1%}), epochs: {entry['epochs']:.4g}"
        )
    width = max(14, *map(len, lines))
    return [description["dataset"], *(f"  {name:<{width}} {words}" for name, words in lines.items())]


def _of_source(one: dict[str, Any]) -> str:
    return f"{one['documents']:,} documents, {one['tokens']:,} tokens; {words_of_weight(one['weight'])}"


def _of_chat(chat: dict[str, Any]) -> str:
    trained = f"{chat['tokens_trained']:,} tokens trained ({chat['trained_share']:.1%}), mask {chat['mask']}"
    if "untrained" in chat:
        trained += f" without {', '.join(chat['untrained'])}"
    if chat["turns"] != "together":
        trained += f", turns {chat['turns']}"
    if "tokens_repeated" in chat:
        trained += f" ({chat['tokens_repeated']:,} tokens in samples that a longer one follows)"
    return f"template {chat['template']} ({chat['template_sha256'][:16]}…), {trained}"


def _of_packing(numbers: Mapping[str, float]) -> str:
    """What packing made of a split, and what it left out."""
    others = {"n_sequences", "n_padding", "n_trained", "padding_share"}
    rest = [f"{name[2:].replace('_', ' ')}: {n:,}" for name, n in numbers.items() if n and name not in others]
    return "; ".join([f"{numbers['n_sequences']:,} sequences, {numbers['padding_share']:.1%} padding", *rest])


def _policy(description: dict[str, Any]) -> str:
    """How texts of special tokens were treated: one word, or one for each named source if they differ."""
    of = {source["name"]: source["special_tokens_in_text"] for source in description["sources"]}
    if len(set(of.values())) > 1:
        return ", ".join(f"{policy} in {name}" for name, policy in of.items())
    return next(iter(of.values()), str(description["special_tokens_in_text"]))


def _framing(found: dict[str, Any]) -> str:
    begin, end = found["begin_of_document_id"], found["end_of_document_id"]
    words = [f"begins with id {begin}"] * (begin is not None) + [f"ends with id {end}"] * (end is not None)
    return " and ".join(words) or "has no id around it"


def sets_of(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each file set: format, split, source, epoch, and numbers of parts, items, tokens and bytes."""
    return [
        {
            "format": file_set.format,
            "split": file_set.split,
            "source": file_set.source,
            "epoch": file_set.epoch,
            "parts": len(file_set.parts),
            "items": sum(part.n_items for part in file_set.parts),
            "tokens": sum(part.n_tokens for part in file_set.parts),
            "n_bytes": sum(file.n_bytes for file in file_set.files),
        }
        for file_set in manifest.sets
    ]


def packing_of(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """The numbers of the packing by split, with `padding_share`: padding tokens per token of full-length sequences."""
    pack = manifest.files.pack if manifest.files else None
    if pack is None:
        return {}
    return {
        split: {**numbers, "padding_share": numbers["n_padding"] / max(numbers["n_sequences"] * pack.length, 1)}
        for split, numbers in manifest.packed.items()
    }


def mixture_of(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each split and named source: the requested `weight` (in the first split, the only mixed one), the resulting
    `epochs`, documents, tokens, and their `share` of the split's tokens."""
    weights = {entry.name: asked_weight(entry) for entry in manifest.sources}
    tokens: Counter[Optional[str]] = Counter()
    for entry in manifest.mixture:
        tokens[entry.split] += entry.n_tokens
    return [
        {
            "split": entry.split,
            "source": entry.source,
            "weight": weights.get(entry.source) if entry.split == manifest.mixture[0].split else None,
            "epochs": float(Fraction(entry.epochs)),
            "documents": entry.n_documents,
            "tokens": entry.n_tokens,
            "share": entry.n_tokens / max(tokens[entry.split], 1),
        }
        for entry in manifest.mixture
    ]


def asked_weight(source: Source) -> dict[str, float | None]:
    """The requested weight: a number of `epochs`, or a budget of `tokens`."""
    return {"epochs": source.epochs} if source.tokens is None else {"tokens": source.tokens}


def words_of_weight(weight: Mapping[str, float]) -> str:
    """The requested weight as text."""
    return f"a budget of {weight['tokens']:,} tokens" if "tokens" in weight else f"epochs: {weight['epochs']:g}"


def read_by(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each format of a dataset: the `tools` that read its files, and the `loaders` that take what `open` gives."""
    from tokenmill_reader.dataset_files import formats_of  # here, because numpy comes with it
    from tokenmill_reader.formats.table import READ_FORMATS

    pack = None if manifest.files is None else manifest.files.pack
    records = []
    for name in formats_of(manifest, manifest.sets):
        tools, of_labels = READERS.get(name, Readers(()))
        tools += of_labels if pack is not None and pack.labels else ()
        records.append({"format": name, "tools": list(tools), "loaders": list(LOADERS) if name in READ_FORMATS else []})
    return records


def words_of(one: Mapping[str, Any]) -> str:
    """A record of `read_by` as text."""
    opened = f"through tokenmill.open: {', '.join(one['loaders'])}" if one["loaders"] else ""
    return "; ".join(filter(None, (", ".join(one["tools"]), opened)))
