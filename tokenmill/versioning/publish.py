"""Publishes a version of a build: checks the build, pushes its data to the DVC remote, and sets the GTO tags."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.artifacts.golden import check_golden
from tokenmill.errors import ParamsError, TokenmillError, VersionsError, did_you_mean, noted, raise_all
from tokenmill.layout import RAW_DIRECTORY, REPORT_FILE, STAGES, TOKENIZER_DIRECTORY
from tokenmill.storage.atomic import md5_file, sha256_directory
from tokenmill.storage.certificates import check_certificates
from tokenmill.storage.json_files import read_json
from tokenmill.storage.urls import refuse_password
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_repository, dvc_stage, dvc_view, git
from tokenmill.versioning.dvc_files import Known
from tokenmill.versioning.registry import (
    FILES,
    SIGNATURE,
    Reference,
    assigned_commit,
    directory_md5,
    order_of,
    signed_subject,
    versions_in,
)
from tokenmill.versioning.remotes import remote_errors
from tokenmill.versioning.signing import sign_directory

_KINDS = {
    RAW_DIRECTORY: "documents",
    "count": "counts",
    "train-vocab": "tokenizer",
    "encode": "dataset",
    "validate": "report",
}
"""What is in data/raw, and what each stage makes, in a word."""


@dataclass(frozen=True)
class Publication:
    """A version that may be published. `path`: the artifact's directory. `assign`: the GTO stage to assign, or None. `is_tagged`:
    whether the version has its tag already: it is published, or an attempt was interrupted."""

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
    """The publication, if nothing is uncommitted, the build is up to date and validated, the golden vectors match, and the version
    is new and higher than all others.

    A version of the same commit is no mistake: what an interrupted attempt left is completed, and if it is published whole, there
    is nothing to do. Raises VersionsError, ParamsError, TokenizerError.
    """
    check_certificates()  # the library by which GTO sets tags is not imported beside wrong ones
    order_of(reference.version)
    if stage is not None and not stage.replace("-", "").isalnum():
        raise ParamsError("--stage", f"found {stage!r}; allowed: letters, digits and -, like prod.")
    path = _artifact(root, reference.name)
    commit = _commit(root)
    remote = git.remote_of(root)
    wrong: list[TokenmillError] = []
    is_tagged = False
    with noted(wrong):
        _refuse_uncommitted(root)
    with noted(wrong):
        git.identity(root)
    with noted(wrong):
        is_tagged = _tagged(root, remote, reference, commit, stage)
    with noted(wrong):
        _refuse_unready(root)
    if wrong and is_tagged:
        wrong.append(
            VersionsError(
                f"{reference} is of the commit {commit[:12]} already. A change needs a higher version.", code="TM404"
            )
        )
    raise_all(wrong, VersionsError)
    return Publication(root, reference.name, reference.version, path, commit, remote, stage, is_tagged)


def check_build(root: Path, may_change: str) -> None:
    """Raises VersionsError or TokenizerError unless all but the file `may_change` is committed, the build is up to date and
    validated, and the golden vectors match."""
    _commit(root)
    wrong: list[TokenmillError] = []
    with noted(wrong):
        _refuse_uncommitted(root, may_change)
    with noted(wrong):
        _refuse_unready(root)
    raise_all(wrong, VersionsError)


def _refuse_unready(root: Path) -> None:
    known: Known = {}
    for name in STAGES:
        with dvc_stage.opened(root, name, known) as opened:
            if (state := opened.state()) != "current":
                raise VersionsError(
                    "",
                    f"stage {name} is {state}.",
                    "Run `tokenmill build`, commit dvc.lock, and run this command again.",
                )
    _refuse_unrecorded_documents(root)
    tokenizer = Tokenizer.load(root / TOKENIZER_DIRECTORY)
    check_golden(root / TOKENIZER_DIRECTORY, tokenizer)
    _refuse_unvalidated(root, tokenizer.digest)


def _refuse_unrecorded_documents(root: Path) -> None:
    """Raises VersionsError if files that a .dvc file tracks have changed, because DVC would not push the changes."""
    with dvc_repository.repository(root) as repo, repo.lock:
        for stage in repo.index.stages:
            changed = [str(out) for out in stage.outs if stage.is_data_source and "modified" in out.status().values()]
            if changed:
                record = f"dvc commit -f {stage.relpath}" if stage.is_import else f"dvc add {changed[0]}"
                raise VersionsError(
                    stage.relpath,
                    f"{changed[0]} has changed since DVC recorded it, so DVC's remote would not get these documents.",
                    f"Run `{record}`, commit {stage.relpath}, and run this command again.",
                    code="TM404",
                )


def push(publication: Publication, dvc_remote: str | None) -> dict[str, int]:
    """Pushes all outputs of the build to the DVC remote. Gives the number of files of each kind that were new there.

    The files of the artifact are hashed before the push, because DVC trusts the names in its cache even if bytes have changed.
    After the push, files that the remote lacks are pushed again. Raises VersionsError, and ParamsError for a remote's URL with a
    password.
    """
    from dvc_objects.errors import ObjectFormatError

    with dvc_repository.repository(publication.root) as repo:
        for name, remote in repo.config["remote"].items():
            refuse_password(f"{publication.root / '.dvc/config'}: remote {name}", str(remote.get("url")))
        objects = _objects(repo, publication)
        try:
            store = repo.cloud.get_remote_odb(dvc_remote, "push")
            _remove_empty_objects(repo, store)
            kinds = _kinds(repo)
            unknown = kinds.keys() - set(store.oids_exist(list(kinds)))
            repo.push(remote=dvc_remote)
            missing = sorted(objects - set(store.oids_exist(list(objects))))
            if missing:  # DVC checks only the directory's own object, and assumes that its files exist
                cache = repo.cache.local
                store.add([cache.oid_to_path(name) for name in missing], cache.fs, missing)
                missing = sorted(objects - set(store.oids_exist(list(objects))))
            pushed = Counter(kinds[name] for name in store.oids_exist(list(unknown)))
        except ObjectFormatError as error:
            name = str(error).split()[1]
            raise VersionsError(
                "DVC's remote",
                f"{error}: {store.oid_to_path(name)}. No version was registered.",
                "Delete that file, and publish again.",
            ) from error
        except remote_errors() as error:
            raise VersionsError(
                "DVC's remote",
                f"{error}. No version was registered.",
                "Publish again when the remote can be reached.",
            ) from error
        if missing:
            raise VersionsError(
                "",
                f"DVC's remote lacks {len(missing)} of {len(objects)} files after the push, for example "
                f"{missing[0]}. No version was registered.",
                "Publish again.",
            )
    return dict(sorted(pushed.items()))


def _kinds(repo: Any) -> dict[str, str]:
    """The kind of each file that DVC keeps, by its name in DVC's cache: a word for what a build makes, else the path or step. Lists
    of the files of a folder are left out."""
    kinds: dict[str, str] = {}
    for out in repo.index.outs:
        tree = out.get_obj() if out.use_cache else None
        if tree is not None:
            origin = str(out) if out.stage.is_data_source else out.stage.name
            names = [info.value for _key, _meta, info in tree] if out.hash_info.isdir else [out.hash_info.value]
            kinds |= dict.fromkeys(names, _KINDS.get(origin, origin))
    return kinds


def _remove_empty_objects(repo: Any, store: Any) -> None:
    """Deletes empty lists of outputs' files from a remote that is a folder. DVC creates an object empty before it clones or copies
    the bytes; where it was killed there, it calls a list corrupted in every later push (other files it writes again)."""
    lists = {out.hash_info.value for out in repo.index.outs if out.hash_info and out.hash_info.isdir}
    for name in lists if store.fs.protocol == "local" else ():
        path = Path(store.oid_to_path(name))
        if path.is_file() and not path.stat().st_size:
            path.unlink()


def register(publication: Publication, private_key: Path | None) -> list[str]:
    """Sets the GTO tags of the version and of its stage, and pushes them to the git remote if there is one. Gives the tags.

    The version's tag has the sha256 over its files and, with a key, their signature. Tags that a killed attempt has set here
    are pushed too. If the push fails, the unpushed tags are deleted. Raises VersionsError, ParamsError.
    """
    from gto.api import assign
    from gto.api import register as gto_register
    from gto.exceptions import GTOException
    from scmrepo.exceptions import SCMError

    root = publication.root
    message = [f"{publication.name} {publication.version}", "", FILES + sha256_directory(publication.path)]
    if private_key is not None:
        subject = signed_subject(publication.tag, publication.commit)
        message.append(SIGNATURE + sign_directory(publication.path, private_key, subject))
    before = git.tags_of(root, ".")
    if private_key is not None and publication.is_tagged:
        _refuse_unsigned(publication, before)
    stage = Reference(publication.name, publication.assign or "")
    try:
        if not publication.is_tagged:
            gto_register(
                str(root), publication.name, publication.commit, version=publication.version, message="\n".join(message)
            )
        if publication.assign and assigned_commit(before, stage) != publication.commit:
            assign(str(root), publication.name, publication.assign, version=publication.version)
    except (GTOException, SCMError, OSError) as error:
        raise VersionsError(f"GTO: {publication.tag}", f"{error}") from error
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
            "", f"{error} The data is in the DVC remote, but no tag was set.", "Publish again when git can push."
        ) from None
    return unpushed


def _refuse_unsigned(publication: Publication, tags: dict[str, str]) -> None:
    """Raises VersionsError if the version's tag has no signature. `tags`: those of this repository."""
    root, name = publication.root, f"refs/tags/{publication.tag}"
    if publication.git_remote is not None and publication.tag not in tags:
        git.git(root, "fetch", "--quiet", "--no-tags", publication.git_remote, f"{name}:{name}")
    if f"\n{SIGNATURE}" not in git.git(root, "cat-file", "tag", name):
        raise VersionsError(
            publication.tag,
            "was tagged without a signature, and a tag is not changed.",
            "Publish a higher version with --sign.",
            code="TM404",
        )


