"""Checks the file sets of a dataset: each file holds what the proven documents and the manifest's parameters say, in that order."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa

from tokenmill.checks.findings import FORCE, Finding, NotChecked, in_manifest, of_error
from tokenmill.checks.subject import RightFile, Subject, encoded_units, table_inputs
from tokenmill.console import Advance
from tokenmill.dataset.entries import Files, FileSet, SetPart
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import has_column
from tokenmill.errors import UnitsError, ValidationError
from tokenmill.file_sets.arrangement import ArrangedSet, Arrangement, Items, n_tokens_of
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import blends_of, epochs_of
from tokenmill.file_sets.planned import documents_shape
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.formats.interface import Format
from tokenmill.formats.sidecar import with_source_ids
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Round, Rounds, Task, do
from tokenmill.storage.unit_store import unit_key
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.manifest import MANIFEST_FILE
from tokenmill_reader.regular_files import read


class SetPartFacts(Facts, frozen=True):
    """The numbers of equal items and of their tokens in a part of a set. `what`: what is wrong with it, empty if nothing is. `fix`:
    what to do."""

    n_items: int
    n_tokens: int
    what: str
    fix: str

    def __str__(self) -> str:
        return f"right: {number_of(self.n_items, 'item')}, {number_of(self.n_tokens, 'token')}"


class SetPartTask(Task[SetPartFacts], frozen=True, kw_only=True):
    """Compares the items of one part of a set with the expected ones. `folder`: the set's folder. `part`: its entry in
    the manifest."""

    format: Format
    folder: Path
    stem: str
    shape: Shape
    items: Items
    part: SetPart

    def run(self, folder: Path, advance: Advance) -> SetPartFacts:
        """Makes no files (see Task)."""
        n_items = n_tokens = 0
        what = fix = ""
        try:
            for batch in _same(self.format, self.folder, self.stem, self.shape, self.items()):
                n_items += batch.num_rows
                n_tokens += n_tokens_of(batch)
            if (n_items, n_tokens) != (self.part.n_items, self.part.n_tokens):
                says = f"{number_of(self.part.n_items, 'item')} and {number_of(self.part.n_tokens, 'token')}"
                what = f"{MANIFEST_FILE} says {says}; found {n_items:,} and {n_tokens:,}."
        except ValidationError as error:
            found = of_error(self.stem, error)
            what, fix = found.what, found.fix
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a fault of the machine, not of the file
            what = f"cannot be read: {error}"
        return SetPartFacts(n_items, n_tokens, what, fix)


def wrong_sets(
    subject: Subject, files: Sequence[RightFile], threads: int, code: str
) -> Rounds[list[Finding | NotChecked]]:
    """Checks that the file sets hold the documents that were checked, as the manifest's parameters say. Digests of files are
    checked elsewhere.

    `files`: those of documents that are right; unless these are all, the sets cannot be compared. `threads`: how many plan
    the sets. `code`: the digest of this code, for the keys of tasks.
    """
    manifest = subject.manifest
    if len(files) < len(manifest.shards) or not (manifest.files or manifest.sets):
        return []
    if manifest.files is None:
        return [in_manifest("sets: the manifest names file sets, but not how they are arranged (the key files).")]
    if manifest.files.split_group and not has_column(table_inputs(manifest, files), "group"):
        return [NotChecked("the file sets: their splits follow from groups, which the tables beside hold")]
    try:
        units = encoded_units(subject, files)
        return (yield from _wrong_arrangement(subject, manifest.files, units, threads, code))
    except (
        ValidationError,
        UnitsError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        pa.ArrowException,
    ) as error:
        return [in_manifest(f"the file sets cannot be read: {error or type(error).__name__}", "")]


def _wrong_arrangement(
    subject: Subject, files: Files, units: Sequence[EncodedUnit], threads: int, code: str
) -> Rounds[list[Finding | NotChecked]]:
    """Compares the manifest's sets with those that its parameters give, and then their content."""
    manifest = subject.manifest
    if unknown := sorted({file_set.format for file_set in manifest.sets} - {*SET_FORMATS, INDEX_FORMAT.name}):
        return [in_manifest(f"sets: {unknown[0]!r} is no format.")]
    wrong: list[Finding | NotChecked] = []
    if (epochs := epochs_of(manifest.sources, units, files.splits)) != files.epochs:
        wrong.append(in_manifest(f"files.epochs: it says {files.epochs}; its sources have {epochs}."))
    names = dict.fromkeys(file_set.format for file_set in manifest.sets if file_set.format != INDEX_FORMAT.name)
    formats = [SET_FORMATS[name] for name in names]
    ends = manifest.begin_of_document_id, manifest.end_of_document_id
    turns = None if manifest.chat is None else manifest.chat.turns
    documents = documents_shape(subject.tokenizer, *ends, manifest.has_ids, turns)
    arrangement = Arrangement("validate", files, formats, documents, threads, code)
    expected = yield from arrangement.sets(units, manifest.tokens_digest())
    wrong += _wrong_numbers(manifest, arrangement)
    for arranged, entry in zip_longest(expected, manifest.sets):
        if difference := _differ(arranged, entry, arrangement.shape):
            return [*wrong, in_manifest(f"sets: {difference}")]
    pairs = list(zip(expected, manifest.sets, strict=True))
    tasks_of = [_tasks(arranged, entry, subject.folder, arrangement.shape) for arranged, entry in pairs]
    set_of = {task.key: arranged for arranged, tasks in zip(expected, tasks_of, strict=True) for task in tasks}
    all_tasks = [task for tasks in tasks_of for task in tasks]
    done = yield from do(Round("validate", all_tasks, SetPartFacts, prepare=partial(arrangement.prepare, set_of)))
    for made, task in zip(done, all_tasks, strict=True):
        if made.facts.what:
            wrong.append(Finding(task.part.files[0].name, None, made.facts.what, made.facts.fix))
    for arranged, entry in pairs:
        wrong += _wrong_shared(arranged, entry, subject.folder, arrangement.shape)
    return [*wrong, *_wrong_blends(manifest, subject.folder)]


