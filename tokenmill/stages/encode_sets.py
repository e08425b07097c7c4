"""encode, second half: encoded units → the file sets that training jobs read, in every format that params.yaml names."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tokenmill.config.encode_params import Encode
from tokenmill.console import Advance, say
from tokenmill.dataset.entries import FileSet, MixedSource, SetPart, TableFile
from tokenmill.errors import ParamsError
from tokenmill.file_sets.arrangement import ArrangedSet, Arrangement, Items, SetFacts, n_tokens_of
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import blends_of
from tokenmill.format_facts import FORMATS, that_hold_labels
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill.quantities import number_of
from tokenmill.rounds import Round, Rounds, Task, do
from tokenmill.storage.atomic import flush, write_atomic
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import Done
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.regular_files import sha256_file

_STEM = "items"  # the stem of a part's file names in the unit store


class WrittenSets(NamedTuple):
    """The manifest's entries of the file sets: `sets`, `packed` and `mixture`."""

    sets: list[FileSet]
    packed: dict[str, dict[str, int]]
    mixture: list[MixedSource]


def refuse_formats(formats: Sequence[str], params: Encode, shape: Shape) -> None:
    """Raises ParamsError, with a line for each reason, for formats that cannot hold the documents or what is packed from them, or
    whose own readers would read something else."""
    refused: dict[str, list[str]] = {}
    if any(FORMATS[name].holds_labels for name in formats):
        shape = replace(shape, has_labels=False)  # the others get none
    for name in formats:
        for reason in _reasons(SET_FORMATS[name], params, shape):
            refused.setdefault(reason, []).append(name)
    if refused:
        raise ParamsError([f"encode.formats: {', '.join(names)}: {why}" for why, names in refused.items()])


def trains_all(name: str, params: Encode) -> bool:
    """Whether the files of a format say all without the loss mask of conversations, because each token is trained."""
    facts = FORMATS[name]
    return params.chat is not None and params.chat.mask == "all" and not facts.holds_mask and not facts.needs_end


def _reasons(format: Format, params: Encode, shape: Shape) -> Iterator[str]:
    """Yields why a format is refused. Formats with the same reason get the same text."""
    if trains_all(format.name, params):
        shape = replace(shape, has_mask=False)
    pack, facts = params.pack, FORMATS[format.name]
    if shape.is_pair and not (facts.only_pairs or facts.holds_pairs):
        yield "its readers would train the rejected answers of pairs, too; choose trl_dpo, parquet or arrow"
        return
    if reason := format.refusal(shape, params.part_bytes):
        yield reason
    if facts.needs_end and shape.end_id is None and not shape.has_mask:
        yield (
            "its reader finds documents by the token that ends them, and encode.end_of_document is null. Set it to a special "
            "token, or choose another format."
        )
    if pack is None:
        return
    if pack.output == "index":
        if format.one_file:
            yield "it has one file, and the index of encode.pack.output names parts; take another format"
        return
    if facts.needs_end and pack.long == "cut":
        yield (
            "its reader finds documents by the token that ends them, which encode.pack.long: cut cuts off. Set long: split or "
            "drop, or choose another format."
        )
    if not facts.keeps_ends and pack.pad is None and (pack.mode != "concat" or params.shuffle is not None):
        is_concat = pack.mode == "concat"
        yield (
            f"trainers read these files in windows of one length and do not know where sequences end. With encode.pack.mode: "
            f"{pack.mode}{' and encode.shuffle' * is_concat}, sequences shorter than {pack.length:,} tokens are between others, so "
            "that windows would begin anywhere in them. Set encode.pack.pad to a special token, which fills sequences up, or "
            f"{'encode.shuffle: null' if is_concat else 'encode.pack.mode: concat'}, or choose "
            f"{that_hold_labels()}."
        )


