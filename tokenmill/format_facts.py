"""The formats of `encode.formats`, with what the tools do that read their files.

What a format's files look like is in formats/, and decides bytes. The words here decide none, so they can be mended.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class FormatFacts(NamedTuple):
    """What tools make of the files of a format.

    In Markdown: `gives`: what their readers give of packed sequences. `mask`: where they find the loss mask. `begins`: how they
    find where documents begin in a sequence. `split`: how one names a split to them. `note`: what else one has to know of the
    format. Their names are in tokenmill_reader.description.

    `keeps_ends`: they give each packed sequence as it was written; otherwise windows of one length, wherever sequences end.
    `needs_end`: they find documents by the id that ends them. `holds_mask`, `holds_labels`: the files have a place for the loss
    mask, for labels. `only_packed_chat`, `only_whole_chat`: the files hold conversations alone, packed or not.
    `only_pairs`, `holds_pairs`: the files hold preference pairs alone, or also. `opened_by`: how
    they open a folder `{path}`, in Python or in words; None: `tokenmill.open` reads the format. `file_bytes`: how many bytes of
    token ids they like a file to have, which `encode.file_bytes: null` stands for.
    """

    gives: str
    mask: str
    begins: str
    split: str
    keeps_ends: bool
    note: str = ""
    needs_end: bool = False
    holds_mask: bool = False
    holds_labels: bool = False
    only_packed_chat: bool = False
    only_whole_chat: bool = False
    only_pairs: bool = False
    holds_pairs: bool = False
    opened_by: str | None = None
    file_bytes: int = 1 << 30


_COLUMNS = ("column `loss_mask`", "column `starts`; with `labels: true` also `position_ids` and `seq_lengths`")
_NONE = "–"
_BRIDGE = FormatFacts(
    "packed rows with their starts",
    "in each row",
    "in each row",
    "`packed_train_data_path`, `packed_val_data_path`",
    keeps_ends=True,
    note="[packed conversations](#conversations) only",
    holds_mask=True,
    only_packed_chat=True,
    opened_by="Megatron-Bridge, from {path}",
)

FORMATS: Mapping[str, FormatFacts] = {
    "parquet": FormatFacts(
        "rows",
        *_COLUMNS,
        "by `load_dataset(folder)`",
        keeps_ends=True,
        holds_mask=True,
        holds_labels=True,
        holds_pairs=True,
    ),
    "arrow": FormatFacts(
        "rows",
        *_COLUMNS,
        "by `load_dataset(folder)`",
        keeps_ends=True,
        note="memory-mapped",
        holds_mask=True,
        holds_labels=True,
        holds_pairs=True,
    ),
    "megatron": FormatFacts(
        "windows of `--seq-length` tokens, the documents in an order of its own",
        "none; `--eod-mask-loss` leaves out end tokens",
        "by the end token: `--reset-position-ids`, `--reset-attention-mask`",
        "`--train-data-path`, `--valid-data-path`, `--test-data-path`",
        keeps_ends=False,
    ),
    "datatrove": FormatFacts(
        "windows of `seq_len` + 1 tokens",
        "in `.ds.loss`, a byte for each token; `DatatroveFolderDataset` does not read it",
        "in `.ds.index`: `return_positions=True`",
        "a folder each",
        keeps_ends=False,
        holds_mask=True,
    ),
    "olmo": FormatFacts(
        "windows of `sequence_length` tokens (`NumpyFSLDataset`)",
        "none; see `olmo_sft`",
        "by the end token: `generate_doc_lengths`",
        "the paths of its files",
        keeps_ends=False,
        note="the `.npy` has no header",
        needs_end=True,
    ),
    "mds": FormatFacts(
        "samples",
        f"{_COLUMNS[0]}, which LLM Foundry does not read",
        _COLUMNS[1],
        '`split="train"`',
        keeps_ends=True,
        holds_mask=True,
        holds_labels=True,
        opened_by="streaming.StreamingDataset(local={path!r})",
        file_bytes=1 << 26,  # size_limit of its MDSWriter
    ),
    "nanogpt": FormatFacts(
        "windows of `block_size` tokens that begin anywhere",
        _NONE,
        _NONE,
        "`train.bin`, `val.bin`",
        keeps_ends=False,
        note="as `train.bin` and `val.bin`; ids up to 65,535 only",
    ),
    "llmc": FormatFacts(
        "windows of the batch's length; modded-nanogpt begins them with a document",
        _NONE,
        "by `BOS_ID`, which begins each document: set `begin_of_document` (modded-nanogpt; llm.c does not ask)",
        "the pattern of its files",
        keeps_ends=False,
        note="ids up to 65,535 only",
        file_bytes=200_000_000,  # 100 M tokens, as dev/data of llm.c writes
    ),
    "litdata": FormatFacts(
        "blocks of `block_size` tokens (`TokensLoader`)",
        _NONE,
        _NONE,
        "a folder each",
        keeps_ends=False,
        opened_by="litdata.StreamingDataset({path!r})",
        file_bytes=1 << 26,  # chunk_bytes of its examples; its shuffle stays near in a chunk
    ),
    "olmo_sft": FormatFacts(
        "conversations, which `NumpyPackedFSLDataset` packs",
        "in files of its own: `label_mask_paths`",
        "by the end token, or in `.csv.gz` of a URL",
        "a folder each",
        keeps_ends=True,
        note="[conversations](#conversations) without `encode.pack` only",
        holds_mask=True,
        only_whole_chat=True,
        opened_by="OLMo-core, from {path}",
    ),
    "megatron_sft": _BRIDGE,
    "megatron_sft_parquet": _BRIDGE,
    "trl_dpo": FormatFacts(
        "a prompt with two answers",
        "none; the answers are trained",
        "a pair is a row",
        "a folder each",
        keeps_ends=True,
        note="[preference pairs](instruction-data.md#preference-pairs) only",
        only_pairs=True,
        opened_by="datasets.load_dataset('arrow', data_files={path!r} + '/*.arrow')",
    ),
}
"""The facts of each format, by its name in params.yaml."""


def that_hold_masks(is_packed: bool) -> str:
    """Names the formats with a place for the loss mask, as a message does. `is_packed`: whether the conversations are packed."""
    return _one_of(
        name
        for name, one in FORMATS.items()
        if one.holds_mask and not (one.only_whole_chat if is_packed else one.only_packed_chat)
    )


def that_hold_labels() -> str:
    """Names the formats with a place for labels, as a message does. Their readers keep the ends of sequences."""
    return _one_of(name for name, one in FORMATS.items() if one.holds_labels)


def _one_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
