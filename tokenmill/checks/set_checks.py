"""Checks the file sets of a dataset: each file holds what the proven documents and the manifest's parameters say, in that order."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tokenmill.console import Advance
from tokenmill.dataset.manifest import MANIFEST_FILE, FileSet, Manifest, SetPart
from tokenmill.errors import ValidationError
from tokenmill.file_sets.arrangement import ArrangedSet, Arrangement, Items, SetFacts, n_tokens_of
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import blends_of, epochs_of
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.formats.interface import Format, Shape
from tokenmill.formats.table import SET_FORMATS
from tokenmill.rounds import Round, Rounds, Task, do
from tokenmill.storage.atomic import read
from tokenmill.storage.unit_store import unit_key

_REASON_FILE = "reason.txt"
_FORCE = "Run `tokenmill build --force`."


class Wrong(NamedTuple):
    """A file of the dataset, relative to its folder, and what is wrong with it."""

    file: str
    what: str


class CheckTask(Task[SetFacts], frozen=True, kw_only=True):
    """Compares the items of one part of a set with the expected ones. `folder`: of the set. `part`: its entry in the manifest."""

    format: Format
    folder: Path
    stem: str
    shape: Shape
    items: Items
    part: SetPart

    def run(self, folder: Path, advance: Advance) -> SetFacts:
        """Writes what is wrong to a file; an empty file if nothing is (see Task)."""
        n_items = n_tokens = 0
        reason = ""
        try:
            for batch in _same(self.format, self.folder, self.stem, self.shape, self.items()):
                n_items += batch.num_rows
                n_tokens += n_tokens_of(batch)
            if (n_items, n_tokens) != (self.part.n_items, self.part.n_tokens):
                says = f"{self.part.n_items:,} items and {self.part.n_tokens:,} tokens"
                reason = f"{MANIFEST_FILE} says {says}; found {n_items:,} and {n_tokens:,}."
        except ValidationError as error:
            reason = str(error)
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a fault of the machine, not of the file
            reason = f"cannot be read: {error}"
        (folder / _REASON_FILE).write_text(reason, encoding="utf-8")
        return SetFacts(n_items, n_tokens)


def wrong_sets(
    manifest: Manifest,
    dataset: Path,
    units: Sequence[EncodedUnit],
    documents: Shape,
    is_done: Callable[[str], bool],
    remove: Callable[[Sequence[str]], None],
    threads: int,
    code: str,
) -> Rounds[list[Wrong]]:
    """Returns what is wrong in the file sets of a dataset whose documents were checked before.

    `units`: the documents' files, with document indexes derived again from them. `documents`: their shape. `threads`: see
    Arrangement. `is_done`: whether the result of the task with this key is kept. `remove`: deletes the results of these keys.
    `code`: the digest of this code, for the keys. This compares content; digests of files are checked elsewhere.
    """
    files = manifest.files
    if files is None:
        return [Wrong(MANIFEST_FILE, f"sets: it names file sets, and not how they are arranged. {_FORCE}")] * bool(
            manifest.sets
        )
    if unknown := sorted({one.format for one in manifest.sets} - {*SET_FORMATS, INDEX_FORMAT.name}):
        return [Wrong(MANIFEST_FILE, f"sets: {unknown[0]!r} is no format. {_FORCE}")]
    wrong: list[Wrong] = []
    if (epochs := epochs_of(manifest.sources, units, files.splits)) != files.epochs:
        wrong.append(Wrong(MANIFEST_FILE, f"files.epochs: it says {files.epochs}; its sources have {epochs}. {_FORCE}"))
    names = dict.fromkeys(one.format for one in manifest.sets if one.format != INDEX_FORMAT.name)
    formats = [SET_FORMATS[name] for name in names]
    arrangement = Arrangement("validate", files, formats, documents, threads, code)
    expected = yield from arrangement.sets(units, manifest.tokens_digest())
    wrong += _wrong_numbers(manifest, arrangement)
    lacking: list[ArrangedSet] = []
    tasks: list[CheckTask] = []
    for one, entry in zip_longest(expected, manifest.sets):
        if difference := _differ(one, entry, arrangement.shape):
            return [*wrong, Wrong(MANIFEST_FILE, f"sets: {difference} {_FORCE}")]
        found = [
            CheckTask(
                name=f"check {file.name}",
                key=unit_key(
                    stage="check",
                    items=file.key,
                    files=[some.sha256 for some in part.files],
                    numbers=[part.n_items, part.n_tokens],
                ),
                format=one.format,
                folder=dataset / one.folder,
                stem=one.stem(i),
                shape=arrangement.shape,
                items=file.items,
                part=part,
            )
            for i, (file, part) in enumerate(zip(one.files, entry.parts, strict=True))
            if all((dataset / some.name).exists() for some in part.files)  # missing files are reported elsewhere
        ]
        if one.before and not all(is_done(task.key) for task in found):
            lacking.append(one)
        tasks += found
    temporary = yield from arrangement.prepare(lacking)
    done = yield from do(Round("validate", tasks, SetFacts))
    remove(temporary)
    for made, task in zip(done, tasks, strict=True):
        if reason := read(made.folder / _REASON_FILE).decode():
            wrong.append(Wrong(task.part.files[0].name, reason))
    for one, entry in zip(expected, manifest.sets, strict=True):
        wrong += _wrong_shared(one, entry, dataset, arrangement.shape)
    return [*wrong, *_wrong_blends(manifest, dataset)]


def _wrong_numbers(manifest: Manifest, arrangement: Arrangement) -> Iterator[Wrong]:
    if arrangement.packed != manifest.packed:
        yield Wrong(MANIFEST_FILE, f"packed: it says {manifest.packed}; found {arrangement.packed}. {_FORCE}")
    if manifest.format_version > 6:
        for has, says in zip_longest(arrangement.mixture, manifest.mixture):
            if has != says:
                found, said = (None if one is None else one.model_dump() for one in (has, says))
                yield Wrong(MANIFEST_FILE, f"mixture: it says {said}; found {found}. {_FORCE}")
                break


def _wrong_blends(manifest: Manifest, dataset: Path) -> Iterator[Wrong]:
    expected = blends_of(manifest.sets)
    if list(expected) != [file.name for file in manifest.blends]:
        yield Wrong(MANIFEST_FILE, f"blends: expected the files {list(expected)}. {_FORCE}")
        return
    for name, text in expected.items():
        if (dataset / name).exists() and read(dataset / name) != text.encode():
            yield Wrong(name, f"not what the sets of the sources give. {_FORCE}")


def _differ(one: ArrangedSet | None, entry: FileSet | None, shape: Shape) -> str | None:
    """Says how the manifest's entry of a set differs from the expected set."""
    if one is None or entry is None:
        return f"it has {'more' if one is None else 'fewer'} file sets than its parameters give."
    expected = (one.format.name, one.split, one.source, one.epoch)
    found = (entry.format, entry.split, entry.source, entry.epoch)
    if expected != found:
        return f"expected a set with format, split, source and epoch {expected}; found {found}."
    names = [[f"{one.folder}/{name}" for name in one.format.files(one.stem(i), shape)] for i in range(len(one.files))]
    found_names = [sorted(file.name for file in part.files) for part in entry.parts]
    if [sorted(some) for some in names] != found_names:
        return f"{one.folder}: expected the files {_some(names)}; found {_some(found_names)}."
    shared = [f"{one.folder}/{name}" for name in one.format.shared if one.files]
    if shared != [file.name for file in entry.shared]:
        return f"{one.folder}: expected the files {shared}; found {[file.name for file in entry.shared]}."
    return None