def _artifact(root: Path, name: str) -> Path:
    with dvc_repository.repository(root) as repo:
        artifacts: dict[str, Any] = repo.artifacts.read().get("dvc.yaml", {})
    if name not in artifacts:
        raise ParamsError(
            "dvc.yaml: artifacts",
            f"there is no {name!r}; the artifacts are: {', '.join(artifacts) or 'none'}.",
            did_you_mean(name, artifacts),
            code="TM109",
        )
    return root / str(artifacts[name].path)


def _commit(root: Path) -> str:
    """The commit of the project. Raises VersionsError unless the project is the whole of a repository that has one."""
    top = Path(git.git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
    if top.resolve() != root.resolve():
        raise VersionsError(
            root, f"a project is published from the root of its git repository, which is {top}.", code="TM404"
        )
    if (commit := git.commit_of(root, "HEAD")) is None:
        raise VersionsError(root, "git has no commit yet.", "Commit the project first.", code="TM404")
    return commit


def _refuse_uncommitted(root: Path, may_change: str = "") -> None:
    changed = [name for name in git.changed_files(root) if name != may_change]
    if changed := [name for name in changed if not dvc_view.has_arrived(root, root / name)]:  # during a refresh
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise VersionsError(
            root,
            f"not committed: {', '.join(changed[:5])}{more}. A version is a commit: commit them (a file that does "
            "not belong to the project goes into .gitignore), and run this command again.",
            code="TM404",
        )


def _tagged(root: Path, remote: str | None, reference: Reference, commit: str, stage: str | None) -> bool:
    """Whether the version has its tag already, of this commit, with nothing against the stage. Raises VersionsError if the version
    is of another commit or not higher than the others, or if the commit has a version."""
    here = git.tags_of(root, ".")
    there = here if remote is None else git.tags_of(root, remote)
    tag = str(reference)
    where = there.get(tag, here.get(tag))
    had_stage = {of for tag_there, of in there.items() if tag_there.startswith(f"{reference.name}#{stage}#")}
    has_stage = stage is not None and assigned_commit(there, Reference(reference.name, stage)) == where
    is_to_assign = stage is not None and commit not in had_stage and tag in here
    is_of_commit = {tags[tag] for tags in (here, there) if tag in tags} == {commit}
    if is_of_commit and (tag not in there or stage is None or has_stage or is_to_assign):
        return True
    known = versions_in(here, reference.name) | versions_in(there, reference.name)
    if where is not None:
        if where == commit:
            what = "is published already, and is of the present commit."
        else:
            with_stage = f" with the stage {stage}" if has_stage else ""
            what = f"exists{with_stage}, of commit {where[:12]}; nothing is overwritten. Take a higher version."
        if stage is not None and not has_stage:
            again = " --force" if where in had_stage else ""  # GTO's action for a stage that the version had before
            assign = f"gto assign {reference.name} --version {reference.version} --stage {stage}{again}"
            what += f" To give this one the stage {stage}: `{assign}`, and push the tag."
        raise VersionsError(f"{tag} {what}", code="TM404")
    highest = max(known, key=order_of, default=None)
    if highest is not None and order_of(reference.version) < order_of(highest):
        raise VersionsError(
            tag,
            f"{reference.name}@{highest} exists, and a new version must be higher.",
            "Choose a higher version.",
            code="TM404",
        )
    of_commit = [version for version, of in known.items() if of == commit]
    if of_commit:
        raise VersionsError(
            tag,
            f"this commit already has the version {reference.name}@{of_commit[0]}; a commit has only one.",
            code="TM404",
        )
    return False


def _refuse_unvalidated(root: Path, digest: str) -> None:
    """Raises VersionsError unless there is a report of `validate` about this tokenizer. A failed check leaves no report."""
    path = root / REPORT_FILE
    try:
        validated = read_json(path).get("tokenizer_digest")
    except (OSError, ValueError) as error:
        raise VersionsError(path, f"cannot be read: {error}.", "Run `tokenmill build`.", code="TM404") from None
    if validated != digest:
        raise VersionsError(
            path,
            f"expected a report about the tokenizer {digest}; found one about {validated}.",
            "Run `tokenmill build --force`.",
            code="TM404",
        )


def _objects(repo: Any, publication: Publication) -> set[str]:
    """The names of the artifact's files in DVC's cache. Raises VersionsError if a file's bytes do not match its name."""
    [out] = [one for one in repo.index.outs if Path(one.fs_path) == publication.path]
    if not out.use_cache:
        raise VersionsError(
            publication.path,
            "dvc.yaml says `cache: false` for it, so DVC cannot push it.",
            f"Share it with `tokenmill upload`, and name its commit with `git tag {publication.tag}`.",
            code="TM404",
        )
    tree = out.get_obj()
    if tree is None or (publication.path.is_dir() and directory_md5(publication.path) != tree.hash_info.value):
        raise VersionsError(
            publication.path,
            "its files differ from those in dvc.lock, although DVC calls them unchanged.",
            "Run `tokenmill build --force`.",
            code="TM404",
        )
    names = {tree.hash_info.value, *(info.value for _key, _meta, info in tree)}
    for name in names:
        path = Path(out.cache.oid_to_path(name))
        if not path.is_file() or md5_file(path) != name.removesuffix(".dir"):
            raise VersionsError(
                path,
                "the bytes of this file in DVC's cache do not match its name.",
                "Delete it, run `dvc commit`, and publish again.",
            )
    return names
