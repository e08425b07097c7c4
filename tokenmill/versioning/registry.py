"""The registry of published versions: finds a version, and fetches it into a directory."""

import hashlib
import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath

from tokenmill.console import say
from tokenmill.errors import ParamsError, ValidationError, VersionsError, did_you_mean
from tokenmill.storage.atomic import files_of, md5_file, sha256_directory, write_directory
from tokenmill.storage.urls import refuse_password
from tokenmill.tokenizer.folder_copy import keep_only, withhold_programs
from tokenmill.tokenizer.tokenizer import CACHE_MB_MAX, Tokenizer
from tokenmill.versioning import git
from tokenmill.versioning.dvc_repository import innermost, quiet_environment, quiet_logs
from tokenmill.versioning.foreign_remote import Store, root_of, stores_of
from tokenmill.versioning.output_files import output_files
from tokenmill.versioning.recorded import Tree, artifact_path, find
from tokenmill.versioning.remotes import remote_errors
from tokenmill.versioning.signing import verify_directory
from tokenmill_reader.manifest import CARD_FILE, MANIFEST_FILE, read_manifest

_REFERENCE = re.compile(r"(?P<name>[a-z0-9][a-z0-9/-]*[a-z0-9])[@#](?P<version>[A-Za-z0-9][A-Za-z0-9.-]*)")
FILES = "files: sha256 "  # begins the line of a tag message with the digest of the version's files
SIGNATURE = "signature: "

_N_NAMES_SHOWN = 5

_VERSION = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Reference:
    """An artifact by name and version. The version is a number such as v1.2.0, or a stage such as prod, which means the version
    that was last assigned to it."""

    name: str
    version: str

    @property
    def is_stage(self) -> bool:
        """Whether `version` names a stage."""
        return not _VERSION.fullmatch(self.version)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Version:
    """A version of an artifact in a repository, with its commit."""

    repository: str
    name: str
    version: str
    commit: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def parse_reference(text: str) -> Reference:
    """NAME@VERSION or NAME@STAGE. Raises ParamsError.

    >>> parse_reference("tokenizer@v1.2.0")
    Reference(name='tokenizer', version='v1.2.0')
    """
    match = _REFERENCE.fullmatch(text)
    if not match:
        raise ParamsError(
            f"{text!r}", "expected NAME@VERSION, like tokenizer@v1.2.0, or NAME@STAGE, like tokenizer@prod."
        )
    return Reference(match["name"], match["version"])


def is_reference(text: str) -> bool:
    """Whether the text has the form of a reference. A path does not have it."""
    return _REFERENCE.fullmatch(text) is not None


def order_of(version: str) -> tuple[int, int, int]:
    """A version as comparable numbers. Raises ParamsError unless it has the form v1.2.3.

    >>> order_of("v1.10.0") > order_of("v1.9.3")
    True
    """
    found = _VERSION.fullmatch(version)
    if not found:
        raise ParamsError("version", f"found {version!r}; expected three numbers, like v1.2.0.")
    major, minor, patch = (int(number) for number in found.groups())
    return major, minor, patch


def versions_in(tags: dict[str, str], name: str) -> dict[str, str]:
    """The commit of each version of an artifact, lowest version first."""
    found = {tag.removeprefix(f"{name}@"): commit for tag, commit in tags.items() if tag.startswith(f"{name}@")}
    withdrawn = {tag.split("!")[0] for tag in found if "!" in tag}  # GTO's tag for a deregistered version
    kept = [(v, commit) for v, commit in found.items() if _VERSION.fullmatch(v) and v not in withdrawn]
    return dict(sorted(kept, key=lambda one: order_of(one[0])))


def find_version(repository: str, reference: Reference, folder: Path) -> Version:
    """Finds the version that a reference names. `repository`: a URL, or a path relative to `folder`. Raises VersionsError, and
    ParamsError for a URL with a password."""
    refuse_password(f"the repository of {reference}", repository)
    repository = _absolute(repository, folder)
    tags = git.tags_of(folder, repository)
    known = versions_in(tags, reference.name)
    if not reference.is_stage and reference.version in known:
        return Version(repository, reference.name, reference.version, known[reference.version])
    if reference.is_stage and (commit := assigned_commit(tags, reference)):
        for version in reversed(known):
            if known[version] == commit:
                return Version(repository, reference.name, version, commit)
    names = {tag.split("@")[0] for tag in tags if "@" in tag}
    hint = "" if reference.name in names else did_you_mean(reference.name, names)
    stages = sorted({tag.split("#")[1] for tag in tags if tag.startswith(f"{reference.name}#")})
    # Only stages with a version: without unassigned ones and GTO's tags of unassignment, such as prod!.
    stages = [stage for stage in stages if assigned_commit(tags, Reference(reference.name, stage))]
    raise VersionsError(
        repository,
        f"there is no {reference}. Versions of {reference.name}: {', '.join(known) or 'none'}; stages: "
        f"{', '.join(stages) or 'none'}.",
        f"`git fetch --tags` brings newer ones into a clone.{hint}",
        code="TM403",
    )


