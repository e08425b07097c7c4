"""Says which tools and loaders read the files of each format of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenmill_reader.manifest import Manifest


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
