"""The formats of `encode.formats`, with what the tools do that read their files.

What a format's files look like is in formats/, and decides bytes. What is here decides none, so its words can be mended.
"""

from collections.abc import Mapping
from typing import NamedTuple


class FormatFacts(NamedTuple):
    """What tools make of the files of a format.

    `read_by`: their names, in Markdown. `gives`: what their readers give of packed sequences, in Markdown. `keeps_ends`: they give
    each packed sequence as it was written; otherwise windows of one length, wherever sequences end. `needs_end`: they find
    documents by the id that ends them. `holds_lists`: the files have a place for the loss mask and the labels.
    `only_packed_chat`: the files hold packed conversations alone. `opened_by`: how they open a folder `{path}`, in Python or in
    words; None: `tokenmill.open` reads the format.
    """

    read_by: str
    gives: str
    keeps_ends: bool
    needs_end: bool = False
    holds_lists: bool = False
    only_packed_chat: bool = False
    opened_by: str | None = None


_BRIDGE = FormatFacts(
    "Megatron-Bridge; [packed conversations](#conversations) only",
    "packed rows with their starts",
    keeps_ends=True,
    holds_lists=True,
    only_packed_chat=True,
    opened_by="Megatron-Bridge, from {path}",
)

FORMATS: Mapping[str, FormatFacts] = {
    "parquet": FormatFacts("polars, pyarrow, datasets", "rows", keeps_ends=True, holds_lists=True),
    "arrow": FormatFacts("datasets, pyarrow; memory-mapped", "rows", keeps_ends=True, holds_lists=True),
    "megatron": FormatFacts(
        "Megatron-LM, Megatron Core, NeMo, GPT-NeoX",
        "windows of `--seq-length` tokens, the documents in an order of its own",
        keeps_ends=False,
    ),
    "datatrove": FormatFacts("datatrove, nanotron", "windows of `seq_len` + 1 tokens", keeps_ends=False),
    "olmo": FormatFacts(
        "OLMo-core, dolma; the `.npy` has no header",
        "windows of `sequence_length` tokens (`NumpyFSLDataset`)",
        keeps_ends=False,
        needs_end=True,
    ),
    "mds": FormatFacts(
        "MosaicML Streaming, LLM Foundry",
        "samples",
        keeps_ends=True,
        holds_lists=True,
        opened_by="streaming.StreamingDataset(local={path!r})",
    ),
    "nanogpt": FormatFacts(
        "nanoGPT, as `train.bin` and `val.bin`; ids up to 65,535 only",
        "windows of `block_size` tokens that begin anywhere",
        keeps_ends=False,
    ),
    "litdata": FormatFacts(
        "LitData, LitGPT",
        "blocks of `block_size` tokens (`TokensLoader`)",
        keeps_ends=False,
        opened_by="litdata.StreamingDataset({path!r})",
    ),
    "megatron_sft": _BRIDGE,
    "megatron_sft_parquet": _BRIDGE,
}
"""The facts of each format, by its name in params.yaml."""


def that_hold_lists(is_packed_chat: bool) -> str:
    """Names the formats with a place for masks and labels, as a message does. `is_packed_chat`: whether the items are packed
    conversations."""
    names = [name for name, one in FORMATS.items() if one.holds_lists and (is_packed_chat or not one.only_packed_chat)]
    return f"{', '.join(names[:-1])} or {names[-1]}"
