"""The command upload."""

import argparse
import dataclasses
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.console import say
from tokenmill.layout import UPLOADS_FILE
from tokenmill.quantities import size

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_PLACE = "s3://BUCKET/path, gs://BUCKET/path, az://CONTAINER/path, or a folder"


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    upload = commands.add_parser(
        "upload",
        help="write the dataset to object storage or to another folder",
        description="Checks the build as publish does, and writes the dataset to PLACE/DIGEST, a folder of its own, named after "
        "the digest of its manifest. manifest.json comes last: the dataset is there whole or not at all. After an interruption, "
        "the same command goes on.",
        epilog="example: tokenmill upload s3://bucket/datasets",
    )
    upload.add_argument("place", metavar="PLACE", help=_PLACE)
    upload.set_defaults(run=_upload)


def _upload(asked: argparse.Namespace) -> Answer:
    from tokenmill.stages.upload import upload
    from tokenmill.storage.anywhere import place_of

    place = place_of(asked.place)
    done = upload(find_params().parent, place)
    counts = ", ".join(f"{n:,} {how}" for how, n in done.files.items() if n)
    say(f"upload: files: {counts}; sent {size(done.sent_bytes)}. Commit {UPLOADS_FILE}, which names the dataset.")
    return text(dataclasses.asdict(done), done.url)