class WriteTask(Task[SetFacts], frozen=True, kw_only=True):
    """Writes one part of a file set. `items`: gives its items in order."""

    format: Format
    shape: Shape
    items: Items

    def run(self, folder: Path, advance: Advance) -> SetFacts:
        """Writes the part's files (see Task)."""
        n_items = n_tokens = 0
        with self.format.write(folder, _STEM, self.shape) as add:
            for batch in self.items():
                add(batch)
                n_items += batch.num_rows
                n_tokens += n_tokens_of(batch)
        return SetFacts(n_items, n_tokens)


def write_sets(
    arrangement: Arrangement, units: Sequence[EncodedUnit], tokens_digest: str, directory: Path
) -> Rounds[WrittenSets]:
    """Writes all file sets into `directory`, the dataset's temporary folder. `tokens_digest`: see Manifest.tokens_digest."""
    stage = arrangement.round
    sets = yield from arrangement.sets(units, tokens_digest)
    for name in dict.fromkeys(
        "/".join(filter(None, (file_set.split, file_set.source))) for file_set in sets if not file_set.files
    ):
        say(f"{stage}: there is nothing for {name or 'the file sets'}, so it has no files")
    if any(one.epochs != "1" for one in arrangement.mixture):
        say(f"{stage}: {_words_of_mixture(arrangement.mixture)}")
    without = [format.name for format in arrangement.formats if not FORMATS[format.name].holds_labels]
    if arrangement.shape.has_labels and without:
        say(
            f"{stage}: {', '.join(without)}: these files have no place for the labels of encode.pack.labels, and get none"
        )
    tasks = [
        WriteTask(name=file.name, key=file.key, format=file_set.format, shape=arrangement.shape, items=file.items)
        for file_set in sets
        for file in file_set.files
    ]
    set_of = {file.key: file_set for file_set in sets for file in file_set.files}
    done = iter((yield from do(Round(stage, tasks, SetFacts, prepare=partial(arrangement.prepare, set_of)))))
    entries = [_link(file_set, [next(done) for _ in file_set.files], arrangement.shape, directory) for file_set in sets]
    return WrittenSets(entries, arrangement.packed, arrangement.mixture)


def write_blends(sets: Sequence[FileSet], directory: Path) -> list[TableFile]:
    """Writes the blend files of these sets, and gives their entries for the manifest."""
    files = []
    for name, text in blends_of(sets).items():
        with write_atomic(directory / name) as partial:
            partial.write_text(text, encoding="utf-8")
        path = directory / name
        files.append(TableFile(name=name, n_bytes=path.stat().st_size, sha256=sha256_file(path)))
    return files


def _words_of_mixture(mixture: Sequence[MixedSource]) -> str:
    """Says how many tokens of each source the first split has; only that split is mixed."""
    split = mixture[0].split
    words = [
        f"{number_of(one.n_tokens, 'token')} of {one.source} (epochs: {float(Fraction(one.epochs)):.4g})"
        for one in mixture
        if one.split == split
    ]
    return f"the mixture{f' of {split}' if split else ''} has {', '.join(words)}"


def _link(arranged: ArrangedSet, done: Sequence[Done[SetFacts]], shape: Shape, directory: Path) -> FileSet:
    """Links the files of a set into the dataset's folder, and gives their entry for the manifest."""
    folder = Path(arranged.folder)
    parts = []
    for i, part in enumerate(done):
        files = []
        for name, file in part.files.items():
            target = folder / name.replace(_STEM, arranged.stem(i), 1)
            link(part.folder / name, directory / target)
            files.append(TableFile(name=target.as_posix(), n_bytes=file.n_bytes, sha256=file.sha256))
        parts.append(SetPart(files=files, n_items=part.facts.n_items, n_tokens=part.facts.n_tokens))
    shared = []
    if arranged.format.finish is not None and parts:
        arranged.format.finish(directory / folder, [arranged.stem(i) for i in range(len(parts))], shape)
        for name in arranged.format.shared:
            path = directory / folder / name
            flush(path)
            name = (folder / name).as_posix()
            shared.append(TableFile(name=name, n_bytes=path.stat().st_size, sha256=sha256_file(path)))
    return FileSet(
        format=arranged.format.name,
        split=arranged.split,
        source=arranged.source,
        epoch=arranged.epoch,
        parts=parts,
        shared=shared,
    )
