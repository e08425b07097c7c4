"""Makes a new data project: a folder under git and DVC with everything that a build needs except documents."""

from contextlib import ExitStack
from pathlib import Path

import tokenmill
from tokenmill.config.lockfile import Lock, write_lock
from tokenmill.errors import ParamsError, VersionsError, did_you_mean
from tokenmill.layout import (
    COUNTS_FILE,
    LOCK_FILE,
    QUARANTINE_DIRECTORY,
    RAW_DIRECTORY,
    REPORT_FILE,
    SCRATCH_DIRECTORY,
    STAGES,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.pipeline.code_digest import libraries, output_digest
from tokenmill.project.examples import EXAMPLES, with_settings
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.writable import refuse_unusable_path
from tokenmill.versioning import dvc_repository, git

_TEMPLATE = Path(__file__).parent / "template"
_README = "README.md"
_OUTPUTS = (
    str(Path(COUNTS_FILE).parent),
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    QUARANTINE_DIRECTORY,
    TABLES_DIRECTORY,
    str(Path(REPORT_FILE).parent),
)
_IGNORED = (f"/{SCRATCH_DIRECTORY}", "/.venv", "*.partial", "__pycache__")  # by git and DVC
_NOT_IN_GIT = (*_IGNORED, f"/{RAW_DIRECTORY}", *(f"/{output}" for output in _OUTPUTS))


def make_project(root: Path, example: str | None = None) -> list[str]:
    """Makes the folder `root` a project, in its git repository or in a new one. Gives the names of the files that were written.

    `example`: a name in EXAMPLES, whose documents and settings the project gets; None: it has no documents. An existing README.md
    stays, and .gitignore and .dvcignore get their missing lines. If another file of a project, a document of the example or an
    output of a build exists, raises ParamsError and writes nothing. Raises VersionsError, OSError.
    """
    if example is not None and example not in EXAMPLES:
        raise ParamsError(
            "--example", f"found {example!r}; allowed: {', '.join(EXAMPLES)}.{did_you_mean(example, EXAMPLES)}"
        )
    root = root.absolute()
    refuse_unusable_path(root)
    files = _files()
    files[_README] = files[_README].replace("{name}", root.name)
    if (root / _README).exists():
        del files[_README]
    if example is not None:
        files |= EXAMPLES[example].files()
        files["params.yaml"] = with_settings(files["params.yaml"], EXAMPLES[example].settings)
    _refuse_existing(root, [*files, LOCK_FILE])
    root.mkdir(parents=True, exist_ok=True)
    _make_repositories(root)
    with ExitStack() as all_or_none:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            all_or_none.enter_context(write_atomic(root / name)).write_text(text, encoding="utf-8")
        code = {stage: output_digest(stage) for stage in STAGES}
        write_lock(
            root, Lock.model_validate({"tokenmill": tokenmill.__version__, "code": code, "libraries": libraries()})
        )
    (root / RAW_DIRECTORY).mkdir(parents=True, exist_ok=True)
    ignored = {".gitignore": _NOT_IN_GIT, ".dvcignore": _IGNORED}
    return [*files, LOCK_FILE, *(name for name, lines in ignored.items() if _add_lines(root / name, lines))]


def _files() -> dict[str, str]:
    """The text of each file of the template, by its path relative to the project."""
    return {
        path.relative_to(_TEMPLATE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_TEMPLATE.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def _refuse_existing(root: Path, files: list[str]) -> None:
    if root.exists() and not root.is_dir():
        raise ParamsError(root, "is a file; expected a folder, or a name that does not exist yet.", code="TM111")
    if found := [name for name in (*files, *_OUTPUTS) if (root / name).exists()]:
        raise ParamsError(
            root,
            f"already has {', '.join(found)}; nothing was written.",
            "Move them away, or name another folder, such as one inside.",
            code="TM111",
        )


def _make_repositories(root: Path) -> None:
    try:
        if git.git(root, "rev-parse", "--is-inside-work-tree").strip() != "true":
            raise ParamsError(
                root, "in a git repository, but not in its working tree.", "Name a folder of a clone.", code="TM111"
            )
    except VersionsError as error:
        if "not a git repository" not in str(error):
            raise
        git.git(root, "init", "--quiet")
    if not (root / ".dvc").is_dir():
        dvc_repository.initialize(root, is_inside=bool(git.git(root, "rev-parse", "--show-prefix").strip()))
    dvc_repository.keep_site_cache_private(root)


def _add_lines(path: Path, lines: tuple[str, ...]) -> bool:
    """Appends the lines that are missing in a file. Gives whether any were missing."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    lacking = [line for line in lines if line not in before.splitlines()]
    if lacking:
        with write_atomic(path) as partial:
            end = "" if before.endswith("\n") or not before else "\n"
            partial.write_text(before + end + "".join(f"{line}\n" for line in lacking), encoding="utf-8")
    return bool(lacking)
