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
                "name": one.name,
                "documents": one.n_documents,
                "tokens": one.n_tokens,
                "text_bytes": one.text_bytes,
                "weight": asked_weight(one),
                "special_tokens_in_text": one.special_tokens_in_text,
            }
            for one in manifest.sources
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


def lines_of(found: dict[str, Any]) -> list[str]:
    """The result of `info` as lines for a terminal."""
    origin = found["tokenizer_origin"]
    version = f" ({origin['name'] or origin['source']} {origin['version'] or ''})".replace(" )", ")") if origin else ""
    per_token = "" if found["bytes_per_token"] is None else f", {found['bytes_per_token']:.4f} bytes of text a token"
    left_out = [
        f"{found[key]:,} {words}"
        for key, words in (
            ("documents_bad", "bad documents"),
            ("documents_dropped", "documents of source.drop"),
            ("shards_damaged", "damaged input files"),
        )
        if found[key]
    ]
    lines = {
        "documents": f"{found['documents']:,}, {size(found['text_bytes'])} of text",
        "tokens": f"{found['tokens']:,}{per_token}",
        **{f"source {one['name']}": _of_source(one) for one in found["sources"]},
        "files": f"{found['files']:,}, {size(found['file_bytes'])}, from {found['shards']:,} input files of "
        f"{size(found['shard_bytes'])}",
        "left out": ", ".join(left_out) or "nothing",
        "ids": f"{found['id_type']}, up to {found['id_max']:,}",
        "each document": f"{_framing(found)}; special tokens in text: {_policy(found)}",
        "tokenizer": f"{found['tokenizer_digest'][:16]}…{version}",
        **({} if found["chat"] is None else {"conversations": _of_chat(found["chat"])}),
        "tables": ", ".join(found["tables"]) or "none",
        "made by": f"{found['made_by']}, format {found['format_version']}",
    }
    for one in found["sets"]:
        epoch = None if one["epoch"] is None else f"epoch-{one['epoch']}"
        name = "/".join(part for part in (one["format"], one["split"], one["source"], epoch) if part is not None)
        lines[name] = (
            f"{one['items']:,} items, {one['tokens']:,} tokens in {one['parts']:,} parts, {size(one['n_bytes'])}"
        )
    lines |= {f"{one['format']} suits": words_of(one) for one in found["read_by"]}
    lines |= {"/".join(filter(None, ("packed", split))): _of_packing(one) for split, one in found["packing"].items()}
    for one in found["mixture"]:
        name = "/".join(part for part in ("mixture", one["split"], one["source"]) if part is not None)
        lines[name] = (
            f"{one['documents']:,} documents, {one['tokens']:,} tokens ({one['share']:.1%}), epochs: {one['epochs']:.4g}"
        )
    width = max(14, *map(len, lines))
    return [found["dataset"], *(f"  {name:<{width}} {words}" for name, words in lines.items())]


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


def _policy(found: dict[str, Any]) -> str:
    """How texts of special tokens were treated: one word, or one for each named source if they differ."""
    of = {one["name"]: one["special_tokens_in_text"] for one in found["sources"]}
    if len(set(of.values())) > 1:
        return ", ".join(f"{policy} in {name}" for name, policy in of.items())
    return next(iter(of.values()), str(found["special_tokens_in_text"]))


def _framing(found: dict[str, Any]) -> str:
    begin, end = found["begin_of_document_id"], found["end_of_document_id"]
    words = [f"begins with id {begin}"] * (begin is not None) + [f"ends with id {end}"] * (end is not None)
    return " and ".join(words) or "has no id around it"


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


def read_by(manifest: Manifest) -> list[dict[str, Any]]:
    """A record for each format of a dataset: the `tools` that read its files, and the `loaders` that take what `open` gives."""
    from tokenmill_reader.dataset_files import formats_of  # here, because numpy comes with it
    from tokenmill_reader.formats.table import READ_FORMATS

    pack = None if manifest.files is None else manifest.files.pack
    found = []
    for name in formats_of(manifest, manifest.sets):
        tools, of_labels = READERS.get(name, Readers(()))
        tools += of_labels if pack is not None and pack.labels else ()
        found.append({"format": name, "tools": list(tools), "loaders": list(LOADERS) if name in READ_FORMATS else []})
    return found


def words_of(one: Mapping[str, Any]) -> str:
    """A record of `read_by` as text."""
    opened = f"through tokenmill.open: {', '.join(one['loaders'])}" if one["loaders"] else ""
    return "; ".join(filter(None, (", ".join(one["tools"]), opened)))
