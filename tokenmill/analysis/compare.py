"""Compares two tokenizers: their vocabularies, their merges, and the ids that they give documents."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden_texts import HARD, PANEL, around
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.scripts import main_scripts
from tokenmill.counts.counter import Counter
from tokenmill.errors import CountsError, TokenizerError
from tokenmill.tokenizer.formats.tiktoken_file import with_own_ranks
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_SHOWN = 20
_WORDS_MAX = 200_000  # the most frequent pre-tokens, which are compared
_WORDS_MEMORY_MB = 512


@dataclass
class Yield:
    """Documents of one source and language or script, and the number of tokens that each tokenizer makes of them."""

    n_documents: int = 0
    n_changed: int = 0
    text_bytes: int = 0
    n_tokens_one: int = 0
    n_tokens_other: int = 0


@dataclass(frozen=True)
class Word:
    """A pre-token that the two tokenizers split into different tokens."""

    word: str
    count: int
    one: list[str]
    other: list[str]


@dataclass(frozen=True)
class Comparison:
    """The differences. `yields`: by source and language or script. `texts_changed`: texts with different ids, or that one of the
    two cannot encode, from the golden panel, the texts of added and removed tokens, and texts with those that tokenizer.json calls
    added tokens. The numbers of merges are None if the two are of different kinds, such as
    merges of bytes and merges of characters; of Unigram models, they are of pieces with their scores. `counted`: the pre-tokens of
    counts, each as often as it occurs; None without counts."""

    one: str
    other: str
    tokens_added: list[str]
    tokens_removed: list[str]
    tokens_with_another_id: int
    merges_added: int | None
    merges_removed: int | None
    merges_moved: int | None
    pattern_changed: bool
    texts_changed: list[str]
    yields: dict[str, Yield] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    counted: Yield | None = None

    @property
    def ids_differ(self) -> bool:
        """Whether any compared text gets other ids, or any id stands for another token."""
        return bool(
            self.texts_changed
            or self.tokens_with_another_id
            or any(one.n_changed for one in [*self.yields.values(), *([self.counted] if self.counted else [])])
        )

    def as_json(self) -> dict[str, Any]:
        """The whole comparison as JSON values."""
        return {"ids_differ": self.ids_differ, **asdict(self)}


def scripts_of(batch: Batch) -> Sequence[str]:
    """The script of most characters of each document."""
    return main_scripts(batch.texts)


def compare(
    one: Tokenizer,
    other: Tokenizer,
    documents: Iterable[tuple[str, Batch]],
    languages_of: Callable[[Batch], Sequence[str]] = scripts_of,
    counts: pa.Table | None = None,
) -> Comparison:
    """The differences of two tokenizers on batches of documents, each with the name of its source, and on counts of pre-tokens."""
    ours, theirs = _ids_by_token(one), _ids_by_token(other)
    added = sorted((token for token in theirs.keys() - ours.keys()), key=lambda token: theirs[token])
    removed = sorted((token for token in ours.keys() - theirs.keys()), key=lambda token: ours[token])
    merges, their_merges = _merges(one), _merges(other)
    is_alike = _kind(one) == _kind(other)
    texts = [*PANEL.values(), *HARD.values(), *(token.decode(errors="ignore") for token in [*added, *removed])]
    texts += dict.fromkeys(around(token.text) for token in [*one.added_tokens, *other.added_tokens])
    yields, words = _measure(one, other, documents, languages_of)
    counted = None
    if counts is not None and counts.num_rows:
        counted, most_changed = _on_words(one, other, counts)
        words = words or most_changed
    return Comparison(
        one=one.digest,
        other=other.digest,
        tokens_added=[_shown(token) for token in added],
        tokens_removed=[_shown(token) for token in removed],
        tokens_with_another_id=sum(theirs[token] != id for token, id in ours.items() if token in theirs),
        merges_added=len(their_merges.keys() - merges.keys()) if is_alike else None,
        merges_removed=len(merges.keys() - their_merges.keys()) if is_alike else None,
        merges_moved=_moved(merges, their_merges) if is_alike else None,
        pattern_changed=_split(one) != _split(other),
        texts_changed=[text for text in texts if _ids(one, text) != _ids(other, text)],
        yields=yields,
        words=words,
        counted=counted,
    )


def lines_of(comparison: Comparison) -> list[str]:
    """The differences as lines for people."""
    n_documents = sum(entry.n_documents for entry in comparison.yields.values())
    n_changed = sum(entry.n_changed for entry in comparison.yields.values())
    lines = [
        f"ids {'differ' if comparison.ids_differ else 'are equal in every text that was looked at'}"
        + ("; the split pattern differs" if comparison.pattern_changed else ""),
        f"tokens: {len(comparison.tokens_added):,} added, {len(comparison.tokens_removed):,} removed, "
        f"{comparison.tokens_with_another_id:,} with another id",
        "merges: not compared, since the tokenizers are of different kinds"
        if comparison.merges_added is None
        else f"merges: {comparison.merges_added:,} added, {comparison.merges_removed:,} removed, {comparison.merges_moved:,} moved",
    ]
    for name, tokens in (("added", comparison.tokens_added), ("removed", comparison.tokens_removed)):
        if tokens:
            lines.append(f"  {name}: {' '.join(tokens[:_N_SHOWN])}{' …' if len(tokens) > _N_SHOWN else ''}")
    if n_documents:
        lines.append(f"documents with other ids: {n_changed:,} of {n_documents:,} ({n_changed / n_documents:.2%})")
        lines.append("bytes per token, by source and language or script:")
        for name, entry in sorted(comparison.yields.items()):
            lines.append(f"  {name}: {_change(entry)}, {entry.n_documents:,} documents")
    if comparison.counted is not None:
        lines.append(f"bytes per token of the counted pre-tokens: {_change(comparison.counted)}")
    if comparison.words:
        lines.append("most changed words:")
        lines += [
            f"  {entry.word}  {' '.join(entry.one)} → {' '.join(entry.other)}  ({entry.count:,} ×)"
            for entry in comparison.words
        ]
    return lines


def _change(one: Yield) -> str:
    before, after = one.text_bytes / max(one.n_tokens_one, 1), one.text_bytes / max(one.n_tokens_other, 1)
    return f"{before:.4f} → {after:.4f} ({f'{after / before - 1:+.2%}' if before else '–'})"


def _ids_by_token(tokenizer: Tokenizer) -> dict[bytes, int]:
    return {token: id for id, token in tokenizer._tokens.items()}


def _ids(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """The ids of a text; None for one that the tokenizer cannot encode."""
    try:
        return tokenizer.encode(text)
    except TokenizerError:
        return None


def _kind(tokenizer: Tokenizer) -> str:
    return "bytes" if tokenizer.model is not None else str(tokenizer.document["model"]["type"])


def _split(tokenizer: Tokenizer) -> Any:
    """How text is split before merging: the steps, or the sections of a tokenizer.json without steps."""
    if tokenizer.model is not None:
        return tokenizer.steps
    return [tokenizer.document.get(section) for section in ("normalizer", "pre_tokenizer")]


def _merges(tokenizer: Tokenizer) -> dict[tuple[Any, Any], int]:
    """The place of every merge in their order, by its two tokens: the first merge for each token that merges make, of the many
    pairs that a .tiktoken file or a conversion of a SentencePiece model may have for it. Of a Unigram model, each piece with its
    score. Empty for a tokenizer with neither."""
    if tokenizer.model is None and tokenizer.document["model"]["type"] == "Unigram":
        return {(piece, score): id for id, (piece, score) in enumerate(tokenizer.document["model"]["vocab"])}
    if tokenizer.model is None:
        first: dict[str, tuple[int, tuple[str, str]]] = {}
        for rank, (left, right) in enumerate(tokenizer.document["model"].get("merges") or []):
            first.setdefault(left + right, (rank, (left, right)))
        return {pair: rank for rank, pair in first.values()}
    model = with_own_ranks(tokenizer.model)
    tokens = model.token_bytes()
    return {(tokens[merge.left], tokens[merge.right]): merge.rank for merge in model.merges}


def _moved(one: dict[tuple[Any, Any], int], other: dict[tuple[Any, Any], int]) -> int:
    """The number of common merges whose order differs between the tokenizers."""
    both = one.keys() & other.keys()
    before, after = sorted(both, key=lambda pair: one[pair]), sorted(both, key=lambda pair: other[pair])
    return sum(a != b for a, b in zip(before, after, strict=True))


def _measure(
    one: Tokenizer,
    other: Tokenizer,
    documents: Iterable[tuple[str, Batch]],
    languages_of: Callable[[Batch], Sequence[str]],
) -> tuple[dict[str, Yield], list[Word]]:
    yields: dict[str, Yield] = defaultdict(Yield)
    counter: Counter | None = Counter(one.pattern if one.steps and one.pattern else "gpt2", _WORDS_MEMORY_MB)
    for source, batch in documents:
        ours, theirs = one.encode_batch(batch.texts), other.encode_batch(batch.texts)
        lengths = pc.binary_length(batch.texts).to_pylist()
        for i, language in enumerate(languages_of(batch)):
            group = yields[f"{source} {language}"]
            group.n_documents += 1
            group.n_changed += not ours[i].values.equals(theirs[i].values)
            group.text_bytes += lengths[i]
            group.n_tokens_one += len(ours[i])
            group.n_tokens_other += len(theirs[i])
        if counter is not None:
            try:
                counter.update(one.preparation.texts_to_split(batch.texts))
            except CountsError:  # memory is full; the words counted so far suffice to show what changes most
                words, counter = _changed_words(one, other, counter.finish()), None
    if counter is not None:
        words = _changed_words(one, other, counter.finish())
    return dict(yields), words


def _changed_words(one: Tokenizer, other: Tokenizer, counts: pa.Table) -> list[Word]:
    return _on_words(one, other, counts)[1] if counts.num_rows else []


def _on_words(one: Tokenizer, other: Tokenizer, counts: pa.Table) -> tuple[Yield, list[Word]]:
    """What the tokenizers make of the most frequent pre-tokens, and those that change most."""
    order = pc.select_k_unstable(counts["count"], k=min(_WORDS_MAX, len(counts)), sort_keys=[("", "descending")])
    counts = counts.take(order).combine_chunks()
    pretokens = counts["pretoken"].cast(pa.large_binary()).combine_chunks()
    ours, theirs = (_inside(tokenizer).encode_batch(pretokens).to_pylist() for tokenizer in (one, other))
    total, changed = Yield(), []
    for pretoken, count, a, b in zip(pretokens.to_pylist(), counts["count"].to_pylist(), ours, theirs, strict=True):
        before, after = _pieces(one, a), _pieces(other, b)
        total.n_documents += count
        total.n_changed += count * (a != b)
        total.text_bytes += count * len(pretoken)
        total.n_tokens_one += count * len(a)
        total.n_tokens_other += count * len(b)
        if before != after:
            changed.append((count * max(abs(len(a) - len(b)), 1), Word(_shown(pretoken), count, before, after)))
    changed.sort(key=lambda item: (-item[0], item[1].word))
    return total, [word for _weight, word in changed[:_N_SHOWN]]


def _inside(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer for pre-tokens: it puts no space in front of them, as it does in front of a whole text."""
    model = tokenizer.model
    return Tokenizer(replace(model, add_prefix_space=False)) if model and model.add_prefix_space else tokenizer


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [_shown(tokenizer.token_bytes(id)) for id in ids]


def _shown(token: bytes) -> str:
    """The token in quotes, unambiguously; bytes that are not UTF-8 appear as escapes."""
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)
