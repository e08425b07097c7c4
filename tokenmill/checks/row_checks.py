"""Checks that the rows of a token dataset match their documents."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill import _core
from tokenmill.chat.answers import AnswerCounts
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.checks.chat_checks import check_conversations, check_mask
from tokenmill.checks.spans import Span, all_equal, same_ids
from tokenmill.errors import TokenizerError, ValidationError
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.tokenizer.tokenizer import Tokenizer

IdCounts = npt.NDArray[np.int64]

_SAMPLED_BYTES = 64_000_000
_COMPARED_BYTES_MAX = 1 << 20  # tokenizers needs 200 bytes of memory and more per byte of a document


@dataclass(frozen=True)
class Judge:
    """The tokenizer and the rules that rows are checked against.

    `begin_id`, `end_id`: the ids that must begin and end every document. `special_in_text`: ids of special tokens may also occur
    inside documents. `has_source`: the documents come from the input files, not from the tokens. `engines`: other engines of the
    same tokenizer, by name, with each of which a sample of documents is compared. `chat`: encodes conversations; None: the
    documents are texts, or there are no messages to encode. `rejects_special`: no document has the text of a special token.
    """

    tokenizer: Tokenizer
    begin_id: int | None
    end_id: int | None
    special_in_text: bool
    has_source: bool
    engines: Mapping[str, Callable[[str], list[int]]]
    chat: ChatEncoder | None = None
    rejects_special: bool = False

    @property
    def begin(self) -> list[int]:
        """The ids that begin every document."""
        return [] if self.begin_id is None else [self.begin_id]

    @property
    def special(self) -> SpecialTokensInText:
        """Whether texts of special tokens became ids when the dataset was encoded."""
        return "allow" if self.special_in_text else "as_text"

    @property
    def end(self) -> list[int]:
        """The ids that end every document."""
        return [] if self.end_id is None else [self.end_id]


class RowCounts(NamedTuple):
    """What was counted in rows: how often each id occurs, by id, and the answers of conversations that were encoded again."""

    counts: IdCounts
    answers: AnswerCounts | None


def check_span(span: Span, judge: Judge) -> RowCounts:
    """Checks each row against its document: its name, length and bytes, that no id is out of range, that its first and last
    ids are those that begin and end a document, and that no other id is a special token.

    For a tokenizer that changes text before encoding it, the ids must decode to the changed text. With the engine tokenizers,
    whose ids may not decode to the text, the text is encoded again instead. Conversations are encoded again with every engine, and
    their masks are compared, too; special tokens may be anywhere in them, as templates write them.
    Raises ValidationError with the first wrong row.
    """
    counts = check_ids(span, judge)
    names = span.documents.ids
    if names is None:
        all_equal(span, span.tokens["id"], span.documents.rows(), "id")
    else:
        all_equal(span, span.tokens["id"].cast(pa.large_string()), names, "id")
    if span.is_chat:
        check_mask(span)
        if judge.has_source:
            assert judge.chat is not None
            span = check_conversations(span, judge.chat)
    if judge.rejects_special:
        _check_rejected(span, judge)
    if judge.has_source or not judge.tokenizer.prepares_text:
        all_equal(span, span.tokens["n_bytes"], pc.binary_length(span.documents.texts).cast(pa.int64()), "n_bytes")
    if span.is_chat and judge.tokenizer.prepares_text:
        _check_decoded_chat(span, judge)
        return RowCounts(counts, span.answers)
    if judge.tokenizer.model is not None:
        _check_decoded(span, judge)
    elif judge.has_source:
        expected = judge.tokenizer.encode_batch(
            span.documents.texts,
            threads=1,
            begin_id=judge.begin_id,
            end_id=judge.end_id,
            special=judge.special,
        )
        for i, (found, ids) in enumerate(zip(span.tokens["input_ids"], expected, strict=True)):
            same_ids(span, i, found.as_py(), ids.as_py(), "those of encoding the document again")
    return RowCounts(counts, span.answers)


def _check_rejected(span: Span, judge: Judge) -> None:
    tokens = tuple(judge.tokenizer.special_tokens)
    texts = span.documents.texts.drop_null().to_pylist()
    for token in (tokens[k] for k in _finder(tokens).occurring(texts)):
        i = pc.index(pc.match_substring(span.documents.texts, token), True).as_py()
        if i >= 0:
            raise span.wrong(
                i,
                f"the document has the text of the special token {token!r}, with which "
                "special_tokens_in_text: reject ends a build.",
            )


@lru_cache(maxsize=4)
def _finder(texts: tuple[str, ...]) -> _core.TextFinder:
    return _core.TextFinder(texts)


def n_sampled(sample_documents: int, text_bytes: int) -> int:
    """How many documents of a file are compared with other engines: `sample_documents` for each 64 MB of its text, rounded up.

    So the work follows the text, not the number of files; and a file's sample does not depend on the other files.

    >>> n_sampled(32, 64_000_000), n_sampled(32, 300_000), n_sampled(32, 0)
    (32, 1, 0)
    """
    return -(-sample_documents * text_bytes // _SAMPLED_BYTES)


_OTHER_RULE = (
    "tiktoken gives other ids for this document, although it gave those of golden.json. The document is right, and so are its "
    "ids, which the tokenizers library gives, too: tiktoken merges by a rule of its own. Do not use vocab.tiktoken of this "
    "tokenizer, and set validate.sample_documents to 0 to build without this comparison."
)


def check_sample(span: Span, judge: Judge, rows: Set[int]) -> int:
    """Compares the ids of the chosen rows of the file with those of each of the judge's engines, and gives the number of rows
    compared. Documents longer than 1 MiB are skipped, because tokenizers would need unbounded memory for them; and so are
    conversations, because an engine cannot tell a special token of the template from the same text in a message.

    Raises ValidationError with the first row that differs. tokenizers is asked before tiktoken.
    """
    if span.is_chat:
        return 0
    there = [row - span.at for row in rows if 0 <= row - span.at < span.tokens.num_rows]
    chosen = [i for i in there if span.tokens["n_bytes"][i].as_py() <= _COMPARED_BYTES_MAX]
    for i in sorted(chosen):
        text, found = span.documents.texts[i].as_py(), span.tokens["input_ids"][i].as_py()
        for name, encode in judge.engines.items():
            expected = [*judge.begin, *encode(text), *judge.end]
            if name == "tiktoken" and found != expected:
                raise span.wrong(i, _OTHER_RULE)
            same_ids(span, i, found, expected, f"those of {name}")
    return len(chosen)


def _check_decoded(span: Span, judge: Judge) -> None:
    input_ids = span.tokens["input_ids"]
    around = [judge.tokenizer.decode_bytes(ids) for ids in (judge.begin, judge.end)]
    if judge.tokenizer.decodes_to(input_ids, span.documents.texts, *around):
        return
    try:
        decoded = judge.tokenizer.decode_batch(input_ids, threads=1)
    except TokenizerError as error:
        raise _unknown_id(span, input_ids, judge.tokenizer, error) from None
    expected = _joined(around, span.documents.texts.cast(pa.large_binary()))
    if judge.tokenizer.prepares_text and not decoded.equals(expected):
        texts = span.documents.texts
        differ = set(pc.indices_nonzero(pc.not_equal(decoded, expected)).to_pylist())
        prepared = [
            judge.tokenizer.prepared(text.as_py(), judge.special) if i in differ else text.as_py().encode()
            for i, text in enumerate(texts)
        ]
        expected = _joined(around, pa.array(prepared, pa.large_binary()))
    all_equal(span, decoded, expected, "decoded bytes", len(around[0]))


def _check_decoded_chat(span: Span, judge: Judge) -> None:
    """Checks that the ids of conversations decode to their texts, for a tokenizer that changes text. Skips texts that it may
    change, because it changes each piece between special tokens; their ids were compared."""
    tokenizer, input_ids, texts = judge.tokenizer, span.tokens["input_ids"], span.documents.texts
    if tokenizer.model is None or tokenizer.decodes_to(input_ids, texts):
        return
    decoded = tokenizer.decode_batch(input_ids, threads=1)
    expected = [
        text if tokenizer.prepared(text, "allow") == text.encode() else content.decode(errors="replace")
        for text, content in zip(texts.to_pylist(), decoded.to_pylist(), strict=True)
    ]
    all_equal(span, decoded, pa.array(expected, pa.large_string()).cast(pa.large_binary()), "decoded bytes")


def _joined(around: list[bytes], texts: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    begin, end = (pa.scalar(one, pa.large_binary()) for one in around)
    if not any(around):
        return texts
    return pc.binary_join_element_wise(begin, texts, end, pa.scalar(b"", pa.large_binary()))


def check_ids(span: Span, judge: Judge) -> IdCounts:
    """Checks that no id is out of range, that every document begins and ends as it must, and that no other id is a special
    token; gives how often each id occurs, by id. Raises ValidationError with the first wrong row."""
    tokenizer, input_ids = judge.tokenizer, span.tokens["input_ids"]
    values = input_ids.flatten()
    counted = _core.count_ids(values, tokenizer.id_max)
    if counted is None:
        i = _row_of_value(input_ids, pc.index(pc.greater(values, tokenizer.id_max), True).as_py())
        raise span.wrong(
            i,
            f"id {pc.max(input_ids[i].values).as_py()} is out of range; "
            f"the tokenizer's largest id is {tokenizer.id_max}.",
        )
    lengths = pc.list_value_length(input_ids).cast(pa.int64())
    n_least = len(judge.begin) + len(judge.end)
    if len(lengths) and pc.min(lengths).as_py() < n_least:
        i = pc.index(pc.less(lengths, n_least), True).as_py()
        raise span.wrong(i, f"expected {_around(judge)}; found {lengths[i].as_py() or 'no'} ids.")
    ends = pc.cumulative_sum(lengths)
    places = []
    for id, places_of_ids, what in (
        (judge.begin_id, pc.subtract(ends, lengths), "first id"),
        (judge.end_id, pc.subtract(ends, 1), "last id"),
    ):
        if id is not None:
            all_equal(
                span,
                values.take(places_of_ids).cast(pa.int64()),
                pa.repeat(pa.scalar(id, pa.int64()), len(places_of_ids)),
                what,
            )
            places.append(places_of_ids)
    counts: IdCounts = counted.to_numpy()
    ids = sorted(tokenizer.special_tokens.values())
    if not (judge.special_in_text or span.is_chat) and counts[ids].sum() != sum(map(len, places)):
        special = pc.is_in(values, pa.array(ids, values.type))
        allowed = {place for places_of_ids in places for place in places_of_ids.to_pylist()}
        wrong = next(place for place in pc.indices_nonzero(special).to_pylist() if place not in allowed)
        raise span.wrong(
            _row_of_value(input_ids, wrong),
            f"special token id {values[wrong].as_py()} inside a document; text never becomes a special token.",
        )
    return counts


def _around(judge: Judge) -> str:
    words = [(judge.begin_id, "beginning"), (judge.end_id, "end")]
    return " and ".join(f"the {word}-of-document id {id}" for id, word in words if id is not None)


def _unknown_id(span: Span, input_ids: pa.ListArray, tokenizer: Tokenizer, error: TokenizerError) -> ValidationError:
    """The error for the first row with an id that is not in the vocabulary."""
    for i, ids in enumerate(input_ids):
        try:
            tokenizer.decode_bytes(ids.values)
        except TokenizerError as found:
            return span.wrong(i, str(found))
    return ValidationError(span.shard(0), f"from row {span.row(0)} on: {error}")


def _row_of_value(lists: pa.ListArray, at: int) -> int:
    """The index of the list that holds value `at` of `lists.flatten()`."""
    ends = pc.cumulative_sum(pc.list_value_length(lists).cast(pa.int64()))
    i: int = pc.index(pc.greater(ends, at), True).as_py()
    return i
