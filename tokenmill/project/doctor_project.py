"""Checks a project, and says how to mend what is wrong."""

import os
import shlex
import shutil
import socket
import stat
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dvc.exceptions import DvcException

from tokenmill.config.load_params import load_params
from tokenmill.config.lockfile import read_lock
from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.source_shards import find_documents, hidden_files, unread_files, words_of_unread
from tokenmill.errors import TokenmillError
from tokenmill.layout import LOCK_FILE, PARAMS_FILE, STAGES
from tokenmill.pipeline.dvc_sight import refuse_unseen_parameters
from tokenmill.project.diagnosis import Diagnosis
from tokenmill.project.doctor_documents import named_sources
from tokenmill.quantities import number_of
from tokenmill.stages.mistakes import find_mistakes
from tokenmill.versioning import dvc_repository, dvc_stage, git, leftovers
from tokenmill_reader.shown import size

_ANSWER_S_MAX = 2.0
_PORTS = {"http": 80, "https": 443, "ssh": 22, "webdav": 80, "webdavs": 443}
_PACKED_TIMES = 4  # compressed text grows about this many times
_BUILD_SHARE = 0.5  # the disk space of a build, beside its documents, is about this share of their text


def examine_project(root: Path) -> list[Diagnosis]:
    """The checks of the project at `root`. Opening its DVC repository also makes DVC's site cache private, unless one is
    configured."""
    return [*_parameters(root), *_repositories(root), left_over(root)]


def _parameters(root: Path) -> list[Diagnosis]:
    try:
        params = load_params(root / PARAMS_FILE)
    except TokenmillError as error:
        return [Diagnosis(PARAMS_FILE, "wrong", "; ".join(str(error).splitlines()))]
    findings = [
        Diagnosis(PARAMS_FILE, "ok", "every key is known, every value allowed"),
        corpus(root, params),
        *mistakes(root, params),
    ]
    if unread := words_of_unread(unread_files(root, params), hidden_files(root, params)):
        mend = "Add a source or a glob for them if they are documents."
        findings.append(Diagnosis("other files", "warning", unread.removesuffix("."), mend))
    return findings


def mistakes(root: Path, params: Params) -> list[Diagnosis]:
    """What a build would refuse in its first seconds, in its words, and whether the first documents can be read."""
    try:
        shards: list[Shard] | None = find_documents(root, params)
    except TokenmillError:
        shards = None  # `corpus` tells why
    try:
        wrong, seen = find_mistakes(root, params, shards, known=None)
    except TokenmillError as error:
        return [Diagnosis("settings", "wrong", str(error))]
    rows = [] if seen is None else seen.wrong
    findings = [Diagnosis("settings", "wrong", str(one)) for one in wrong if one not in rows]
    mend = None if seen is None else named_sources(seen.looked)
    findings += [Diagnosis("text", "wrong", str(row), mend) for row in rows]
    if seen is not None and seen.left_out:
        n = f"{len(seen.left_out):,} of {seen.n_files:,} files begin with something bad; " if seen.n_files > 1 else ""
        first = seen.left_out[0]
        if first.setting:
            mend = mend or f"Set {first.setting} in params.yaml to a column or key that all files have."
        else:
            mend = "A build leaves it out; correct it to have it in the dataset."
        findings.append(Diagnosis("text", "warning", f"{n}{first.words.removesuffix('.')}", mend))
    elif seen is not None and not rows:
        findings.append(
            Diagnosis("text", "ok", f"the first documents of {number_of(seen.n_files, 'file')} can be read")
        )
    return findings


def corpus(root: Path, params: Params) -> Diagnosis:
    """Whether there are documents, and disk space for a build of them."""
    try:
        shards = find_documents(root, params)
    except TokenmillError as error:
        is_empty = error.code == "TM203"  # as in a new project, or one whose first step makes the documents
        return Diagnosis("documents", "warning" if is_empty else "wrong", str(error))
    n_bytes = sum(shard.n_bytes * (_PACKED_TIMES if shard.kind.is_packed else 1) for shard in shards)
    free_bytes = shutil.disk_usage(root).free
    words = f"{number_of(len(shards), 'file')}, about {size(n_bytes)} of text; {size(free_bytes)} are free"
    if free_bytes < n_bytes * _BUILD_SHARE:
        return Diagnosis(
            "documents", "warning", words, "A build takes about half as much space as the text: make room for it."
        )
    return Diagnosis("documents", "ok", words)


def _repositories(root: Path) -> list[Diagnosis]:
    try:
        git.git(root, "rev-parse", "--show-prefix")
    except TokenmillError as error:
        return [Diagnosis("git repository", "wrong", str(error), "git init")]
    try:
        before = dvc_repository.site_cache(root)
        was_closed = _is_closed(before)
        with dvc_repository.repository(root) as repo:
            return [
                dvc_stages(root, repo),
                site_cache(before, was_closed, dvc_repository.site_cache(root)),
                remote(repo),
                committed(root, "dvc.lock"),
                pins_file(root),
            ]
    except TokenmillError as error:
        return [Diagnosis("DVC", "wrong", str(error))]


