"""The commands upload, download and gc."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.console import say
from tokenmill.layout import UPLOADS_FILE
from tokenmill.quantities import number_of
from tokenmill_reader.shown import size

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands
    from tokenmill.features.share.unused import FoundFolder

_NAMES_SHOWN = 4
_PLACE = "s3://BUCKET/path, gs://BUCKET/path, az://CONTAINER/path, or a folder"


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    upload = commands.add_parser(
        "upload",
        help="write the dataset to object storage, a hub or another folder",
        description="Checks the build as publish does, and writes the dataset to PLACE/DIGEST, a folder of its own, named after "
        "the digest of its manifest. manifest.json comes last: the dataset is there whole or not at all. After an interruption, "
        "the same command goes on.",
        epilog="example: tokenmill upload s3://bucket/datasets",
    )
    upload.add_argument("place", metavar="PLACE", help=f"hf://datasets/ORGANIZATION/NAME, {_PLACE}")
    upload.set_defaults(run=_upload)
    download = commands.add_parser(
        "download",
        help="fetch an uploaded dataset into a folder",
        description="Fetches a dataset with its tables, its tokenizer and its quarantine, and checks all digests. The folder "
        "appears when everything is there.",
        epilog="example: tokenmill download s3://bucket/datasets/0123456789abcdef copy",
    )
    download.add_argument("dataset", metavar="URL", help="what `tokenmill upload` printed: PLACE/DIGEST")
    download.add_argument("directory", type=Path, metavar="DIR", help="a new directory")
    download.set_defaults(run=_download)
    gc = commands.add_parser(
        "gc",
        help="list or remove uploaded datasets that no git revision names",
        usage="%(prog)s [-h] [--json] [-q] [-v] [--debug] PLACE [--keep REV [REV ...]] [--delete]",
        description="Lists the datasets of a place: those that a branch or tag of the project's git repository names are kept. "
        "With --delete, removes the others, and what interrupted uploads left more than a day ago.",
        epilog="example: tokenmill gc s3://bucket/datasets",
    )
    gc.add_argument("place", metavar="PLACE", help=_PLACE)
    gc.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        default=[],
        metavar="REV",
        help="keep only the datasets of these git revisions",
    )
    gc.add_argument("--delete", action="store_true", help="remove what is listed as unnamed or leftover")
    gc.set_defaults(run=_gc)


def _upload(options: argparse.Namespace) -> Answer:
    from tokenmill.features.share.upload_build import upload
    from tokenmill.storage.anywhere import place_of
    from tokenmill.versioning.git import changed_files

    root, place = find_params().parent, place_of(options.place)
    done = upload(root, place)
    counts = ", ".join(f"{n:,} {how}" for how, n in done.files.items() if n)
    todo = f" Commit {UPLOADS_FILE}, which names the dataset." if UPLOADS_FILE in changed_files(root) else ""
    say(f"upload: files: {counts}; sent {size(done.sent_bytes)}.{todo}")
    return text(dataclasses.asdict(done), done.url)


def _download(options: argparse.Namespace) -> Answer:
    from tokenmill.features.share.download import download
    from tokenmill.storage.anywhere import place_of

    url = place_of(options.dataset)
    manifest = download(url, options.directory)
    result = {"url": url, "directory": str(options.directory.absolute()), "digest": manifest.digest}
    return text(
        result,
        f"{options.directory}: {manifest.digest[:16]}, {number_of(manifest.n_tokens, 'token')}",
        is_asked_for=False,
    )


def _gc(options: argparse.Namespace) -> Answer:
    from tokenmill.features.share.unused import REMOVED, find, remove
    from tokenmill.storage.anywhere import place_of

    place = place_of(options.place)
    folders = find(find_params().parent, place, options.keep)
    if not folders:
        say(f"gc: {place} has no datasets. If it should, see that it is the PLACE that `tokenmill upload` was given.")
    removed = [folder for folder in folders if folder.state in REMOVED]
    if options.delete:
        remove(place, removed)
    n_bytes = sum(folder.n_bytes for folder in removed)
    lines = [
        *_rows(folders),
        f"{place}: datasets and leftovers: {len(folders):,}, to be removed: {len(removed):,}, {size(n_bytes)}",
    ]
    if removed:
        lines[-1] += ". They are removed." if options.delete else ". To remove them, run it again with --delete."
    result = {
        "place": place,
        "datasets": [dataclasses.asdict(folder) for folder in folders],
        "is_removed": options.delete,
        "removed_bytes": n_bytes,
    }
    return text(result, lines)


def _rows(found: "Sequence[FoundFolder]") -> Iterator[str]:
    """A table of what a place holds."""
    for one in found:
        day = datetime.fromtimestamp(one.modified_s, UTC).strftime("%Y-%m-%d %H:%M")
        names = ", ".join(one.named_by[:_NAMES_SHOWN]) + (", …" if len(one.named_by) > _NAMES_SHOWN else "")
        yield f"{one.name}  {day}  {size(one.n_bytes):>12}  {one.n_files:>7,} files  {one.state:<9}  {names}".rstrip()
