"""What builds make is as reviewed, byte by byte. `make snapshots` writes the digests again, and git shows which files changed."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tokenmill
from tests.conftest import REPOSITORY, make_project
from tests.golden.projects import PROJECTS
from tokenmill import _core
from tokenmill.pipeline import code_digest

FOLDER = Path(__file__).parent
LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    not all(f"\n{name}=={version} " in LOCK for name, version in code_digest.libraries().items()),
    reason="another version of a library that decides bytes than the locked one",
)


@contextmanager
def one_code() -> Iterator[None]:
    """Leaves the code's digests and version out of what builds write while the block runs, so that code may move."""
    cached = (code_digest.code_digest, code_digest.output_digest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "CODE_HASH", "0" * 64)
        patch.setattr(tokenmill, "__version__", "0")
        patch.setattr(code_digest, "_digest", lambda stage, *_: hashlib.sha256(stage.encode()).hexdigest())
        for digest in cached:
            digest.cache_clear()
        yield
    for digest in cached:
        digest.cache_clear()


def digests(name: str, folder: Path) -> str:
    """A line for each file that the build of a project makes: the beginning of its sha256, and its name."""
    project = make_project(folder / name)
    PROJECTS[name](project)
    with one_code():
        project.build()
    outputs = {path: content for path, content in project.outputs().items() if not path.endswith(".gitignore")}
    lines = [f"{hashlib.sha256(content).hexdigest()[:16]}  {path}\n" for path, content in sorted(outputs.items())]
    return "".join(lines)


@pytest.mark.parametrize("name", PROJECTS)
def test_a_build_makes_the_bytes_that_were_reviewed(name: str, tmp_path: Path) -> None:
    assert digests(name, tmp_path) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def main() -> None:
    """Writes the digests of all projects."""
    for name in PROJECTS:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            (FOLDER / f"{name}.txt").write_text(digests(name, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
