"""A token dataset's card: README.md with its numbers and how to read it, and the header that `datasets` and model hubs read."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from tokenmill.artifacts.markdown import code, facts
from tokenmill.dataset.entries import FileSet
from tokenmill.dataset.manifest import Manifest
from tokenmill.layout import hub_split
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.manifest import CARD_FILE, DOCUMENTS_FOLDER

_SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow"}
"""The formats that `datasets` reads, with the suffix of their files, the first choice first."""

_HOW = """## Read it

```python
import datasets
rows = datasets.load_dataset("DIRECTORY")

import tokenmill  # or tokenmill_reader, which needs numpy alone
items = tokenmill.open("DIRECTORY"{split})
```

## Check it, and make it again

`python -m tokenmill_reader check DIRECTORY` compares every file with `manifest.json`, and `tokenmill verify DIRECTORY` compares
the tokens with the documents, too. The same documents, parameters and version of tokenmill give the same bytes: in the project
that made this dataset, take the commit whose `dvc.lock` has it, and run `tokenmill build --force`. This page is no part of what
is checked, so that you may add to it."""


_LICENSE = re.compile(r"(?<![^\s\"\[])[a-z0-9][a-z0-9.+-]*(?![^\s\",\]])")

Licenses = Mapping[str | None, Sequence[str]]
"""The ids of the licences of each source, by its name; None: the only source, which has no name."""


def write_dataset_card(manifest: Manifest, licenses: Licenses, directory: Path) -> None:
    """Writes README.md. The same manifest and licences give the same bytes."""
    with write_atomic(directory / CARD_FILE) as path:
        path.write_text(card_of(manifest, licenses), encoding="utf-8")


def card_of(manifest: Manifest, licenses: Licenses) -> str:
    """The text of README.md. What it lists by name are splits and sources; the input files are in the manifest.

    The licences are no part of the manifest, so that a changed licence changes this page alone.
    """
    split = next((f", {file_set.split!r}" for file_set in manifest.sets if file_set.split is not None), "")
    parts = [
        "\n".join(["---", *_license(licenses), "tags:", "- tokenmill", "configs:", *_configs(manifest), "---"]),
        "# Token dataset",
        f"Documents as token ids, made by {manifest.engine}. `manifest.json` names each file with its sha256.",
        facts(_numbers(manifest)),
        *_sources(manifest, licenses),
        *_sets(manifest),
        _HOW.replace("{split}", split),
    ]
    return "\n\n".join(parts) + "\n"


def licenses_in(card: str, manifest: Manifest) -> Licenses:
    """The licences that the text of a dataset's card names. Somebody may have edited it, so what is no id of a licence counts as
    none. `manifest`: that of the dataset."""
    lines = card.splitlines()
    if not manifest.sources:
        header = next((line for line in lines if line.startswith("license: ")), "")
        return {None: _LICENSE.findall(header.removeprefix("license: "))}
    cells = {
        source.name: [line for line in lines if line.startswith(f"| {code(source.name)} |")]
        for source in manifest.sources
    }
    return {name: _LICENSE.findall(some[0].split("|")[-2]) if some else [] for name, some in cells.items()}


def _license(licenses: Licenses) -> Iterator[str]:
    """Yields the line of the header that names each licence once, if there are any."""
    found = list(dict.fromkeys(id for ids in licenses.values() for id in ids))
    if found:
        yield f"license: {json.dumps(found if len(found) > 1 else found[0])}"


def _configs(manifest: Manifest) -> Iterator[str]:
    """Yields the lines of the header that say which files are which split. The first of the configurations is the default.

    `datasets` reads all configurations of a folder in the format of the first, so that Parquet goes before Arrow.
    """
    format = next((name for name in _SUFFIXES if any(file_set.format == name for file_set in manifest.sets)), "parquet")
    configs: dict[str, dict[str, list[str]]] = {}
    for file_set in manifest.sets:
        if file_set.format == format and file_set.parts:
            name = format if file_set.epoch is None else f"{format}-epoch-{file_set.epoch}"
            split = hub_split(file_set.split or "train")
            configs.setdefault(name, {}).setdefault(split, []).append(f"{_folder(file_set)}/*{_SUFFIXES[format]}")
    if format == "parquet":
        configs["documents"] = {"train": [f"{DOCUMENTS_FOLDER}/**/*.parquet"]}
    for name, splits in configs.items():
        yield f"- config_name: {name}"
        if name == next(iter(configs)):
            yield "  default: true"
        yield "  data_files:"
        for split, paths in splits.items():
            yield f"  - split: {split}"
            yield f"    path: {json.dumps(paths)}"


def _folder(one: FileSet) -> str:
    """The folder of a set's parts, relative to the dataset's."""
    return str(PurePosixPath(one.parts[0].files[0].name).parent)


def _numbers(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table of what the dataset is."""
    yield "documents", f"{manifest.n_documents:,}"
    yield "tokens", f"{manifest.n_tokens:,}"
    yield "text", f"{manifest.text_bytes:,} bytes, from {len(manifest.inputs):,} files"
    yield "ids", f"{manifest.id_type}, up to {manifest.id_max:,}"
    yield "tokenizer, sha256", f"`{manifest.tokenizer_digest}`"
    if one := manifest.tokenizer_origin:
        yield "tokenizer, from", code(" ".join(filter(None, (one.source, one.name, one.version))))
    for what, id in (("begins", manifest.begin_of_document_id), ("ends", manifest.end_of_document_id)):
        yield f"id that {what} a document", "none" if id is None else str(id)
    if manifest.chat is not None:
        each = ", a document for each trained message" if manifest.chat.turns == "each" else ""
        yield "conversations", f"template {code(manifest.chat.template_name)}, with a loss mask{each}"
    if manifest.n_bad:
        yield "left out as bad", f"{manifest.n_bad:,} documents"
    for reason, n in manifest.n_dropped.items():
        yield f"left out, {code(reason)}", f"{n:,} documents"
    yield "parameters, sha256", f"`{manifest.params_digest}`"
    yield "manifest, sha256 of its fields", f"`{manifest.digest}`"


def _sources(manifest: Manifest, licenses: Licenses) -> Iterator[str]:
    """Yields the table of the named sources, if there are any."""
    if manifest.sources:
        rows = [
            f"| {code(source.name)} | {source.n_documents:,} | {source.n_tokens:,} | {source.text_bytes:,} "
            f"| {', '.join(licenses[source.name]) or '–'} |"
            for source in manifest.sources
        ]
        head = ["| source | documents | tokens | bytes of text | license |", "|---|---:|---:|---:|---|"]
        yield "\n".join([*head, *rows])


def _sets(manifest: Manifest) -> Iterator[str]:
    """Yields the table of the file sets, if there are any."""
    rows = []
    for file_set in manifest.sets:
        which = [file_set.split, file_set.source, None if file_set.epoch is None else f"epoch {file_set.epoch}"]
        items, tokens = (sum(getattr(part, name) for part in file_set.parts) for name in ("n_items", "n_tokens"))
        n_bytes = sum(file.n_bytes for file in file_set.files)
        named = ", ".join(code(name) for name in which if name is not None) or "all"
        rows.append(f"| {file_set.format} | {named} | {items:,} | {tokens:,} | {n_bytes:,} |")
    if rows:
        yield "\n".join(["| format | of | items | tokens | bytes |", "|---|---|---:|---:|---:|", *rows])