def fetch_version(version: Version, directory: Path, public_key: Path | None = None) -> str | None:
    """Fetches the files of a version by their md5 into `directory`, which appears atomically. Gives the signature, if any.

    The files are checked against the digests in the version's commit and tag. With `public_key` they are also checked against
    the signature, and an unsigned version is refused. Without it, programs and other files that are no part of a tokenizer or
    a dataset are not kept. Raises VersionsError, also if `directory` exists and is not empty: nothing is overwritten.
    """
    check_free(directory)
    with write_directory(directory) as partial:
        tag_lines, md5 = _fetch_files(version, partial)
        expected = {"md5, by its commit": md5, "sha256, by its tag": tag_lines.get(FILES)}
        digests = {"md5, by its commit": directory_md5(partial), "sha256, by its tag": sha256_directory(partial)}
        for name, digest in expected.items():
            if digest is not None and digest != digests[name]:
                raise VersionsError(
                    f"{version} from {version.repository}",
                    f"the files are not those that were published: {name}: "
                    f"expected {digest}, found {digests[name]}. A remote, a cache or the tag was changed.",
                    "Do not use it.",
                    code="TM405",
                )
        if public_key is not None:
            if SIGNATURE not in tag_lines:
                raise VersionsError(
                    f"{version} from {version.repository}",
                    "is not signed.",
                    "Do not use it, or omit --verify.",
                    code="TM405",
                )
            _verify(partial, version, tag_lines[SIGNATURE], public_key)
        else:
            _keep_parts(partial, f"{version} from {version.repository}")
    return tag_lines.get(SIGNATURE)


def _keep_parts(folder: Path, place: str) -> None:
    """Deletes programs, and whatever else is no part of a tokenizer or of a dataset, from a folder that was fetched."""
    if (folder / "tokenizer.json").is_file():
        withhold_programs(folder, place)
    elif (folder / MANIFEST_FILE).is_file():
        with suppress(ValidationError):  # such as for one of a newer tokenmill
            names = {MANIFEST_FILE, CARD_FILE, *(file.name for file in read_manifest(folder).dataset_files)}
            keep_only(folder, place, lambda name: name.as_posix() in names, "the dataset")


def _verify(directory: Path, version: Version, signature: str, public_key: Path) -> None:
    """Raises VersionsError unless the owner of the key signed these files as this version."""
    place = f"{version} from {version.repository}"
    signed = verify_directory(directory, signature, public_key, place)
    if "@" not in signed:
        say(
            f"warning: {place}: an earlier tokenmill signed it, so the signature is of these files but names no version: it may be "
            "that of another version with the same files. Publish a new version with --sign to have the version signed, too."
        )
    elif signed != signed_subject(str(version), version.commit):
        raise VersionsError(
            place,
            f"the signature in its tag is that of {signed}; expected {signed_subject(str(version), version.commit)}.",
            "Somebody put the signature of one version under the tag of another. Do not use these files.",
            code="TM405",
        )


def signed_subject(tag: str, commit: str) -> str:
    """The subject of a version's signature: artifact and version, as in the tag, and commit. A slash in the artifact's name becomes
    a colon, because the library uses the subject as a directory name."""
    return f"{tag} {commit}".replace("/", ":")


def check_free(directory: Path) -> None:
    """Raises VersionsError if the directory to fetch into is not empty, or is a file."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise VersionsError(directory, "is a file.", "Name a directory that is not there yet.", code="TM406")
    if names := sorted(path.name for path in directory.iterdir()):
        more = f" and {len(names) - _N_NAMES_SHOWN:,} more" if len(names) > _N_NAMES_SHOWN else ""
        raise VersionsError(
            directory,
            f"is not empty: it holds {', '.join(names[:_N_NAMES_SHOWN])}{more}. Nothing was fetched, as nothing is "
            "overwritten.",
            f"Name another directory, or delete this one first: `rm -r {shlex.quote(str(directory))}`.",
            code="TM406",
        )


def fetch_tokenizer(version: Version, directory: Path, public_key: Path | None = None) -> None:
    """Fetches a version as `fetch_version` does. Raises VersionsError if it is not a tokenizer."""
    fetch_version(version, directory, public_key)
    if not (directory / "tokenizer.json").is_file():
        raise VersionsError(f"{version} from {version.repository} is not a tokenizer: it has no tokenizer.json.")


def load_version(
    reference: str, repository: str, public_key: Path | None = None, cache_mb_max: int = CACHE_MB_MAX
) -> Tokenizer:
    """A published tokenizer. `reference`: such as tokenizer@v1.2.0. `repository`: the URL or path of its git repository.
    `public_key`: the key that must have signed it. Raises VersionsError, ParamsError, TokenizerError."""
    version = find_version(repository, parse_reference(reference), Path.cwd())
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        fetch_tokenizer(version, Path(folder) / "tokenizer", public_key)
        return Tokenizer.load(Path(folder) / "tokenizer", cache_mb_max=cache_mb_max)


def read_at(root: Path, revision: str, path: str) -> bytes | None:
    """The content of a file that DVC tracks, at a revision of the project; None if the revision lacks it."""
    commit, place = git.commit_of(root, revision), f"{path} at {revision}"
    if commit is None:
        return None
    with _told(place), tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        target = Path(folder) / "file"
        tree = Tree(root, commit, git.prefix_of(root))
        found = _fetch_one(tree, path, stores_of(str(root), tree, place), target)
        return target.read_bytes() if found else None


def fetch_files(version: Version, names: Sequence[str], directory: Path) -> None:
    """Fetches files of a version, up to the first that it lacks. `names`: relative to the artifact, such as ../report/report.json.
    `directory`: what the artifact itself would be fetched into. Each file is checked against the md5 in the version's commit.
    Raises VersionsError."""
    place = f"{version} from {version.repository}"
    with _told(place), tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        _message, tree = _tag_of(version, Path(folder))
        path, stores = artifact_path(tree, version.name), stores_of(version.repository, tree, place)
        for name in names:
            if not _fetch_one(tree, normpath(f"{path}/{name}"), stores, Path(normpath(directory / name))):
                return


def _fetch_one(tree: Tree, path: str, stores: list[Store], target: Path) -> bool:
    """Fetches a file that DVC tracks to a new path. False if the commit lacks it."""
    record = find(tree, path)
    output = None if record is None else output_files(record, stores)
    file = next((one for one in output.files if not one.name), None) if output else None
    if output is None or file is None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    output.fetch_one(file, target)
    return True


def directory_md5(directory: Path) -> str:
    """DVC's hash of a directory: the md5 over the names and md5 of its files, with the suffix .dir."""
    entries = [{"md5": md5_file(path), "relpath": name} for name, path in files_of(directory).items()]
    listing = json.dumps(entries, sort_keys=True).encode()
    return hashlib.md5(listing, usedforsecurity=False).hexdigest() + ".dir"


