"""The command diff."""

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.dataset_arguments import MANIFEST_FILE, path_or_url, with_manifest
from tokenmill.cli.versions import find_params
from tokenmill.console import say
from tokenmill.errors import EXIT_DONE, EXIT_NO, ParamsError, TokenizerError, ValidationError
from tokenmill.layout import COUNTS_FILE, REPORT_FILE, TABLES_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.quantities import number_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.cli.parser import Commands
    from tokenmill.corpus.reader import Batch, Shard
    from tokenmill.storage.urls import StoredObject

TOKENIZER_FILE = "tokenizer.json"


def add_commands(commands: "Commands") -> None:
    """Adds the command to the parser's."""
    diff = commands.add_parser(
        "diff",
        help="compare two tokenizers, or two datasets",
        description="Compares two tokenizers on the documents of --corpus, or else on the counts of the project. Of two datasets, "
        "says which documents were added, removed, changed or moved to another split, and compares their sums, measures, "
        "parameters and tokenizers. Exit code: 0 equal ids or the same dataset, 1 different, 2 error.",
        epilog="example: tokenmill diff tokenizer@v1.1.0 tokenizer@v1.2.0 --corpus 'data/raw/**/*'",
    )
    diff.add_argument(
        "one",
        metavar="ONE",
        help="a tokenizer or a dataset: NAME@VERSION, or its folder or file; of a dataset also the URL that `upload` printed",
    )
    diff.add_argument("other", metavar="OTHER", help="the other one, named likewise")
    diff.add_argument(
        "--from", dest="repository", default=".", metavar="URL", help="the git repository of the versions"
    )
    diff.add_argument("--corpus", metavar="GLOB", help="documents to compare tokenizers on, read as params.yaml says")
    diff.add_argument(
        "--language", metavar="COLUMN", help="the column or key that names a document's language (default: its script)"
    )
    diff.set_defaults(run=_diff)


def _diff(options: argparse.Namespace) -> Answer:
    names = (options.one, options.other)
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as scratch:
        fetched = [Path(scratch) / str(i) for i in range(2)]
        one, other = (_dataset(*of, options.repository) for of in zip(names, fetched, strict=True))
        if one is None and other is None:
            return _diff_tokenizers(options)
        if one is None or other is None:
            raise _unlike(*(names if one is None else names[::-1]))
        for option in ("corpus", "language"):
            if getattr(options, option) is not None:
                raise ParamsError(f"--{option}", "found with two datasets; it is for tokenizers.", "Omit it.")
        from tokenmill.features.diff.compare_datasets import compare_datasets, lines_of

        try:
            comparison = compare_datasets(one, other)
        except ValidationError as error:
            where, what, fix = error.where, error.what, error.fix
            for folder, name in zip(fetched, names, strict=True):
                where = where.replace(str(folder), name)
            raise ValidationError(where, what.split("\n"), fix, code=error.code) from None
        return text(
            comparison.as_json(), [*lines_of(comparison, (one, other))], EXIT_NO if comparison.differ else EXIT_DONE
        )


def _dataset(name: str, folder: Path, repository: str) -> Path | None:
    """The folder of the dataset that an argument names, with what the comparison reads: its own, or `folder`, into which that is
    fetched. None if the argument names none."""
    from tokenmill.dataset.tables import DOCUMENTS_FILE
    from tokenmill.versioning.registry import fetch_files, find_version, is_reference, parse_reference
    from tokenmill.versioning.stored import MANIFEST, TABLES, manifest_of

    place = path_or_url(name)
    tokens = folder / Path(TOKENS_DIRECTORY).name
    if isinstance(place, str):
        from tokenmill.storage import anywhere

        manifest_of(place)
        listed = anywhere.list_files(place)
        for file in (MANIFEST, f"{TABLES}/{DOCUMENTS_FILE}"):
            if file in listed:
                anywhere.fetch(listed[file], folder / file)
        return tokens
    if is_reference(name) and not place.exists():
        beside = [
            f"../{Path(one).relative_to('data')}" for one in (f"{TABLES_DIRECTORY}/{DOCUMENTS_FILE}", REPORT_FILE)
        ]
        fetch_files(find_version(repository, parse_reference(name), Path.cwd()), [MANIFEST_FILE, *beside], tokens)
        return with_manifest(tokens)
    return with_manifest(place)