def _tasks(arranged: ArrangedSet, entry: FileSet, dataset: Path, shape: Shape) -> list[SetPartTask]:
    """The tasks that compare the parts of a set whose files are there; missing files are reported elsewhere."""
    return [
        SetPartTask(
            name=f"check {file.name}",
            key=unit_key(
                stage="check",
                items=file.key,
                files=[part_file.sha256 for part_file in part.files],
                numbers=[part.n_items, part.n_tokens],
            ),
            format=arranged.format,
            folder=dataset / arranged.folder,
            stem=arranged.stem(i),
            shape=shape,
            items=file.items,
            part=part,
        )
        for i, (file, part) in enumerate(zip(arranged.files, entry.parts, strict=True))
        if all((dataset / part_file.name).exists() for part_file in part.files)
    ]


def _wrong_numbers(manifest: Manifest, arrangement: Arrangement) -> Iterator[Finding]:
    if arrangement.packed != manifest.packed:
        yield in_manifest(f"packed: it says {manifest.packed}; found {arrangement.packed}.")
    if manifest.format_version > 6:
        for has, says in zip_longest(arrangement.mixture, manifest.mixture):
            if has != says:
                found, said = (None if one is None else one.model_dump() for one in (has, says))
                yield in_manifest(f"mixture: it says {said}; found {found}.")
                break


def _wrong_blends(manifest: Manifest, dataset: Path) -> Iterator[Finding]:
    expected = blends_of(manifest.sets)
    if list(expected) != [file.name for file in manifest.blends]:
        yield in_manifest(f"blends: expected the files {list(expected)}.")
        return
    for name, text in expected.items():
        if (dataset / name).exists() and read(dataset / name) != text.encode():
            yield Finding(name, None, "differs from what a build writes for the sets of the sources.", FORCE)


