"""The entries of a dataset's manifest: its input files, its own files, and how one was made of the other."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from tokenmill.chat.answers import AnswerCounts
from tokenmill.config.chat_params import AnswerPart, MaskRule, Turns
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.config.record import Record
from tokenmill.config.source_params import Pair
from tokenmill.config.sources import DocumentFormat
from tokenmill.special_tokens import SpecialTokensInText


def _counts_of(value: object) -> object:
    if isinstance(value, dict) and value.keys() == set(AnswerCounts._fields):
        return AnswerCounts(**value)
    return value


Answers = Annotated[
    AnswerCounts, BeforeValidator(_counts_of), PlainSerializer(lambda counts: counts._asdict(), dict[str, int])
]
"""The counts of answers, an object in JSON."""


_FileCount = Annotated[int, Field(le=2**40)]
"""A number within one file, limited so that sums and draws over all files cannot overflow."""


class InputShard(Record):
    """An input file as it was encoded. `name`: relative to the project's folder. `source`: the name of its source; the key exists
    only with named sources."""

    name: str
    n_bytes: int
    sha256: str
    source: str | None = None


class InputRows(Record):
    """Documents of the input file `name`, from row `first_row` on, which is line `first_line` of a .jsonl file (1 for others).
    `n_documents` of them are in the dataset, `n_bad` in the quarantine, and `n_dropped` were left out by filters. `n_bad` is
    null if the file is damaged: then all documents of this unit from `first_row` on are in the quarantine. `n_samples`: with
    `turns: each`, the rows of the dataset that were made of its documents; else each document is a row, and the key is missing."""

    name: str
    first_row: _FileCount
    first_line: _FileCount
    n_documents: _FileCount
    n_bad: _FileCount | None
    n_dropped: _FileCount = 0
    n_samples: _FileCount | None = None

    @property
    def n_rows(self) -> int:
        """The rows of the dataset that were made of these documents."""
        return self.n_documents if self.n_samples is None else self.n_samples

    @property
    def next_row(self) -> int | None:
        """The row after these documents in the input file; None if the file is damaged."""
        return None if self.n_bad is None else self.first_row + self.n_documents + self.n_bad + self.n_dropped


class OutputShard(Record):
    """A file of the dataset. `name` is relative to the dataset's folder. `unit`: the key of its unit in the unit store.
    `text_bytes`: bytes of UTF-8 text; of conversations, the text that the template made of them. `rows`: the documents in its rows,
    in order. `n_documents`: the number of its rows; with `turns: each`, these are samples. `n_trained`: the trained tokens of
    conversations; the key is missing for texts. `answers`: counts of the conversations' answers; the key is missing for texts and
    in a dataset of an earlier tokenmill. `tokens_sha256`: the TokensDigest
    of its documents; the key is missing up to format 8."""

    name: str
    unit: str
    n_bytes: _FileCount
    sha256: str
    n_documents: _FileCount
    n_tokens: _FileCount
    text_bytes: _FileCount
    rows: list[InputRows] = Field(min_length=1)
    n_trained: _FileCount | None = None
    answers: Answers | None = None
    tokens_sha256: str | None = None

    @property
    def pieces(self) -> list[tuple[str, int]]:
        """The input file and first row of each piece of its unit."""
        return [(row.name, row.first_row) for row in self.rows]


class Origin(Record):
    """The source of a tokenizer that was not trained here. `version` and `commit` are null for a file."""

    source: str
    name: str | None
    version: str | None
    commit: str | None


class ConversationsEntry(Record):
    """How rows of the input files become conversations: `source.messages_column` and `source.tools_column`, `source.template`, or
    `source.pair`, whose key exists only for pairs."""

    messages_column: str | None
    tools_column: str | None
    template: dict[str, list[str]] | None
    pair: Pair | None = None


class ReadingEntry(Record):
    """How documents are read from the input files: `source.text_column`, `source.id_column` and `source.text_separator`.
    `conversations`: this key exists only for conversations. `format`: `source.format`; this key exists only if that is not null.
    `keep_columns`: the columns that the document index keeps; this key exists only if there are some."""

    text_column: str
    id_column: str | None
    text_separator: str | None
    conversations: ConversationsEntry | None = None
    format: DocumentFormat | None = None
    keep_columns: list[str] = Field(default=[])

    def not_written(self) -> dict[str, Any]:
        """The fields that manifest.json leaves out."""
        unset = ("conversations", "format", "keep_columns")
        left_out: dict[str, Any] = {name: True for name in unset if not getattr(self, name)}
        if self.conversations is not None and self.conversations.pair is None:
            left_out["conversations"] = {"pair"}
        return left_out


class SourceEntry(ReadingEntry):
    """A named source: how its documents were read, its requested weight (`epochs`, or a budget of `tokens`; the other is null), and
    the sums over its document files."""

    name: str
    special_tokens_in_text: SpecialTokensInText
    epochs: float | None
    tokens: int | None
    n_documents: int
    n_tokens: int
    text_bytes: int


class ChatEntry(Record):
    """How conversations became tokens: the text of the chat template, its requested name, which tokens are trained, and the
    template's variables. `n_trained`: the trained tokens in the documents' files.

    `tool_use_template`: the tokenizer's own template for conversations with tools; `template` is null if the tokenizer has no
    other. `train_key`: encode.chat.train_key. `train_next`: whether the special token after an answer is trained. `turns`:
    encode.chat.turns, if it is not `together`. `date`: encode.chat.date. `untrained`: the parts of answers that are not trained.
    Without a value, these keys are missing. `answers`: sums over the files. `n_repeated`: only with `turns: each`, the tokens in
    samples that a longer one of the same conversation follows."""

    template: str | None
    template_name: str
    mask: MaskRule
    variables: dict[str, Any]
    n_trained: int
    date: str | None = None
    tool_use_template: str | None = None
    train_key: str | None = None
    train_next: bool = False
    answers: Answers | None = None
    turns: Turns = "together"
    untrained: list[AnswerPart] = Field(default=[])
    n_repeated: int | None = None

    @property
    def encoding(self) -> dict[str, Any]:
        """The arguments of a ChatEncoder, which decide how conversations are encoded."""
        return {
            "template": self.template,
            "tool_use_template": self.tool_use_template,
            "mask": self.mask,
            "variables": self.variables,
            "train_key": self.train_key,
            "train_next": self.train_next,
            **({} if self.turns == "together" else {"turns": self.turns}),  # keys of earlier units have none
            **({"untrained": self.untrained} if self.untrained else {}),
            **({"date": self.date} if self.date else {}),
        }

    def not_written(self) -> set[str]:
        """The fields that manifest.json leaves out."""
        unset = {
            name
            for name in ("tool_use_template", "train_key", "train_next", "answers", "untrained", "date")
            if not getattr(self, name)
        }
        unset |= {"n_repeated"} if self.n_repeated is None else set()
        return unset | ({"turns"} if self.turns == "together" else set())


class TableFile(Record):
    """A file of data/tables, of data/tokenizer or of a file set. `name` is relative to that folder, or to the dataset's."""

    name: str
    n_bytes: int
    sha256: str


