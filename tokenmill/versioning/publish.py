"""Giving a version to what a build made: what must hold before, the data's way to DVC's remote, and GTO's tag."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.artifacts.golden import check_golden
from tokenmill.errors import ParamsError, VersionsError, did_you_mean
from tokenmill.layout import REPORT_FILE, STAGES, TOKENIZER_DIRECTORY
from tokenmill.storage.atomic import md5_file, sha256_directory
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_repository, dvc_stage, git
from tokenmill.versioning.dvc_files import Known
from tokenmill.versioning.registry import (
    FILES,
    SIGNATURE,
    Reference,
    assigned_commit,
    directory_md5,
    order_of,
    versions_in,
)
from tokenmill.versioning.remotes import remote_errors
from tokenmill.versioning.signing import sign_directory


@dataclass(frozen=True)
class Publication:
    """A version that may be published. `path`: the artifact's directory; `assign`: the stage it is to get, if any."""

    root: Path
    name: str
    version: str
    path: Path
    commit: str
    git_remote: str | None
    assign: str | None
    is_tagged: bool

    @property
    def tag(self) -> str:
        """The git tag of the version."""
        return f"{self.name}@{self.version}"


def ready(root: Path, reference: Reference, stage: str | None) -> Publication:
    """The publication, when all that must hold does: nothing to commit, a build that is up to date and was validated, golden
    vectors that hold, a version that is new and rises.

    A version that an earlier attempt left half published, on this very commit, goes on. Raises VersionsError, ParamsError.
    """
    order_of(reference.version)
    if stage is not None and not stage.replace("-", "").isalnum():
        raise ParamsError(f"--stage: found {stage!r}; allowed: letters, digits and -, like prod.")
    path = _artifact(root, reference.name)
    _refuse_uncommitted(root)
    commit = git.commit_of(root, "HEAD")
    assert commit is not None
    remote = git.remote_of(root)
    is_tagged = _tagged(root, remote, reference, commit, stage)
    known: Known = {}
    for name in STAGES:
        with dvc_stage.opened(root, name, known) as opened:
            if (state := opened.state()) != "current":
                raise VersionsError(
                    f"stage {name} is {state}. Run `tokenmill build`, commit dvc.lock, and publish again."
                )
    _refuse_unrecorded_documents(root)
    tokenizer = Tokenizer.load(root / TOKENIZER_DIRECTORY)
    check_golden(root / TOKENIZER_DIRECTORY, tokenizer)
    _refuse_unvalidated(root, tokenizer.digest)
    return Publication(root, reference.name, reference.version, path, commit, remote, stage, is_tagged)


def _refuse_unrecorded_documents(root: Path) -> None:
    """Raises VersionsError if files that a .dvc file tracks have changed since: the push would not bring them."""
    with dvc_repository.repository(root) as repo, repo.lock:
        for stage in repo.index.stages:
            changed = [str(out) for out in stage.outs if stage.is_data_source and "modified" in out.status().values()]
            if changed:
                record = f"dvc commit -f {stage.relpath}" if stage.is_import else f"dvc add {changed[0]}"
                raise VersionsError(
                    f"{stage.relpath}: {changed[0]} has changed since DVC recorded it, so DVC's remote would not get these "
                    f"documents. Run `{record}`, commit {stage.relpath}, and publish again.",
                    code="TM404",
                )


