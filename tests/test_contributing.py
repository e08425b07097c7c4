"""CONTRIBUTING.md: its recipes name every file that changes, as a toy shows that is added to a copy of the repository."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.conftest import REPOSITORY
from tokenmill import _core
from tokenmill.format_facts import FORMATS

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOYS = REPOSITORY / "tests/recipes"  # the change of each recipe, as git applies it


def recipe(title: str) -> list[str]:
    """The files in the list of a recipe, with toy for NAME; those of a folder that it names may have any name."""
    places = re.findall(r"^\d+\. (`[^`]+`(?:, `[^`]+`)*)", section(title), flags=re.MULTILINE)
    return [path.replace("NAME", "toy") for place in places for path in re.findall(r"`([^`]+)`", place)]


def below_the_list(title: str) -> list[str]:
    """The files that a recipe names for some cases alone."""
    return re.findall(r"`(tokenmill/[^`]+)`", re.sub(r"^\d+\. .*$", "", section(title), flags=re.MULTILINE))


def section(title: str) -> str:
    return PAGE.split(f"### {title}\n")[1].split("\n#")[0]


@dataclass(frozen=True)
class Copy:
    """A copy of the repository in a folder, with the core as it is compiled here."""

    root: Path

    def follow(self, title: str, toy: str, also: list[str] | None = None) -> None:
        """Applies the change of a toy, which has to be in the files and folders that the recipe lists, and in all of them; or, of a
        toy that needs some of `also`, in no others than these and those."""
        changed = re.findall(r"^\+\+\+ b/(.+)$", (TOYS / toy).read_text(encoding="utf-8"), flags=re.MULTILINE)
        named = [*(also or []), *recipe(title)]
        used = {next((one for one in named if re.match(re.escape(one), path)), path) for path in changed}
        assert used <= set(named) and (also is not None or used == set(named)), used ^ set(named)
        done = self.run("git", "apply", "--unsafe-paths", str(TOYS / toy))
        assert done.returncode == 0, (
            f"{done.stderr}\nApply the toy by hand, and write git's diff into tests/recipes/{toy}."
        )

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command in the copy, or in another folder with the code of the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "GIT_CEILING_DIRECTORIES": str(self.root.parent)}
        return subprocess.run(
            command, cwd=folder or self.root, env=environment, capture_output=True, text=True, check=False
        )

    def tokenmill(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `tokenmill` in the project beside the copy."""
        project = self.root.parent / "project"
        project.mkdir(exist_ok=True)
        return self.run(sys.executable, "-m", "tokenmill", *arguments, folder=project)

    def test(self, *arguments: str) -> None:
        """Writes the tables of the docs anew, as the page says, and expects tests of the copy to pass."""
        for command in (["docs.generated.pages"], ["pytest", "-q", "-p", "no:cacheprovider", *arguments]):
            done = self.run(sys.executable, "-m", *command)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr

    def build(self, *settings: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        """Builds the project inline, after texts of its params.yaml were replaced."""
        path = self.root.parent / "project/params.yaml"
        if not path.exists():
            assert self.tokenmill("init", "--example", "english", ".").returncode == 0
        text = path.read_text(encoding="utf-8").replace("engine: threads", "engine: inline")
        for old, new in settings:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        return self.tokenmill("build")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy of what git keeps, and would keep, of the repository."""
    root = tmp_path / "copy"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, check=True).stdout.decode().split("\0")
    for name in names:
        if os.path.lexists(REPOSITORY / name) and name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, root / name, follow_symlinks=False)
    shutil.copy2(_core.__file__, root / "tokenmill")
    return Copy(root)


@pytest.mark.parametrize("toys", ["format", "parameter error", "reading", "stage"])
def test_toys_go_with_the_files_as_they_are(toys: str) -> None:
    """So that a change which the toys have to follow fails before the slow tests that build with them."""
    patches = "".join((TOYS / f"{toy}.patch").read_text(encoding="utf-8") for toy in toys.split())
    command = ["git", "apply", "--check", "-"]
    done = subprocess.run(command, input=patches, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nApply it by hand, and write git's diff into tests/recipes."


@pytest.mark.slow
def test_a_format_is_added_by_its_recipe(copy: Copy) -> None:
    copy.follow("A file format", "format.patch")
    copy.test("tests/formats", "-k", "toy or table")
    copy.test("tests/test_reference.py", "-k", "parts_of_pages")
    done = copy.build(("formats: [parquet]", "formats: [toy]"))
    assert done.returncode == 0, done.stderr
    tokens = copy.root.parent / "project/data/tokens"
    n_ids = sum(path.stat().st_size // 2 for path in tokens.rglob("*.toy"))
    assert n_ids == json.loads((tokens / "manifest.json").read_bytes())["n_tokens"]
    assert copy.tokenmill("verify").returncode == 0


@pytest.mark.slow
def test_a_parameter_and_an_error_code_are_added_by_their_recipes(copy: Copy) -> None:
    copy.follow("A parameter", "parameter.patch")
    copy.follow("An error code", "error.patch")
    copy.test("tests/config", "tests/cli/test_codes.py", "tests/test_reference.py", "-m", "not slow")
    copy.test("tests/test_docs.py", "-k", "every_params_key")
    done = copy.build(("  gates: []", "  documents_min: 1000\n  gates: []"))
    assert done.returncode == 2
    assert "error[TM504]: validate.documents_min: expected 1000 documents; found " in done.stderr
    assert "too few documents" in copy.tokenmill("explain", "TM504").stdout
    assert copy.build(("documents_min: 1000", "documents_min: 10")).returncode == 0


@pytest.mark.slow
def test_a_parameter_that_decides_ids_is_added_by_its_recipe(copy: Copy) -> None:
    manifest = copy.root.parent / "project/data/tokens/manifest.json"
    assert copy.build().returncode == 0
    digest = json.loads(manifest.read_bytes())["params_digest"]
    copy.follow("A parameter", "reading.patch", also=below_the_list("A parameter"))
    (manifest.parent.parent / "raw/padded.jsonl").write_text('{"id": "padded", "text": "  a b  "}\n', encoding="utf-8")
    assert copy.build().returncode == 0
    before = json.loads(manifest.read_bytes())
    assert before["params_digest"] == digest and "trim" not in before["source"]
    done = copy.build(("  text_column: text", "  trim: true\n  text_column: text"))
    assert done.returncode == 0, done.stderr
    assert copy.tokenmill("verify").returncode == 0
    now = json.loads(manifest.read_bytes())
    assert now["source"]["trim"] is True
    assert now["params_digest"] != digest
    assert now["text_bytes"] == before["text_bytes"] - 4


@pytest.mark.slow
def test_a_stage_is_added_by_its_recipe(copy: Copy) -> None:
    copy.follow("A stage", "stage.patch")
    copy.test("tests/project/test_template.py", "tests/pipeline/test_code_digest.py", "-k", "template or depends_on")
    done = copy.build()
    assert done.returncode == 0, done.stderr
    assert (copy.root.parent / "project/data/toy/n_tokens.txt").read_text(encoding="utf-8").strip().isdigit()
    again = copy.tokenmill("build")
    assert "Nothing to do" in again.stderr and "toy" in again.stdout


@pytest.mark.parametrize(
    ("title", "names"), [("A file format", list(FORMATS)), ("A split pattern", list(_core.patterns()))]
)
def test_no_file_beyond_those_of_a_recipe_lists_all_names_of_its_kind(title: str, names: list[str]) -> None:
    suffixes = (".py", ".pyi", ".rs", ".toml", ".md")
    files = [path for path in REPOSITORY.glob("*.*") if path.suffix in (".md", ".yaml", ".toml")]
    for folder in ("tokenmill", "reader/tokenmill_reader", "core/src", "flows", "tasks", "docs"):
        files += [path for path in (REPOSITORY / folder).rglob("*") if path.suffix in suffixes]
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for path in files
        if all(re.search(rf"(?i)\b{name}\b", path.read_text(encoding="utf-8")) for name in names)
    }
    by_commands = {"docs/guides/training-jobs.md", "docs/reference/params.md", "docs/figures.md"}
    of_llama_cpp = {"tokenmill/features/convert/formats/gguf.py", "docs/recipes/llama-cpp.md"}  # which lacks a new one
    assert found - by_commands - of_llama_cpp - {"docs/changes.md"} == {
        name for name in recipe(title) if "toy" not in name and not name.startswith("tests/")
    }


def test_the_page_is_two_screens_and_leads_somewhere() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= 106 and max(map(len, lines)) <= 120
    links = re.findall(r"\]\(([^)#]+)", PAGE) + re.findall(r'(?:src|srcset)="([^"]+)"', PAGE)
    assert len(links) > 8
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", PAGE)) <= set(targets)
    assert [name for title in re.findall(r"^### (.+)$", PAGE, flags=re.MULTILINE) for name in recipe(title)
            if "toy" not in name and not (REPOSITORY / name).exists()] == []  # fmt: skip


def test_what_runs_before_a_commit_is_a_part_of_lint() -> None:
    hooks = YAML(typ="safe", pure=True).load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    lint = (REPOSITORY / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\n\n")[0]
    entries = [hook["entry"].replace(".venv/bin", "$(BIN)") for one in hooks["repos"] for hook in one["hooks"]]
    assert entries
    assert [entry for entry in entries if entry not in lint] == []