def dvc_stages(root: Path, repo: Any) -> Diagnosis:
    """Whether dvc.yaml has tokenmill's stages, and these have the parameters that they read."""
    import dvc

    try:
        params = load_params(root / PARAMS_FILE)
    except TokenmillError:  # `_parameters` tells of it
        params = None
    try:
        for name in STAGES:
            stage = dvc_stage.DvcStage(repo, name, {})
            if params is not None:
                refuse_unseen_parameters(root, params, stage, name)
    except (TokenmillError, DvcException) as error:
        return Diagnosis("DVC", "wrong", f"{error}")
    return Diagnosis("DVC", "ok", f"{dvc.__version__}, with the stages {', '.join(STAGES)}")


def site_cache(before: Path, was_closed: bool, now: Path) -> Diagnosis:
    """Whether DVC's site cache is closed to other users of the machine. DVC unpickles files from it (CVE-2025-69872).

    `before`, `now`: the site cache before and after tokenmill opened the DVC repository, which configures a private one unless
    one was configured already. `was_closed`: whether `before` was closed to other users.
    """
    if not _is_closed(now):
        mend = f"chmod 700 {shlex.quote(str(now))}, or unset DVC_SITE_CACHE_DIR or core.site_cache_dir of DVC, which names it"
        return Diagnosis("site cache", "wrong", f"{now}: other users can put code there that DVC runs", mend)
    if before != now:
        return Diagnosis(
            "site cache", "warning", f"was {before}, where other users could put code; from now on it is {now}"
        )
    if not was_closed:
        mend = "If you do not trust them, delete it."
        return Diagnosis("site cache", "warning", f"{now}: was open to other users until now", mend)
    return Diagnosis("site cache", "ok", f"{now}, closed to other users")


def _is_closed(folder: Path) -> bool:
    try:
        found = folder.stat()
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def remote(repo: Any) -> Diagnosis:
    """Whether DVC has a remote that can be reached."""
    name = repo.config["core"].get("remote")
    if not name:
        return Diagnosis(
            "DVC remote", "warning", "none is set; publishing and pulling need one", "dvc remote add -d NAME URL"
        )
    try:
        settings = repo.config["remote"][name]
        store, url = repo.cloud.get_remote_odb(name), settings["url"]
        if store.fs.protocol == "local":
            return _local_remote(name, Path(url))
        wrong = _why_unreachable(store, settings.get("endpointurl") or url)
    except (DvcException, KeyError) as error:
        return Diagnosis("DVC remote", "wrong", f"{name}: {error}", "dvc remote modify")
    if wrong:
        return Diagnosis(
            "DVC remote", "wrong", f"{name}, {url}: {wrong}", "Check the URL, the network and the credentials."
        )
    return Diagnosis("DVC remote", "ok", f"{name}, {url}, can be reached")


def _local_remote(name: str, path: Path) -> Diagnosis:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Diagnosis(
            "DVC remote", "wrong", f"{name}: {there} cannot be written to", f"dvc remote modify {name} url URL"
        )
    return Diagnosis("DVC remote", "ok", f"{name}, {path}" + ("" if there == path else ", which the first push makes"))


def _why_unreachable(store: Any, url: str) -> str | None:
    """Why a network remote does not answer, or None if it does. If its URL names no host, its storage is queried instead."""
    parts = urlsplit(url)
    if parts.hostname and parts.scheme in _PORTS:
        try:
            socket.create_connection((parts.hostname, parts.port or _PORTS[parts.scheme]), _ANSWER_S_MAX).close()
        except OSError as error:
            return str(error)
        return None
    answers: list[str | None] = []

    def ask() -> None:
        try:
            store.fs.exists(store.path)
            answers.append(None)
        except Exception as error:  # noqa: BLE001 — each kind of storage raises its own errors
            answers.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_S_MAX)
    return answers[0] if answers else f"no answer in {_ANSWER_S_MAX:.0f} s"


def committed(root: Path, name: str) -> Diagnosis:
    """Whether git tracks a file on which versions of the data depend."""
    if not (root / name).exists():
        return Diagnosis(name, "ok", "missing; a build writes it" if name == "dvc.lock" else "missing, but not needed")
    if git.is_ignored(root, name):
        return Diagnosis(
            name, "wrong", "git ignores it, so no commit would record the data", "Take it out of .gitignore."
        )
    if not git.git(root, "ls-files", "--", name):
        return Diagnosis(name, "warning", "not in git yet", f"git add {name}, and commit")
    return Diagnosis(name, "ok", "in git")


def pins_file(root: Path) -> Diagnosis:
    """Whether tokenmill.lock can be read and git tracks it."""
    try:
        read_lock(root)
    except TokenmillError as error:
        return Diagnosis(LOCK_FILE, "wrong", str(error))
    return committed(root, LOCK_FILE)


def left_over(root: Path) -> Diagnosis:
    """Whether a killed build left files behind."""
    if paths := leftovers.own(root):
        said = f"{len(paths)} temporary files of killed builds, such as {paths[0].relative_to(root)}"
        return Diagnosis("leftovers", "warning", said, "The next `tokenmill build` that runs a stage removes them.")
    return Diagnosis("leftovers", "ok", "no temporary files of killed builds")