def _some(names: Sequence[Sequence[str]]) -> str:
    flat = [name for some in names for name in some]
    return ", ".join(flat[:4]) + (f" and {len(flat) - 4:,} more" if len(flat) > 4 else "") if flat else "(none)"


def _same(
    format: Format, folder: Path, stem: str, shape: Shape, expected: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The expected items, batch by batch, after they were found equal. Raises ValidationError for the first that differs."""
    name = f"{stem}{format.suffixes[0]}"
    found = format.read(folder, stem, shape)
    held: pa.RecordBatch | None = None
    at = 0
    for batch in expected:
        while batch.num_rows:
            while held is None or not held.num_rows:
                held = next(found, None)
                if held is None:
                    raise ValidationError(name, f"ends after {at:,} items, expected more.")
            n_rows = min(batch.num_rows, held.num_rows)
            _compare(name, at, batch.slice(0, n_rows), held.slice(0, n_rows))
            yield batch.slice(0, n_rows)
            batch, held, at = batch.slice(n_rows), held.slice(n_rows), at + n_rows
    while held is None or not held.num_rows:
        held = next(found, None)
        if held is None:
            return
    raise ValidationError(name, f"holds more than the expected {at:,} items.")


def _compare(name: str, at: int, expected: pa.RecordBatch, found: pa.RecordBatch) -> None:
    for column in found.schema.names:
        right = expected[column]
        left = found[column].cast(right.type)
        if left.equals(right):
            continue
        i = next(i for i in range(len(right)) if left[i].as_py() != right[i].as_py())
        one, other = left[i].as_py(), right[i].as_py()
        place = ""
        if isinstance(one, list):
            k = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
            one, other, place = one[k : k + 5], other[k : k + 5], f" from {k} on"
        raise ValidationError(name, f"item {at + i}: {column}{place}: found {one!r}, expected {other!r}.")


def _wrong_shared(one: ArrangedSet, entry: FileSet, dataset: Path, shape: Shape) -> Iterator[Wrong]:
    """Yields the shared files of a set that differ from what their format writes for these parts."""
    if one.format.finish is None or not one.files or not all((dataset / file.name).exists() for file in entry.files):
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-sets-") as scratch:
        for part in entry.parts:
            for file in part.files:
                (Path(scratch) / Path(file.name).name).symlink_to((dataset / file.name).absolute())
        one.format.finish(Path(scratch), [one.stem(i) for i in range(len(one.files))], shape)
        for file in entry.shared:
            if read(Path(scratch) / Path(file.name).name) != read(dataset / file.name):
                yield Wrong(file.name, f"not what its parts give. {_FORCE}")