def _fetch_files(version: Version, directory: Path) -> tuple[dict[str, str], str | None]:
    """Fetches the files of a version. Gives what its tag says, see `_lines_of`, and the md5 of the folder by its commit, None if
    that has only one of a folder above."""
    place = f"{version} from {version.repository}"
    with _told(place), tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        message, tree = _tag_of(version, Path(folder))
        path = artifact_path(tree, version.name)
        record = find(tree, path)
        if record is None:
            raise VersionsError(path, "is no output that dvc.lock or a .dvc file records.", "Take another version.")
        output = output_files(record, stores_of(version.repository, tree, place))
        if not all(file.name for file in output.files):
            raise VersionsError(path, "is a file; expected the folder of an artifact.", "Take another version.")
        output.fetch(directory)
    return _lines_of(message), None if record.below else record.md5


def _tag_of(version: Version, folder: Path) -> tuple[str, Tree]:
    """The message of a version's tag, and the files of its commit, which are fetched into an empty folder."""
    message = git.tag_message(folder, version.repository, str(version))
    root = root_of(version.repository)
    return message, Tree(folder, version.commit, "" if root is None else git.prefix_of(root))


def _lines_of(message: str) -> dict[str, str]:
    """The digest of the files and the signature in the message of a version's tag, as far as it has them."""
    pairs = [
        (key, line.removeprefix(key))
        for line in message.splitlines()
        for key in (FILES, SIGNATURE)
        if line.startswith(key)
    ]
    return dict(pairs)


def _absolute(repository: str, folder: Path) -> str:
    local = folder / Path(repository).expanduser()
    return str(local.resolve()) if local.exists() else repository


def assigned_commit(tags: dict[str, str], reference: Reference) -> str | None:
    """The commit last assigned to a stage and not unassigned since. The tags are GTO's: NAME#STAGE#1, NAME#STAGE!#2."""
    from gto.constants import ACTION, COUNTER, NAME, STAGE, Action
    from gto.tag import parse_name

    events: list[tuple[int, bool, str]] = []
    for tag, commit in tags.items():
        parsed = parse_name(tag, raise_on_fail=False)
        if (parsed.get(NAME), parsed.get(STAGE)) == (reference.name, reference.version) and COUNTER in parsed:
            events.append((parsed[COUNTER], parsed[ACTION] == Action.UNASSIGN, commit))
    assigned: list[str] = []
    for _number, is_unassigned, commit in sorted(events):
        assigned = [other for other in assigned if other != commit] + ([] if is_unassigned else [commit])
    return assigned[-1] if assigned else None


@contextmanager
def _told(place: str) -> Iterator[None]:
    """DVC's and its remotes' errors become VersionsError that begin with `place`, as do those of what is recorded there."""
    quiet_environment()
    from dvc.exceptions import DvcException
    from voluptuous import Invalid

    quiet_logs()
    try:
        yield
    except VersionsError as error:
        if error.where.startswith(place) or not error.where:
            raise
        raise VersionsError(*error.inside(place), code=error.code) from error
    except (DvcException, Invalid, *remote_errors()) as error:
        raise VersionsError(
            place, f"{innermost(error).rstrip('.')}.", "Check that its DVC remote can be reached from here."
        ) from error