def _unlike(name: str, dataset: str) -> ParamsError:
    """The error for a name that is not that of a dataset, beside a dataset."""
    path = Path(name)
    if path.is_dir():
        what = "a tokenizer" if (path / TOKENIZER_FILE).exists() else f"a folder without {MANIFEST_FILE}"
    else:
        what = "a file" if path.exists() else "a version of something else" if "@" in name else "nothing there"
    return ParamsError(
        name, f"expected a dataset, as {dataset} is one; found {what}.", "Name two datasets, or two tokenizers."
    )


def _diff_tokenizers(options: argparse.Namespace) -> Answer:
    from tokenmill.analysis.compare import compare, lines_of, scripts_of
    from tokenmill.tokenizer.tokenizer import Tokenizer
    from tokenmill.versioning.registry import is_reference, load_version

    def load(name: str) -> Tokenizer:
        try:
            if is_reference(name) and not Path(name).exists():
                return load_version(name, options.repository)
            return Tokenizer.load(name)
        except TokenizerError as error:
            if not Path(name).is_dir() or (Path(name) / TOKENIZER_FILE).exists():
                raise
            fix = f"{error.fix} Nor is {name} a dataset: it has no {MANIFEST_FILE}."
            raise TokenizerError(error.where, error.what, fix, code=error.code) from None

    one, other = load(options.one), load(options.other)
    documents = _documents(options.corpus, options.language) if options.corpus else ()
    counts = None if options.corpus else _counts()
    comparison = compare(one, other, documents, _languages_of if options.language else scripts_of, counts)
    return text(comparison.as_json(), lines_of(comparison), EXIT_NO if comparison.ids_differ else EXIT_DONE)


def _counts() -> "pa.Table | None":
    """The counts of the project around this folder; None without them."""
    from tokenmill.counts.table import read_counts

    try:
        path = find_params().parent / COUNTS_FILE
    except ParamsError:
        return None
    return read_counts(path) if path.is_file() else None


def _languages_of(batch: "Batch") -> list[str]:
    (languages,) = batch.columns.values()
    return list(languages.to_pylist())


def _documents(glob: str, language: str | None) -> Iterator[tuple[str, "Batch"]]:
    """The documents that a glob, relative to this folder, matches: each batch with its shard's folder. The documents are read with
    the parameters of params.yaml, those of a named source with its own, and the column `language` beside them. Bad ones are left
    out, and reported at the end."""
    from tokenmill.config.load_params import load_params
    from tokenmill.config.sources import Column
    from tokenmill.corpus.bad_documents import ColumnError
    from tokenmill.corpus.reader import BadDocument, find_shards, read_batches
    from tokenmill.corpus.source_shards import find_documents
    from tokenmill.errors import CorpusError, DamagedError

    path = find_params()
    params = load_params(path)
    try:
        shards = find_documents(path.parent, params) if params.sources else []
    except CorpusError:  # the project's own documents need not be here to look at others
        shards = []
    sources = {_place(one): one.source for one in shards}
    bad: list[BadDocument] = []
    first, damaged, n_read = "", [], 0
    (unnamed,) = params.model_copy(update={"sources": {}}).document_sources()
    for shard in find_shards(Path.cwd(), glob, "--corpus", unnamed):
        if language and not shard.kind.has_columns:
            raise CorpusError(f"--language {language}", f"{shard.name} has no columns.", "Omit --language.")
        n_bad, source = len(bad), sources.get(_place(shard)) or unnamed
        columns = (Column(language, "--language"),) if language else ()
        reading = dataclasses.replace(source.reading, id_column=None, columns=columns)
        try:
            for batch in read_batches(shard, reading, on_bad=bad.append):
                n_read += len(batch.texts)
                yield Path(shard.name).parent.as_posix(), batch
        except DamagedError as error:
            damaged.append(str(error))
        except ColumnError as error:
            if error.setting != "--language":
                raise
            raise CorpusError(f"--language {language}", error.words, "Name another column, or omit it.") from None
        if bad and not n_bad:
            first = f"{shard.name}, row {bad[0].row}: {bad[0].reason}"
    if not n_read and bad and language:
        raise CorpusError(f"--language {language}, --corpus {glob!r}", f"all documents are bad. {first}")
    if bad:
        say(f"diff: left out {number_of(len(bad), 'bad document')}; the first: {first}")
    if damaged:
        say(
            f"diff: left out the unreadable part of {number_of(len(damaged), 'damaged shard')}; the first: {damaged[0]}"
        )


def _place(shard: "Shard") -> "Path | StoredObject":
    return shard.path.resolve() if isinstance(shard.path, Path) else shard.path