def _differ(arranged: ArrangedSet | None, entry: FileSet | None, shape: Shape) -> str | None:
    """Says how the manifest's entry of a set differs from the expected set."""
    if arranged is None or entry is None:
        return f"it has {'more' if arranged is None else 'fewer'} file sets than its parameters give."
    expected = (arranged.format.name, arranged.split, arranged.source, arranged.epoch)
    found = (entry.format, entry.split, entry.source, entry.epoch)
    if expected != found:
        return f"expected a set with format, split, source and epoch {expected}; found {found}."
    names = [
        [f"{arranged.folder}/{name}" for name in arranged.format.files(arranged.stem(i), shape)]
        for i in range(len(arranged.files))
    ]
    found_names = [sorted(file.name for file in part.files) for part in entry.parts]
    if [sorted(some) for some in names] != found_names:
        return f"{arranged.folder}: expected the files {_some(names)}; found {_some(found_names)}."
    shared = [f"{arranged.folder}/{name}" for name in arranged.format.shared if arranged.files]
    if shared != [file.name for file in entry.shared]:
        return f"{arranged.folder}: expected the files {shared}; found {[file.name for file in entry.shared]}."
    return None


def _some(names: Sequence[Sequence[str]]) -> str:
    flat = [name for some in names for name in some]
    return ", ".join(flat[:4]) + (f" and {len(flat) - 4:,} more" if len(flat) > 4 else "") if flat else "(none)"


def _same(
    format: Format, folder: Path, stem: str, shape: Shape, expected: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The expected items, batch by batch, after they were found equal. Raises ValidationError for the first that differs."""
    name = format.files(stem, shape)[0]
    found = with_source_ids(format, folder, stem, shape, format.read(folder, stem, shape))
    held: pa.RecordBatch | None = None
    n_items = 0
    for batch in expected:
        while batch.num_rows:
            while held is None or not held.num_rows:
                held = next(found, None)
                if held is None:
                    raise ValidationError(name, f"ends after {n_items:,} items, expected more.")
            n_rows = min(batch.num_rows, held.num_rows)
            _compare(name, n_items, batch.slice(0, n_rows), held.slice(0, n_rows))
            yield batch.slice(0, n_rows)
            batch, held, n_items = batch.slice(n_rows), held.slice(n_rows), n_items + n_rows
    while held is None or not held.num_rows:
        held = next(found, None)
        if held is None:
            return
    raise ValidationError(name, f"holds more than the expected {n_items:,} items.")


def _compare(name: str, first_item: int, expected: pa.RecordBatch, found: pa.RecordBatch) -> None:
    for column in found.schema.names:
        right = expected[column]
        left = found[column].cast(right.type)
        if left.equals(right):
            continue
        i = next(i for i in range(len(right)) if left[i].as_py() != right[i].as_py())
        found_value, expected_value = left[i].as_py(), right[i].as_py()
        place = ""
        if isinstance(found_value, list):
            k = next(
                (k for k, (a, b) in enumerate(zip(found_value, expected_value, strict=False)) if a != b),
                min(len(found_value), len(expected_value)),
            )
            found_value, expected_value, place = found_value[k : k + 5], expected_value[k : k + 5], f" from {k} on"
        raise ValidationError(
            name, f"item {first_item + i}: {column}{place}: found {found_value!r}, expected {expected_value!r}."
        )


def _wrong_shared(arranged: ArrangedSet, entry: FileSet, dataset: Path, shape: Shape) -> Iterator[Finding]:
    """Yields the shared files of a set that differ from what their format writes for these parts."""
    if (
        arranged.format.finish is None
        or not arranged.files
        or not all((dataset / file.name).exists() for file in entry.files)
    ):
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-sets-") as scratch:
        for part in entry.parts:
            for file in part.files:
                (Path(scratch) / Path(file.name).name).symlink_to((dataset / file.name).absolute())
        arranged.format.finish(Path(scratch), [arranged.stem(i) for i in range(len(arranged.files))], shape)
        for file in entry.shared:
            if read(Path(scratch) / Path(file.name).name) != read(dataset / file.name):
                yield Finding(file.name, None, "differs from what a build writes for its parts.", FORCE)