class Files(Record):
    """How the documents are arranged in the file sets: the parameters of `encode` that decide it. `pad_id`: the id that fills
    sequences up to their length. `epochs`: how many passes over each named source the first split has, as a fraction like "3/2".
    `min_parts`: the key exists only if it is not null. `source_ids`: whether the files have the numbers of the items' sources,
    because sets mix some; the key exists only then."""

    file_bytes: int
    splits: dict[str, float]
    split_group: str | None
    shuffle: Shuffle | None
    pack: Pack | None
    pad_id: int | None
    epochs: dict[str, str] = Field(default={})
    min_parts: int | None = None
    source_ids: bool = False

    def not_written(self) -> set[str]:
        """The fields that manifest.json leaves out."""
        return {name for name in ("min_parts", "source_ids") if not getattr(self, name)}


class SetPart(Record):
    """One part of a file set: its files, by names relative to the dataset's folder. `n_items`: documents or sequences."""

    files: list[TableFile]
    n_items: int
    n_tokens: int


class MixedSource(Record):
    """The share of the named source `source` in a split (null without splits). `epochs`: the passes over it, as a fraction like
    "3/2". `n_documents`: counted as often as they occur. `n_tokens`: with packing, only those in sequences. The numbers are those
    of one epoch; all epochs of a shuffled dataset have the same."""

    split: str | None
    source: str
    epochs: str
    n_documents: int
    n_tokens: int


class FileSet(Record):
    """The files of one format for one split, source and epoch, each null if there is only one. A shuffled set mixes all sources.
    `shared`: files that all parts share."""

    format: str
    split: str | None
    source: str | None
    epoch: int | None
    parts: list[SetPart]
    shared: list[TableFile]

    @property
    def files(self) -> list[TableFile]:
        """All files of the set."""
        return [file for part in self.parts for file in part.files] + self.shared
