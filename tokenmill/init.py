"""Makes a new data project: a folder under git and DVC with all that a build reads but the documents."""

from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import tokenmill
from tokenmill import dvc_repository, git
from tokenmill.code import code_digest
from tokenmill.errors import ParamsError, VersionsError
from tokenmill.files import write_atomic
from tokenmill.layout import (
    COUNTS_FILE,
    LOCK_FILE,
    PARAMS_FILE,
    QUARANTINE_DIRECTORY,
    RAW_DIRECTORY,
    REPORT_FILE,
    SCRATCH_DIRECTORY,
    STAGES,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.pins import Lock, write_lock

_TEMPLATES = Path(__file__).parent / "project"
_README = "README.md"
_OUTPUTS = (
    str(Path(COUNTS_FILE).parent),
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    QUARANTINE_DIRECTORY,
    str(Path(REPORT_FILE).parent),
)
_UNSEEN = (f"/{SCRATCH_DIRECTORY}", "/.venv", "*.partial")  # by git and by DVC
_NOT_IN_GIT = (*_UNSEEN, f"/{RAW_DIRECTORY}", *(f"/{output}" for output in _OUTPUTS))


def make_project(root: Path) -> list[str]:
    """Makes the folder `root` a project, in the git repository that it is in or a new one; what comes back are the names of
    the files that were made or got lines.

    A README.md that is there stays; .gitignore and .dvcignore get the lines that they lack. Raises ParamsError, and writes
    nothing, when any other file of a project or an output of a build is there. Raises VersionsError, OSError.
    """
    root = root.absolute()
    files = _files()
    _refuse_what_is_there(root, [*files, LOCK_FILE])
    if not (root / _README).exists():
        files[_README] = _template(_README).replace("{name}", root.name)
    root.mkdir(parents=True, exist_ok=True)
    _make_repositories(root)
    with ExitStack() as all_or_none:
        for name, text in files.items():
            all_or_none.enter_context(write_atomic(root / name)).write_text(text, encoding="utf-8")
        code = {stage: code_digest(stage) for stage in STAGES}
        write_lock(root, Lock.model_validate({"tokenmill": tokenmill.__version__, "code": code}))
    (root / RAW_DIRECTORY).mkdir(exist_ok=True)
    ignored = {".gitignore": _NOT_IN_GIT, ".dvcignore": _UNSEEN}
    return [*files, LOCK_FILE, *(name for name, lines in ignored.items() if _add_lines(root / name, lines))]


def _files() -> dict[str, str]:
    """The text of each file that a project must have."""
    return {
        "dvc.yaml": pipeline(_template("pipeline.yaml")),
        PARAMS_FILE: _template("params.yaml"),
        "prefect.yaml": _template("deployments.yaml"),
        f"{Path(RAW_DIRECTORY).parent}/README.md": _template("data.md"),
    }


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def pipeline(text: str) -> str:
    """The dvc.yaml of a project, out of that of tokenmill's own repository: where that depends on the files of the code,
    the project, which has none of them, depends on their digests in tokenmill.lock."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 4096
    document = yaml.load(text)
    for name, stage in document["stages"].items():
        keys = [f"code.{name}", *(["tokenizer"] if LOCK_FILE in stage["deps"] else [])]
        stage["params"].append(_flow({LOCK_FILE: keys}))
        stage["deps"] = _flow([one for one in stage["deps"] if one.startswith("data/")])
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _flow(value: Any) -> Any:
    """The value as YAML on one line."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    made = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    made.fa.set_flow_style()
    return made


def _refuse_what_is_there(root: Path, files: list[str]) -> None:
    if root.exists() and not root.is_dir():
        raise ParamsError(f"{root}: a file; expected a folder, or nothing yet.")
    if found := [name for name in (*files, *_OUTPUTS) if (root / name).exists()]:
        raise ParamsError(
            f"{root}: holds {', '.join(found)} already; nothing was written. Move that away, or name another folder, like one "
            "inside."
        )


def _make_repositories(root: Path) -> None:
    try:
        if git.git(root, "rev-parse", "--is-inside-work-tree").strip() != "true":
            raise ParamsError(f"{root}: in a git repository, but not in its working tree. Name a folder of a clone.")
    except VersionsError as error:
        if "not a git repository" not in str(error):
            raise
        git.git(root, "init", "--quiet")
    if not (root / ".dvc").is_dir():
        dvc_repository.initialize(root, is_inside=bool(git.git(root, "rev-parse", "--show-prefix").strip()))
    dvc_repository.keep_site_cache_private(root)


def _add_lines(path: Path, lines: tuple[str, ...]) -> bool:
    """Adds the lines that a file lacks at its end; whether it lacked any."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    lacking = [line for line in lines if line not in before.splitlines()]
    if lacking:
        with write_atomic(path) as partial:
            end = "" if before.endswith("\n") or not before else "\n"
            partial.write_text(before + end + "".join(f"{line}\n" for line in lacking), encoding="utf-8")
    return bool(lacking)