def push(publication: Publication, dvc_remote: str | None) -> int:
    """Brings all outputs of the build to DVC's remote; what comes back is how many files it did not have yet.

    What the artifact is made of is read first, and afterwards looked for on the other side, and pushed again if it is not
    there: DVC takes a file of its cache for what its name says, even one whose bytes were changed. Raises VersionsError.
    """
    from dvc_objects.errors import ObjectFormatError

    with dvc_repository.repository(publication.root) as repo:
        objects = _objects(repo, publication)
        try:
            store = repo.cloud.get_remote_odb(dvc_remote, "push")
            n_pushed: int = repo.push(remote=dvc_remote)
            missing = sorted(objects - set(store.oids_exist(list(objects))))
            if missing:  # DVC asks for a directory's own object only, and takes its files to be there
                cache = repo.cache.local
                store.add([cache.oid_to_path(name) for name in missing], cache.fs, missing)
                n_pushed += len(missing)
                missing = sorted(objects - set(store.oids_exist(list(objects))))
        except ObjectFormatError as error:
            name = str(error).split()[1]
            raise VersionsError(
                f"DVC's remote: {error}: {store.oid_to_path(name)}. No version was registered; delete that file, and publish "
                "again."
            ) from error
        except remote_errors() as error:
            raise VersionsError(
                f"DVC's remote: {error}. No version was registered; publish again when the remote can be reached."
            ) from error
        if missing:
            raise VersionsError(
                f"DVC's remote lacks {len(missing)} of {len(objects)} files after the push, for example "
                f"{missing[0]}. No version was registered; publish again."
            )
    return n_pushed


def register(publication: Publication, private_key: Path | None) -> list[str]:
    """Sets the version's tag, and its stage's, by GTO, and brings them to the git remote, where there is one; the tags.

    The version's tag says the sha256 over its files, and holds their signature when there is a key. Tags that an attempt which
    was killed has set here go on their way. One that the remote does not take is removed again. Raises VersionsError,
    ParamsError.
    """
    from gto.api import assign
    from gto.api import register as gto_register
    from gto.exceptions import GTOException
    from scmrepo.exceptions import SCMError

    root = publication.root
    message = [f"{publication.name} {publication.version}", "", FILES + sha256_directory(publication.path)]
    if private_key is not None:
        message.append(SIGNATURE + sign_directory(publication.path, private_key))
    before = git.tags_of(root, ".")
    stage = Reference(publication.name, publication.assign or "")
    try:
        if not publication.is_tagged:
            gto_register(
                str(root), publication.name, publication.commit, version=publication.version, message="\n".join(message)
            )
        if publication.assign and assigned_commit(before, stage) != publication.commit:
            assign(str(root), publication.name, publication.assign, version=publication.version)
    except (GTOException, SCMError, OSError) as error:
        raise VersionsError(f"GTO: {publication.tag}: {error}") from error
    here = git.tags_of(root, ".")
    set_now = sorted(here.keys() - before.keys())
    if publication.git_remote is None:
        return set_now
    unpushed = set_now
    try:
        there = git.tags_of(root, publication.git_remote)
        of_commit = [tag for tag in here if tag == publication.tag or tag.startswith(f"{stage.name}#{stage.version}#")]
        unpushed = sorted(tag for tag in of_commit if here[tag] == publication.commit != there.get(tag))
        if unpushed:
            names = [f"refs/tags/{tag}" for tag in unpushed]
            git.git(root, "push", "--quiet", "--atomic", publication.git_remote, *names)
    except VersionsError as error:
        for tag in unpushed:
            git.git(root, "tag", "--delete", tag)
        raise VersionsError(
            f"{error} The data is in DVC's remote, no tag was set; publish again when git can push."
        ) from None
    return unpushed


def _artifact(root: Path, name: str) -> Path:
    with dvc_repository.repository(root) as repo:
        artifacts: dict[str, Any] = repo.artifacts.read().get("dvc.yaml", {})
    if name not in artifacts:
        raise ParamsError(
            f"dvc.yaml: artifacts: there is no {name!r}; it has: {', '.join(artifacts) or 'none'}."
            f"{did_you_mean(name, artifacts)}",
            code="TM109",
        )
    return root / str(artifacts[name].path)


