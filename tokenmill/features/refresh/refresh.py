"""refresh: new data → a new version of the dataset, built with the pinned tokenizer, checked for drift and published."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenmill.analysis.compare import compare, lines_of
from tokenmill.artifacts.model_card import read_card
from tokenmill.console import say
from tokenmill.corpus.good_documents import good_batches
from tokenmill.dataset.manifest import Manifest, parse_manifest, read_manifest
from tokenmill.errors import ParamsError, TokenmillError, ValidationError, VersionsError
from tokenmill.features.refresh.drift import Drift, measure, new_shards
from tokenmill.filters import asked_filters
from tokenmill.layout import LOCK_FILE, OBJECTS_FILE, SCRATCH_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.arrivals import list_inputs
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.pools import Threads
from tokenmill.quantities import number_of
from tokenmill.stages.count import count
from tokenmill.stages.publish import publish
from tokenmill.stages.train_vocab import train_vocab
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.scratch import scratch_directory
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_repository, git
from tokenmill.versioning.registry import order_of, read_at, versions_in
from tokenmill_reader.manifest import MANIFEST_FILE

CANDIDATE_DIRECTORY = f"{SCRATCH_DIRECTORY}/candidate"

_SCRIPT_SHARDS_MAX = 256  # new shards whose first batch is searched for scripts
_FIRST_VERSION = "v0.1.0"


@dataclass(frozen=True)
class Refreshed:
    """What a refresh did. `past`: the limits of drift that were exceeded, as text. `published`: the version, or None."""

    summaries: list[StageSummary]
    drift: Drift
    past: list[str]
    published: str | None

    def __str__(self) -> str:
        if self.published:
            return f"published {self.published}"
        changed = any(summary.action != "up to date" for summary in self.summaries)
        return "built; nothing to publish" if changed else "nothing new"

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        stages = [asdict(summary) for summary in self.summaries]
        drift, past, published = asdict(self.drift), self.past, self.published
        return {"did": str(self), "stages": stages, "drift": drift, "past": past, "published": published}


def skipped(holder: str) -> dict[str, Any]:
    """The result, as values of JSON, of a refresh that was skipped because another build runs. `holder`: that build."""
    return {"did": f"skipped: {holder}", "stages": [], "drift": None, "past": [], "published": None}


def refresh(build: Build, run_stages: Callable[[Build], list[StageSummary]]) -> Refreshed:
    """Updates the data, builds, measures drift, commits, and publishes the dataset's next patch version if it changed.

    Raises ValidationError for drift beyond the limits (with refresh.on_drift: fail), and what a build or publishing raises.
    After an error before the commit, nothing is committed, and the next refresh checks the same new documents again.
    """
    root, limits = build.root, build.params.refresh
    if build.params.tokenizer is None:
        raise ParamsError(
            "tokenizer: null",
            "a refresh would train another tokenizer with every new file.",
            "Publish one, and name it in params.yaml: tokenizer: {from: ., name: tokenizer, version: v1.0.0}.",
        )
    _refuse_foreign_changes(root)
    _refuse_branch_behind_upstream(root)
    git.identity(root)
    before = _manifest_before(root, limits.publish)
    with _telling_how_to_undo(root):
        return _refresh(build, run_stages, before)


def _refresh(build: Build, run_stages: Callable[[Build], list[StageSummary]], before: Manifest | None) -> Refreshed:
    root, limits = build.root, build.params.refresh
    update_imports(root)
    list_inputs(build.root)
    record_sources(root)
    summaries = run_stages(build)
    manifest = read_manifest(root / TOKENS_DIRECTORY)
    drift = _drift(build, manifest, before)
    past = drift.past(limits)
    if note := drift.note(limits):
        say(f"refresh: {note}")
    if past and limits.on_drift == "fail":
        raise ValidationError(
            "refresh",
            f"the new documents drift: {'; '.join(past)}. Nothing was committed or published.",
            code="TM502",
        )
    if past:
        say(f"refresh: the new documents drift: {'; '.join(past)}")
        say(train_candidate(build))
    _commit(root, manifest)
    published = None if limits.publish is None else _publish(root, limits.publish)
    return Refreshed(summaries, drift, past, published)


@contextmanager
def _telling_how_to_undo(root: Path) -> Iterator[None]:
    """If the block fails, prints the files that stay changed, and the commands that undo the changes."""
    try:
        yield
    except TokenmillError:
        if own := [name for name in git.changed_files(root) if _is_own(name)]:
            names = shlex.join(own)
            say(
                f"refresh: {', '.join(own)}: changed and not committed; the next refresh continues from there. To go back to the "
                f"last commit: `git checkout -- {names} && dvc checkout`"
            )
            if any(name.endswith(".dvc") for name in own):
                say(
                    "refresh: these commands also remove new documents from folders that DVC tracks; keep a copy of them"
                )
        raise


def update_imports(root: Path) -> None:
    """Updates what DVC imported. If an update fails, the previous data is restored. Raises VersionsError."""
    from dvc.exceptions import DvcException

    with dvc_repository.repository(root) as repo:
        for stage in [one for one in repo.index.stages if one.is_import]:
            try:
                repo.update([stage.path])
            except (DvcException, OSError) as error:
                repo.checkout([stage.path], force=True)  # a failed update has already deleted the old data
                raise VersionsError(
                    stage.path, f"`dvc update` failed: {error}. The data is as it was before."
                ) from error


def record_sources(root: Path) -> None:
    """Records changes in files and folders that DVC tracks. Raises VersionsError."""
    with dvc_repository.repository(root) as repo:
        for stage in list(repo.index.stages):
            if stage.is_data_source and not stage.is_import and _changed(repo, stage):
                repo.commit(stage.path, force=True)


def _changed(repo: Any, stage: Any) -> bool:
    with repo.lock:
        return bool(stage.status())


def train_candidate(build: Build) -> list[str]:
    """Trains a candidate tokenizer on all documents as params.yaml says. Returns lines that compare it with the one in use."""
    params, root = build.params, build.root
    special, encode = params.train_vocab.special_tokens, params.encode
    named = {name: getattr(encode, name) for name in ("begin_of_document", "end_of_document")}
    lacking = {name: None for name, token in named.items() if token not in special}
    trained = params.model_copy(update={"encode": encode.model_copy(update=lacking)})
    with scratch_directory(root / SCRATCH_DIRECTORY, "refresh-") as scratch:
        counted, driver, pool = scratch / "counts", build.driver(), Threads(build.workers)
        driver.run(count(build.project, counted), pool)
        driver.run(train_vocab(root, trained, build.memory, counted, root / CANDIDATE_DIRECTORY), pool)
    filters = asked_filters(root, params.source, params.has_ids)
    documents = (
        (shard.named_source or Path(shard.name).parent.as_posix(), batch)
        for shard in build.shards
        for batch in good_batches(shard, params.source, filters)
    )
    comparison = compare(
        Tokenizer.load(root / TOKENIZER_DIRECTORY), Tokenizer.load(root / CANDIDATE_DIRECTORY), documents
    )
    with write_atomic(root / CANDIDATE_DIRECTORY / "comparison.json") as path:
        path.write_text(json.dumps(comparison.as_json(), indent=1) + "\n", encoding="utf-8")
    return [
        f"refresh: a candidate trained on all documents is in {CANDIDATE_DIRECTORY}; the tokenizer in use stays.",
        "the tokenizer in use beside the candidate:",
        *lines_of(comparison),
    ]


def _refuse_foreign_changes(root: Path) -> None:
    """Raises VersionsError for uncommitted files that neither a refresh nor a build writes."""
    foreign = [name for name in git.changed_files(root) if not _is_own(name)]
    if foreign:
        raise VersionsError(root, f"not committed: {', '.join(foreign[:5])}.", "Commit them, and refresh again.")


def _refuse_branch_behind_upstream(root: Path) -> None:
    """Raises VersionsError if the branch is behind its upstream, because its commit could not be pushed."""
    if git.has_upstream(root):
        git.git(root, "fetch", "--quiet")
        if n := int(git.git(root, "rev-list", "--count", "HEAD..@{upstream}")):
            raise VersionsError(
                root,
                f"its branch is behind its upstream (commits: {n}), so what a refresh commits could not be pushed.",
                "Run `git pull`, and refresh again.",
            )


def _is_own(name: str) -> bool:
    return name in ("dvc.lock", LOCK_FILE, OBJECTS_FILE) or name.endswith(".dvc")


def _manifest_before(root: Path, name: str | None) -> Manifest | None:
    """The manifest of the last published version, or of the last commit if there is no version. None if it cannot be read.

    Documents that someone committed by hand since the last version count as new, because no refresh has checked them.
    """
    last = None if name is None else _last_version(root, name)
    revision = last[1] if last and git.commit_of(root, last[1]) else "HEAD"
    content = read_at(root, revision, f"{TOKENS_DIRECTORY}/{MANIFEST_FILE}")
    if content is None:
        return None
    try:
        return parse_manifest(content, f"{revision}:{TOKENS_DIRECTORY}/{MANIFEST_FILE}")
    except ValidationError as error:
        say(f"refresh: all documents count as new: {error}")
        return None


def _drift(build: Build, manifest: Manifest, before: Manifest | None) -> Drift:
    params, added = build.params, new_shards(manifest, before)
    shards = [shard for shard in build.shards if shard.name in added][:_SCRIPT_SHARDS_MAX]
    filters = asked_filters(build.root, params.source, params.has_ids)
    firsts = (next(good_batches(one, params.source, filters), None) for one in shards)
    texts = (batch.texts for batch in firsts if batch is not None)
    return measure(read_card(build.root / TOKENIZER_DIRECTORY), build.root / TOKENS_DIRECTORY, manifest, added, texts)


def _commit(root: Path, manifest: Manifest) -> None:
    own = [name for name in git.changed_files(root) if _is_own(name)]
    if own:
        git.git(root, "add", "--", *own)
        words = f"Refresh the dataset: {number_of(manifest.n_documents, 'document')}, {number_of(manifest.n_tokens, 'token')}"
        git.git(root, "commit", "--quiet", "--message", words)
    if git.has_upstream(root):
        git.git(root, "push", "--quiet")


def _publish(root: Path, name: str) -> str | None:
    """Publishes the artifact's next patch version. Gives None, and publishes nothing, if the last version has the same data."""
    version = _FIRST_VERSION
    if last := _last_version(root, name):
        if _same_data(root, last[1]):
            return None
        major, minor, patch = order_of(last[0])
        version = f"v{major}.{minor}.{patch + 1}"
    publish(root, f"{name}@{version}", None, None, None)
    return f"{name}@{version}"


def _last_version(root: Path, name: str) -> tuple[str, str] | None:
    """The highest version of an artifact in this repository and its git remote, with its commit."""
    remote = git.remote_of(root)
    known = versions_in(git.tags_of(root, ".") | ({} if remote is None else git.tags_of(root, remote)), name)
    return max(known.items(), key=lambda one: order_of(one[0]), default=None)


def _same_data(root: Path, commit: str) -> bool:
    """Whether the dataset of a commit is the present one. Manifests with digests of all files are compared."""
    place = f"{TOKENS_DIRECTORY}/{MANIFEST_FILE}"
    return read_at(root, commit, place) == (root / place).read_bytes()
