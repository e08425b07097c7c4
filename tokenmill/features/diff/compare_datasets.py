"""Compares two datasets: their documents, sums, measures, parameters and tokenizers, by their manifests, indexes and reports."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenmill.analysis.beside import beside
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.layout import REPORT_FILE, TABLES_DIRECTORY, TOKENIZER_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.report.document_changes import DocumentChanges, IndexedDocuments, document_changes
from tokenmill.report.gate_results import flat
from tokenmill.report.totals import SourceSums, sums_by_source
from tokenmill.storage.json_files import read_json

_SHOWN_CHARACTERS = 24
_SUMS = ("documents", "tokens", "text_bytes")
_ENCODE = ("begin_of_document_id", "end_of_document_id", "special_tokens_in_text")
_MADE = (
    "n_documents",
    "n_tokens",
    "text_bytes",
    "n_trained",
    "n_repeated",
    "answers",
    "pad_id",
    "epochs",
    "source_ids",
)
"""What the entries of a manifest have beside parameters."""

_OF_SAMPLES = (
    "tokens_per_word.",
    "words_whole_share.",
    "bytes_per_token.lang.",
    "bytes_per_token.script.",
    "bigram_bits_per_byte",
    "gini.",
    "special_texts",
)
"""The measures of a report that a sample decides, which is another one where documents differ."""

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class DatasetComparison:
    """What differs. A pair has the value of the first dataset and that of the second. `digests`, `tokenizers`: digests of the
    datasets and their tokenizers. `files_differ`: whether tokens, or the names, cuts or order of the files, differ. `sources`: the
    sums of each source, None in a dataset without it. `measures`: those that the reports of both have; empty without two reports.
    `parameters`: only those that differ; the digest of all where it alone does."""

    digests: tuple[str, str]
    tokenizers: tuple[str, str]
    files_differ: bool
    documents: DocumentChanges
    sums: dict[str, tuple[int, int]]
    sources: dict[str, tuple[SourceSums | None, SourceSums | None]]
    measures: dict[str, Pair]
    parameters: dict[str, Pair]

    @property
    def differ(self) -> bool:
        """Whether anything but measures and the version of tokenmill differs."""
        is_same_tokenizer = self.tokenizers[0] == self.tokenizers[1]
        return bool(self.documents.n_differences or self.files_differ or self.parameters or not is_same_tokenizer)

    def as_json(self) -> dict[str, Any]:
        """The whole comparison as JSON values."""
        return {"differ": self.differ, **asdict(self)}


def compare_datasets(one: Path, other: Path) -> DatasetComparison:
    """The differences of two datasets in folders. Raises ValidationError for one that cannot be read, and for a missing document
    index unless the manifests are the same."""
    folders = (one, other)
    ours, theirs = manifests = (read_manifest(one), read_manifest(other))
    if ours.digest and ours.digest == theirs.digest:
        documents = DocumentChanges(ours.n_documents)
    else:
        indexes = (beside(folder, TABLES_DIRECTORY) / DOCUMENTS_FILE for folder in folders)
        documents = document_changes(*map(IndexedDocuments, manifests, indexes))
    before, after = map(sums_by_source, manifests)
    parameters = {
        name: pair
        for name, pair in _both(_parameters(ours), _parameters(theirs), of_any=True).items()
        if pair[0] != pair[1]
    }
    if len(parameters) > 1:
        parameters.pop("params_digest", None)  # it says what no other does
    return DatasetComparison(
        digests=(ours.digest, theirs.digest),
        tokenizers=(ours.tokenizer_digest, theirs.tokenizer_digest),
        files_differ=ours.tokens_digest() != theirs.tokens_digest(),
        documents=documents,
        sums=_both(_sums(ours), _sums(theirs)),
        sources=_both(before, after, of_any=True),
        measures=_both(_measures(one, ours), _measures(other, theirs)),
        parameters=parameters,
    )


def _both(one: Mapping[str, Any], other: Mapping[str, Any], of_any: bool = False) -> dict[str, Pair]:
    """The values of both by name, in order: of the names that both have, or with `of_any` of all."""
    names = dict.fromkeys([*one, *other])
    return {name: (one.get(name), other.get(name)) for name in names if of_any or (name in one and name in other)}


def _sums(manifest: Manifest) -> dict[str, int]:
    return dict(zip(_SUMS, (manifest.n_documents, manifest.n_tokens, manifest.text_bytes), strict=True))


def _measures(dataset: Path, manifest: Manifest) -> dict[str, Any]:
    """The measures of the report beside a dataset; empty without one, and for a report of another build."""
    path = beside(dataset, str(Path(REPORT_FILE).parent)) / Path(REPORT_FILE).name
    try:
        report = read_json(path)
        of = (report["tokenizer_digest"], {name: report[name] for name in _SUMS})
        is_of_dataset = of == (manifest.tokenizer_digest, _sums(manifest))
        return flat(report["measures"]) if is_of_dataset else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _parameters(manifest: Manifest) -> dict[str, Any]:
    """The parameters that the manifest records, by their keys in params.yaml as far as these are the same."""
    recorded = manifest.model_dump(mode="json", include={"source", "sources", "chat", "files", *_ENCODE})
    source, files, chat = (recorded.pop(name) or {} for name in ("source", "files", "chat"))
    sources = {named_source.pop("name"): named_source for named_source in recorded.pop("sources")}
    formats = sorted({file_set.format for file_set in manifest.sets})
    for section in (files, chat):
        for name in _MADE:
            section.pop(name, None)
    for named_source in sources.values():
        for name in _MADE[:3]:
            named_source.pop(name)
    encode = {**recorded, **files, "formats": formats, "chat": chat}
    settings = {"source": source | manifest.filters, "sources": sources, "encode": encode}
    return flat(settings) | {"params_digest": manifest.params_digest}


def lines_of(comparison: DatasetComparison, folders: Sequence[Path]) -> Iterator[str]:
    """The differences as lines for people. `folders`: where the datasets are."""
    one, other = comparison.digests
    if one and one == other:
        yield f"the same dataset: {one[:16]}, {number_of(comparison.documents.unchanged, 'document')}"
        return
    changes = comparison.documents
    if not comparison.differ:
        yield "the same documents, tokens, tokenizer and parameters, in datasets with different manifests"
    yield f"documents, by {'text: one without an id that has changed is removed and added' if changes.changed is None else 'id'}"
    for kind, n in changes.numbers.items():
        yield f"  {kind:<9} {n:>14,}"
        yield from (f"    {_example(**example)}" for example in changes.examples.get(kind, ()))
    if comparison.files_differ and not changes.n_differences:
        yield "their tokens, or the names, cuts or order of the files, differ"
    yield from _table(["", "one", "other", "difference"], _rows(comparison))
    if comparison.tokenizers[0] == comparison.tokenizers[1]:
        yield f"tokenizer: the same, {comparison.tokenizers[0][:16]}"
    else:
        paths = [beside(folder, TOKENIZER_DIRECTORY) for folder in folders]
        names = " ".join(shlex.quote(str(path)) if path.exists() else "TOKENIZER" for path in paths)
        yield f"tokenizer: {' → '.join(digest[:16] for digest in comparison.tokenizers)}"
        yield f"  `tokenmill diff {names}` compares them"
    for name, pair in comparison.parameters.items():
        yield f"{name}: {' → '.join(map(_shown, pair))}"


def _example(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """The id and place of a document, in the second dataset if it is there, and how its split changed."""
    place = other or one
    assert place is not None
    name = f"{place['id']}: " if isinstance(place["id"], str) else ""
    splits = [side["split"] for side in (one, other) if side is not None and "split" in side]
    moved = f", {' → '.join(splits)}" if len(set(splits)) > 1 else ""
    return f"{name}{place['shard']}, row {place['row']:,}{moved}"


def _rows(comparison: DatasetComparison) -> Iterator[tuple[str, Any, Any]]:
    """The rows of the table: sums, those of several sources, and the measures that differ."""
    yield from ((name, *pair) for name, pair in comparison.sums.items())
    for source, pair in comparison.sources.items() if len(comparison.sources) > 1 else ():
        for what in ("documents", "tokens"):
            one, other = (0 if sums is None else getattr(sums, f"n_{what}") for sums in pair)
            yield f"{source}: {what}", one, other
    for name, (one, other) in comparison.measures.items():
        if one != other and name not in _SUMS:
            yield f"{name} (sample)" if name.startswith(_OF_SAMPLES) else name, one, other


def _table(head: Sequence[str], rows: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    cells = [head, *([name, *map(_number, pair), _difference(*pair)] for name, *pair in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for name, *numbers in cells:
        aligned = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *aligned])


def _number(value: float | None, sign: str = "") -> str:
    if value is None:
        return "–"
    return f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.4f}"


def _difference(one: float | None, other: float | None) -> str:
    if one is None or other is None:
        return "–"
    return "0" if one == other else _number(other - one, "+")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