def _refuse_uncommitted(root: Path) -> None:
    top = Path(git.git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
    if top.resolve() != root.resolve():
        raise VersionsError(
            f"{root}: a project is published from the root of its git repository, which is {top}.", code="TM404"
        )
    if git.commit_of(root, "HEAD") is None:
        raise VersionsError(f"{root}: git has no commit yet. Commit the project first.", code="TM404")
    if changed := git.changed_files(root):
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise VersionsError(
            f"{root}: not committed: {', '.join(changed[:5])}{more}. A version is a commit: commit them (a file that "
            "does not belong to the project goes into .gitignore), and publish again.",
            code="TM404",
        )


def _tagged(root: Path, remote: str | None, reference: Reference, commit: str, stage: str | None) -> bool:
    """Whether the version's tag is set already, by an attempt that did not come to its end; refuses one that did."""
    here = git.tags_of(root, ".")
    there = here if remote is None else git.tags_of(root, remote)
    tag = str(reference)
    had_stage = {of for one, of in there.items() if one.startswith(f"{reference.name}#{stage}#")}
    is_to_assign = stage is not None and commit not in had_stage
    if here.get(tag) == commit and there.get(tag, commit) == commit and (tag not in there or is_to_assign):
        return True
    known = versions_in(here, reference.name) | versions_in(there, reference.name)
    if tag in here or tag in there:
        where = there.get(tag, here.get(tag, ""))
        has_stage = stage is not None and assigned_commit(there, Reference(reference.name, stage)) == where
        with_stage = f" with the stage {stage}" if has_stage else ""
        if where == commit:
            said = f"is published already{with_stage}, and is of the present commit: there is nothing to publish."
        else:
            said = f"exists{with_stage}, of commit {where[:12]}; nothing is overwritten. Take a higher version."
        if stage is not None and not has_stage:
            again = " --force" if where in had_stage else ""  # GTO's word for a stage that the version had before
            assign = f"gto assign {reference.name} --version {reference.version} --stage {stage}{again}"
            said += f" To give this one the stage {stage}: `{assign}`, and push the tag."
        raise VersionsError(f"{tag} {said}", code="TM404")
    highest = max(known, key=order_of, default=None)
    if highest is not None and order_of(reference.version) < order_of(highest):
        raise VersionsError(
            f"{tag}: versions rise, and {reference.name}@{highest} exists. Take a higher version.", code="TM404"
        )
    of_commit = [version for version, of in known.items() if of == commit]
    if of_commit:
        raise VersionsError(
            f"{tag}: this commit is {reference.name}@{of_commit[0]} already; a commit has one version.", code="TM404"
        )
    return False


def _refuse_unvalidated(root: Path, digest: str) -> None:
    """The report of `validate` is written only when every check held; it must be about this tokenizer."""
    path = root / REPORT_FILE
    try:
        validated = json.loads(path.read_text(encoding="utf-8")).get("tokenizer_digest")
    except (OSError, ValueError) as error:
        raise VersionsError(f"{path}: cannot be read: {error}. Run `tokenmill build`.", code="TM404") from None
    if validated != digest:
        raise VersionsError(
            f"{path}: about the tokenizer {validated}, not about {digest}. Run `tokenmill build --force`.",
            code="TM404",
        )


def _objects(repo: Any, publication: Publication) -> set[str]:
    """The names in DVC's cache of all that the artifact is made of, after their bytes were held against their names."""
    [out] = [one for one in repo.index.outs if Path(one.fs_path) == publication.path]
    tree = out.get_obj()
    if tree is None or (publication.path.is_dir() and directory_md5(publication.path) != tree.hash_info.value):
        raise VersionsError(
            f"{publication.path}: its files are not those that dvc.lock names, although DVC takes them for it. "
            "Run `tokenmill build --force`.",
            code="TM404",
        )
    names = {tree.hash_info.value, *(info.value for _key, _meta, info in tree)}
    for name in names:
        path = Path(out.cache.oid_to_path(name))
        if not path.is_file() or md5_file(path) != name.removesuffix(".dir"):
            raise VersionsError(
                f"{path}: DVC's cache holds other bytes than its name says. Delete that file, run `dvc commit`, publish again."
            )
    return names
