"""Answers the page's questions about a dataset, as values of JSON; each answer reads a bounded part of the files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.analysis.beside import beside, own_tokenizer
from tokenmill.analysis.info import info, lines_of
from tokenmill.dataset.manifest import read_manifest
from tokenmill.dataset.numbered import NumberedDocuments
from tokenmill.dataset.tables import DOCUMENTS_FILE, TOKENS_PER_ID_FILE
from tokenmill.errors import ParamsError, TokenmillError
from tokenmill.features.view.arranged_items import ArrangedItems, Lengths, first_by_length
from tokenmill.features.view.document_index import DocumentIndex
from tokenmill.features.view.item_sets import ItemSet, item_sets
from tokenmill.features.view.links import links_of
from tokenmill.features.view.search import finder
from tokenmill.features.view.vocabulary import Vocabulary
from tokenmill.layout import TABLES_DIRECTORY, TOKENIZER_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.boundaries import NO_LABEL
from tokenmill_reader.shown import as_shown

_TEXT_CHARACTERS_MAX = 5_000  # that are encoded at once: an address has up to 64 kB
_ROWS_MAX = 100  # of a list
_TOKENS_N = 2_000  # of an item that are shown at once
_TOKENS_MAX = 1 << 16  # that are shown at once if asked for
_ARRANGED_DOCUMENTS_MAX = 1 << 22  # of a dataset whose file sets are planned again, in about 10 s
_SCAN_TOKENS_MAX = 1 << 22  # that one search decodes: a second, and with the engine tokenizers some
_N_BEGINNING = 24  # tokens of an item in a list
_BATCH = 32  # items that a search reads at a time


class Asked(dict[str, str]):
    """The parameters of a question."""

    def number(self, name: str, end: int) -> int:
        """A parameter that is a number from 0 on and less than `end`; 0 by default. Raises ParamsError."""
        found = self.get(name, "0")
        if not (found.isascii() and found.isdecimal() and len(found) < 19 and int(found) < end):
            raise ParamsError(name, f"expected a number from 0 on, less than {end:,}; found {found[:40]!r}.")
        return int(found)


class DatasetView:
    """A dataset with its tokenizer and tables, and an `other` tokenizer to compare with. What is missing beside a copy is a note on
    the page. `tokenizer`: see tokenizer_of. Raises ValidationError for a folder that is no dataset, and TokenizerError for a
    tokenizer that cannot be read or is not the dataset's."""

    def __init__(self, dataset: Path, tokenizer: Path | None = None, other: Path | None = None) -> None:
        self._lines: list[str] = list(lines_of(info(dataset)))
        self._dataset, self._manifest = dataset, read_manifest(dataset)
        self._notes: list[str] = []
        self._source_of = self._manifest.source_names()
        digest, n_documents = self._manifest.tokenizer_digest, self._manifest.n_documents
        tables = beside(dataset, TABLES_DIRECTORY)
        counted = self._there(tables / TOKENS_PER_ID_FILE, "tokens have no counts.")
        index = self._there(tables / DOCUMENTS_FILE, "documents have no ids here.")
        usual = beside(dataset, TOKENIZER_DIRECTORY)
        own = tokenizer or self._there(usual, "texts are not decoded. Name it with --tokenizer.")
        loaded = None if own is None else own_tokenizer(dataset, own, digest)
        self._vocabulary = Vocabulary(loaded, counted, digest)
        self._compared: dict[str, Vocabulary] = {} if loaded is None else {"the dataset's": self._vocabulary}
        if other is not None:
            self._compared[str(other)] = Vocabulary(Tokenizer.load(other))
        self._index = None if index is None else DocumentIndex(index, n_documents)
        self._sets = list(item_sets(dataset, self._manifest))
        self._arranged: ArrangedItems | None = None
        files, is_pair = self._manifest.files, self._manifest.chat is not None and self._manifest.chat.turns == "pair"
        if self._index and files and len(self._sets) > 1 and not is_pair and n_documents <= _ARRANGED_DOCUMENTS_MAX:
            self._arranged = ArrangedItems(self._manifest, files, self._index)

    def _there(self, path: Path, without: str) -> Path | None:
        """The path if it is there; otherwise None, and a note of what is missing without it."""
        if path.exists():
            return path
        self._notes.append(f"There is no {path}: {without}")
        return None

    def info(self, _asked: Asked) -> dict[str, Any]:
        """What the page shows at its head, and what can be listed. `sources`: each with the number of its first document."""
        sources: dict[str, int] = {}
        first = 0
        for shard in self._manifest.shards:
            sources.setdefault(self._source_of.get(shard.rows[0].name, ""), first)
            first += shard.n_documents
        return {
            "name": as_shown(str(self._dataset)),
            "about": as_shown(self._lines[1:]),
            "notes": [as_shown(note) for note in self._notes],
            "sets": [
                {
                    "name": as_shown(file_set.name),
                    "kind": file_set.kind,
                    "n_items": file_set.n_items,
                    "has_lengths": self._lengths(file_set) is not None,
                }
                for file_set in self._sets
            ],
            "has_links": self._arranged is not None,
            "sources": [{"name": as_shown(name), "first": first} for name, first in sources.items()],
        }

    def items(self, question: Asked) -> dict[str, Any]:
        """A page of a list: the number, id, split, source, length and beginning of each item from the number `start` on, and the
        number of the next page; null at the end. With `turns: each`, also which messages of its conversation an item has. `order`:
        that of the numbers, or shortest or longest first."""
        shown, items = self._set(question)
        numbers, go_on = self._page(question, shown, items)
        has_samples = self._manifest.chat is not None and self._manifest.chat.turns == "each"
        lists = (items.take(np.array([i]))[0] for i in numbers)  # one at a time, because the longest may be large
        rows = []
        for i, ids, facts in zip(numbers, lists, self._facts(shown, numbers), strict=True):
            known = [facts.get(name) for name in ("id", "split", "source")]
            if has_samples and "n_messages" in facts:  # several items may have one id
                known.append(f"messages 1 to {facts['n_messages']}")
            words = [f"{i:,}", number_of(len(ids), "token"), *known]
            head = as_shown(" · ".join(str(word) for word in words if word not in (None, "")))
            beginning = self._vocabulary.text(ids[:_N_BEGINNING])
            is_cut = beginning is not None and len(ids) > _N_BEGINNING
            rows.append({"i": i, "head": head, "around": [(beginning or "") + "…" * is_cut]})
        return {"rows": rows, "next": go_on}

    def _page(self, question: Asked, shown: ItemSet, items: Any) -> tuple[Sequence[int], int | None]:
        """The numbers of the items of a page of a list, and the first one of the next page."""
        start = question.number("start", shown.n_items + 1)
        if not question.get("order"):
            numbers = range(start, min(start + _ROWS_MAX, shown.n_items))
            return numbers, numbers.stop if numbers.stop < shown.n_items else None
        lengths = self._lengths(shown)
        if lengths is None or question["order"] not in ("shortest", "longest"):
            raise ParamsError("order", "expected shortest or longest, and a dataset that has its document index.")
        first = (
            (start, len(items.take(np.array([start]))[0])) if "start" in question and start < shown.n_items else None
        )
        numbers_by_length = first_by_length(lengths(), question["order"] == "longest", _ROWS_MAX + 1, first)
        return numbers_by_length[:_ROWS_MAX], numbers_by_length[_ROWS_MAX] if len(
            numbers_by_length
        ) > _ROWS_MAX else None

    def _lengths(self, shown: ItemSet) -> Callable[[], Lengths] | None:
        """What gives the lengths of the items of a set; None if nothing does."""
        if shown.key is None:
            return None if self._index is None else self._index.lengths
        return None if self._arranged is None else partial(self._arranged.lengths, shown.key)

    def item(self, question: Asked) -> dict[str, Any]:
        """One item: facts, and `n` of its tokens (2,000 by default) from the position `at` on. `starts`: the positions where
        documents begin, and `n_before` how many begin before `at`. `learned`: 1 for each token that the loss counts; null if it
        counts all."""
        shown, items = self._set(question)
        i = question.number("i", shown.n_items)
        [ids] = items.take(np.array([i]))
        [facts] = self._facts(shown, [i])
        if isinstance(items, NumberedDocuments):
            starts, learned = np.zeros(1, int), items.mask(i) if self._manifest.has_mask else np.ones(len(ids))
        else:
            starts, learned = items.starts(i), items.labels(i) != NO_LABEL
            facts |= {"n_tokens": len(ids), "n_documents": len(starts)}
        position = question.number("at", len(ids) + 1)
        part = ids[position : position + (question.number("n", _TOKENS_MAX + 1) or _TOKENS_N)]
        return {
            "i": i,
            "at": position,
            "n_tokens": len(ids),
            "first_token": facts.get("first_token"),
            "facts": {name: as_shown(str(value)) for name, value in facts.items() if value not in (None, "")},
            "starts": [k - position for k in starts.tolist() if position <= k < position + len(part)],
            "n_before": int((starts < position).sum()),
            "learned": None if learned.all() else learned[position : position + len(part)].astype(int).tolist(),
            "text": self._vocabulary.text(part),
            **self._vocabulary.tokens(part.tolist()),
        }

    def links(self, question: Asked) -> dict[str, Any]:
        """For a document, the items of file sets that hold it; for an item of a file set, its documents from the position `at` on:
        the set and the number of each, and which document it is of the item. `position`, `start`: where its `n_tokens` begin in the
        item and in the document. `n_left_out`: links that are too many for an answer."""
        number = question.number("set", len(self._sets))
        i, position = question.number("i", self._sets[number].n_items), question.number("at", 1 << 62)
        if self._arranged is None:
            raise ParamsError("links", "expected a dataset that has file sets and its document index.")
        links, n_left_out = links_of(self._dataset, self._sets, self._arranged, number, i, position)
        rows = []
        for of_set, piece, n_of_document in links:
            [facts] = self._facts(self._sets[0], [piece.document])
            known = {"id": as_shown(str(facts["id"])), "n_of_document": n_of_document}
            target = {"set": of_set, "i": piece.item} if number == 0 else {"set": 0, "i": piece.document}
            rows.append({**piece._asdict(), **known, **target})
        return {"rows": rows, "n_left_out": n_left_out}

    def search(self, question: Asked) -> dict[str, Any]:
        """Some hits from the item number `start` on, and the number at which a further search goes on; null at the end."""
        shown, items = self._set(question)
        kind, wanted, start = question.get("by", ""), question.get("q", ""), question.number("start", shown.n_items + 1)
        if not wanted:
            raise ParamsError("search", "expected something to look for; found nothing.")
        if kind == "id":
            if not isinstance(items, NumberedDocuments) or self._index is None:
                raise ParamsError(
                    "search", "an id can be searched only among all documents of a dataset that has its document index."
                )
            documents, go_on = self._index.with_id(wanted, start)
            if len(documents) > _ROWS_MAX:
                documents, go_on = documents[:_ROWS_MAX], documents[_ROWS_MAX]
            return {
                "rows": [{"i": i, "position": 0, "around": ["", as_shown(wanted), ""]} for i in documents],
                "next": go_on,
            }
        find = finder(self._vocabulary, kind, wanted)
        hits: list[dict[str, Any]] = []
        n_scanned = 0
        while start < shown.n_items and n_scanned < _SCAN_TOKENS_MAX and len(hits) < _ROWS_MAX:
            numbers = range(start, min(start + _BATCH, shown.n_items))
            lists = items.take(np.array(numbers, np.int64))
            hits += find(lists, start)
            n_scanned += sum(map(len, lists))
            start = numbers.stop
        return {"rows": hits, "next": start if start < shown.n_items else None}

    def vocabulary(self, question: Asked) -> dict[str, Any]:
        """A page of the vocabulary from the row `start` on: all tokens, or those with the text or the id `q`; in the order of ids,
        or with `order=count` the most frequent first."""
        tokens, counts, wanted = self._vocabulary.bytes, self._vocabulary.counts, question.get("q", "")
        if not tokens:
            raise ParamsError("vocabulary", "expected the dataset's tokenizer or its tables beside it; found neither.")
        ids = sorted(id for id, raw in tokens.items() if wanted.encode() in raw or wanted == str(id))
        if question.get("order") == "count":
            ids.sort(key=lambda id: -counts.get(id, 0))
        start = question.number("start", len(ids) + 1)
        page = ids[start : start + _ROWS_MAX]
        go_on = start + len(page) if start + len(page) < len(ids) else None
        return {
            "n": len(ids),
            "next": go_on,
            "counts": [counts.get(i) for i in page],
            **self._vocabulary.tokens(page),
        }

    def encode(self, question: Asked) -> dict[str, Any]:
        """The tokens of a text by each tokenizer, or its error. With `special=allow`, texts of special tokens become their ids."""
        text = question.get("text", "")
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise ParamsError("text", f"expected up to {_TEXT_CHARACTERS_MAX:,} characters; found {len(text):,}.")
        results: list[dict[str, Any]] = []
        for name, vocabulary in self._compared.items():
            assert vocabulary.tokenizer is not None
            try:
                ids = vocabulary.tokenizer.encode(text, "allow" if question.get("special") == "allow" else "as_text")
                results.append({"name": as_shown(name), **vocabulary.tokens(ids)})
            except TokenmillError as error:
                results.append({"name": as_shown(name), "error": as_shown(error.lines)})
        return {"n_bytes": len(text.encode()), "by": results}

    def _facts(self, shown: ItemSet, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """What is known of each of these items."""
        if shown.key is not None:
            return [{"split": shown.key.split, "source": shown.key.source} for _ in numbers]
        if self._index is None:
            return [{} for _ in numbers]
        rows = (self._index.rows(range(i, i + 1))[0] for i in numbers)
        return [{**row, "source": self._source_of.get(row["shard"])} for row in rows]

    def _set(self, asked: Asked) -> tuple[ItemSet, Any]:
        """The set that was asked for, and its items."""
        shown = self._sets[asked.number("set", len(self._sets))]
        return shown, shown.open()
