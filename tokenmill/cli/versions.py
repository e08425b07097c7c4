"""The commands publish, fetch and pin."""

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.errors import ParamsError
from tokenmill.layout import LOCK_FILE, PARAMS_FILE
from tokenmill_reader.shown import without_passwords

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands
    from tokenmill.config.lockfile import Pin


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    publish = commands.add_parser(
        "publish",
        help="publish the tokenizer or the dataset as a version",
        description="Checks the build, pushes its data to DVC's remote and registers the version with GTO (a git tag).",
        epilog="example: tokenmill publish tokenizer@v1.2.0 --stage prod",
    )
    publish.add_argument("reference", metavar="NAME@VERSION", help="an artifact of dvc.yaml and its new version")
    publish.add_argument("--stage", metavar="STAGE", help="also assign the version to this GTO stage, like prod")
    publish.add_argument("--remote", metavar="NAME", help="the DVC remote (default: DVC's own default)")
    publish.add_argument("--sign", type=Path, metavar="KEY", help="sign the files with this private key (PEM, P-256)")
    publish.set_defaults(run=_publish)
    fetch = commands.add_parser(
        "fetch",
        help="download a published version into a directory",
        description="Downloads the files of a version into a new directory and checks them against the published digests.",
        epilog="example: tokenmill fetch tokenizer@v1.2.0 --from git@example.org:team/tokenizers.git my-tokenizer",
    )
    fetch.add_argument("reference", metavar="NAME@VERSION", help="a version, or NAME@STAGE for the version of a stage")
    fetch.add_argument("directory", type=Path, metavar="DIR", help="a new directory")
    fetch.add_argument(
        "--from", dest="repository", default=".", metavar="URL", help="a git repository (default: this one)"
    )
    fetch.add_argument(
        "--verify", type=Path, metavar="PUBKEY", help="refuse files that the owner of this key did not sign"
    )
    fetch.set_defaults(run=_fetch)
    pin = commands.add_parser(
        "pin",
        help="look up the tokenizer of params.yaml again, and pin it",
        description="Looks up the tokenizer that params.yaml asks for, and writes its present digest into tokenmill.lock.",
        epilog="example: tokenmill pin",
    )
    pin.set_defaults(run=_pin)


def _publish(options: argparse.Namespace) -> Answer:
    from tokenmill.config.load_params import load_params

    path = find_params()
    root = path.parent
    if options.sign is not None:
        from tokenmill.versioning.signing import check_installed

        check_installed()
    if load_params(path).run.engine != "inline" and os.environ.get("PREFECT_API_URL"):
        from tokenmill.orchestration.address import answered_by_server, check_standing
        from tokenmill.orchestration.settings import load_settings

        load_settings()
        check_standing()
        from tokenmill.orchestration.project_flows import load_flow

        key = options.sign and str(options.sign.absolute())
        arguments = (options.reference, str(root), options.stage, options.remote, key)
        with answered_by_server():
            tags = load_flow(root, "publish", *arguments)(*arguments)
    else:
        from tokenmill.stages.publish import publish

        tags = publish(root, options.reference, options.stage, options.remote, options.sign)
    # The steps have already printed what they did.
    return Answer({"reference": options.reference, "tags": tags}, lambda: None, is_asked_for=False)


def _fetch(options: argparse.Namespace) -> Answer:
    from tokenmill.storage.atomic import write_atomic
    from tokenmill.versioning.registry import fetch_version, find_version, parse_reference

    version = find_version(options.repository, parse_reference(options.reference), Path.cwd())
    signature = fetch_version(version, options.directory, options.verify)
    beside = options.directory.with_name(
        f"{options.directory.name}.sig"
    )  # not inside, where it would be an unsigned file
    if signature is not None:
        with write_atomic(beside) as path:
            path.write_text(signature, encoding="utf-8")
    verified = f", signed by the key of {options.verify}" if options.verify else ""
    result = {
        "directory": str(options.directory.absolute()),
        **dataclasses.asdict(version),
        "signature": None if signature is None else str(beside.absolute()),
        "is_verified": options.verify is not None,
    }
    return text(result, f"{options.directory}: {version}{verified}", is_asked_for=False)


def _pin(_asked: argparse.Namespace) -> Answer:
    from tokenmill.config.load_params import load_params
    from tokenmill.config.lockfile import read_pin
    from tokenmill.versioning.import_tokenizer import pin_anew

    path = find_params()
    wanted = load_params(path).tokenizer
    if wanted is None:
        raise ParamsError(
            f"{path}: tokenizer",
            "null, so there is no tokenizer to pin.",
            "Name one first, like tokenizer: {from: ., name: tokenizer, version: v1.0.0}.",
        )
    before, now = read_pin(path.parent), pin_anew(path.parent, wanted)
    was = "" if before is None else f" (was {before.version or _pinned(before)['from']} {before.digest[:16]})"
    result = {"before": None if before is None else _pinned(before), "now": _pinned(now)}
    return text(result, f"{LOCK_FILE}: {now.version or wanted.from_} {now.digest[:16]}{was}", is_asked_for=False)


def _pinned(pin: "Pin") -> dict[str, str | None]:
    return {"from": without_passwords(pin.asked.from_), "version": pin.version, "digest": pin.digest}


def find_params() -> Path:
    """The params.yaml of this folder or the nearest one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PARAMS_FILE).is_file():
            return folder / PARAMS_FILE
        if (folder / ".git").exists():  # folders above are not part of this repository
            break
    raise ParamsError(
        here,
        f"found no {PARAMS_FILE}, here or above.",
        "Go to a project's folder, or make one with `tokenmill init DIR`.",
        code="TM105",
    )
