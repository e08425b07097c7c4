"""Starts a build: what is refused before its first stage, and what is pinned."""

from pathlib import Path

from tokenmill import _core
from tokenmill.config.load_params import load_params
from tokenmill.config.training_params import unused_counts
from tokenmill.console import say
from tokenmill.corpus.source_shards import hidden_files, unread_files, words_of_unread
from tokenmill.errors import ParamsError, TokenmillError, did_you_mean
from tokenmill.layout import LOCK_FILE, PARAMS_FILE
from tokenmill.pipeline.alone import under_dvc
from tokenmill.pipeline.arrivals import list_inputs
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.code_pins import code_changes, pin_code, refuse_other_code
from tokenmill.pipeline.core_sources import sources_hash
from tokenmill.pipeline.memory import asked_workers
from tokenmill_reader.regular_files import read


def root_of(params_path: Path) -> Path:
    """The folder of the project whose params.yaml is at `params_path`. Raises ParamsError if the file has another name."""
    if params_path.name != PARAMS_FILE:
        raise ParamsError(
            "--params",
            f"found {params_path}; expected the {PARAMS_FILE} of a project: DVC tracks parameters by that name.",
            f"To try other values, change {PARAMS_FILE} or use `dvc exp run -S`.",
        )
    load_params(params_path)  # raises an error outside a project, before anything is created there
    return params_path.absolute().parent


def start(params_path: Path, only: str | None, force: bool, rehash: bool) -> Build:
    """A new build of the project whose params.yaml is at `params_path`. Raises ParamsError or TokenmillError."""
    refuse_stale_core()
    _core.interrupt(False)  # an earlier build in this process may have been interrupted
    path = params_path.absolute()
    params = load_params(path)
    build = Build(path.parent, params, only, force, rehash, code_changes(path.parent, params.source))
    if only is not None and only not in build.all_stages:
        hint = did_you_mean(only, build.all_stages)
        raise ParamsError("--only", f"found {only!r}; allowed: {', '.join(build.all_stages)}.", hint, code="TM109")
    try:
        asked = asked_workers(build.params.run)
        if build.workers < asked:
            say(
                f"run.memory_mb_max: {build.params.run.memory_mb_max} MB are enough for {build.workers} of {asked} workers"
            )
    except ParamsError as error:
        raise ParamsError(*error.inside(path), code=error.code) from None
    list_inputs(build.root)
    if unread := words_of_unread(unread_files(build.root, build.params), hidden_files(build.root, build.params)):
        say(unread)
    if build.params.tokenizer is None:
        for words in unused_counts(build.params.count, build.params.train_vocab):
            say(words)
    (refuse_other_code if under_dvc() else pin_code)(build.root, params.source)
    _pin_tokenizer(build)
    return build


def _pin_tokenizer(build: Build) -> None:
    """Makes tokenmill.lock pin the tokenizer that params.yaml asks for, and checks that it has not changed. Under `dvc repro`,
    whose stages depend on that file, it must be pinned already.

    If params.yaml asks for none, a missing tokenmill.lock is written: stages depend on it, and some would fail late in a build.
    """
    if build.params.tokenizer is not None:
        from tokenmill.config.lockfile import pinned
        from tokenmill.versioning.import_tokenizer import pin_if_new, refuse_changed

        refuse_changed(build.root, (pinned if under_dvc() else pin_if_new)(build.root, build.params.tokenizer))
    elif not (build.root / LOCK_FILE).exists() and _dvc_yaml_names(build.root, LOCK_FILE):
        from tokenmill.config.lockfile import write_pin

        write_pin(build.root, None)
        say(f"{LOCK_FILE}: was missing; written again, with nothing pinned. Commit it.")


def _dvc_yaml_names(root: Path, name: str) -> bool:
    path = root / "dvc.yaml"
    return path.exists() and name in read(path).decode()


def refuse_stale_core() -> None:
    """Raises TokenmillError if the compiled core does not match the sources beside it."""
    hash_now = sources_hash()
    if hash_now is not None and hash_now != _core.SOURCE_HASH:
        raise TokenmillError(
            "", "tokenmill._core was compiled from other sources than those in core/.", "Run `make core`.", code="TM704"
        )
