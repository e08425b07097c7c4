"""The documentation is true: its commands and its Python run in page order, and print what the pages show."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.builders.pieces import PIECES, PLAIN
from tests.builders.teams import cli, run
from tests.conftest import DOCUMENTS, REPOSITORY, Project
from tests.times import PATIENCE_S
from tokenmill import Tokenizer
from tokenmill.cli.main import make_parser
from tokenmill.config.load_params import load_params
from tokenmill.error_pages import error_pages
from tokenmill.features.convert.convert import convert
from tokenmill.features.convert.formats.pieces import document_of
from tokenmill.project.examples import with_settings
from tokenmill.project.parameters import keys

README = REPOSITORY / "README.md"
PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE_OF_A_PROJECT = re.compile(r"# (tasks|flows)/")  # tests/orchestration/test_own_steps.py runs these

NOT_RUN = {
    r"pip install|make test": "it wants a package registry",
    r"prefect |export PREFECT_API_URL": "it wants a server that stays; tests/orchestration starts one",
    r"python -c .*SlackWebhook": "it wants a server that stays",
    r"tokenmill pin": "it wants a project that takes a tokenizer; tests/versioning/test_use.py makes one",
    r"tokenmill serve": "it runs until Ctrl-C; tests/refresh/test_refresh.py runs it",
    r"tokenmill (publish|fetch) .*--(sign|verify)": "it wants a key; tests/versioning/test_signing.py makes one",
    r"tokenmill (upload|verify|info|download) s3:": "it wants a server of S3; tests/versioning/test_upload.py starts one",
    r"tokenmill upload hf:": "it wants a hub; tests/versioning/test_upload_hub.py starts one",
    r"dask (scheduler|worker)|ray start": "it wants several machines; tests/orchestration/test_clusters.py starts a cluster on one",
    r"dvc remote \w+ --global": "it changes the settings of the account",
    r"dvc remote add -d store s3:": "it wants a server of S3; tests/corpus/test_s3.py starts one",
}
"""Commands that are only parsed, where they are tokenmill's, and why."""

FOUND = {"tokenmill status": {1}, "tokenmill diff": {1}, "tokenmill doctor": {1}}
"""Exit codes beside 0 that are no failure: they say what was found."""

FROM_NOTHING = ("docs/index.md", "docs/tutorial.md")
"""Pages whose reader has no project yet; all others start in one that was built and committed."""

NOT_SHOWN = re.compile(r"^starting Prefect.*\n", flags=re.MULTILINE)
"""What the shown builds print and those of this test do not: their run.engine is inline."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """The blocks that somebody wrote; tests/cli/test_help.py holds the examples of commands that are generated."""
    name = page.relative_to(REPOSITORY).as_posix()
    written = re.sub(r"<!-- generated.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [Block(name, language, text) for language, text in FENCE.findall(written)]


def commands_of(block: Block) -> list[tuple[str, str | None]]:
    """Each command with what it prints; None where the page does not show it."""
    if block.language == "sh":
        return [(line, None) for line in block.text.splitlines() if line.strip()]
    if block.language == "console":
        shown = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, flags=re.MULTILINE)
        assert shown, f"{block.page}: no line starts with $"
        return shown
    return []


BLOCKS = {page.relative_to(REPOSITORY).as_posix(): blocks_of(page) for page in PAGES}
COMMANDS = [command for blocks in BLOCKS.values() for block in blocks for command, _ in commands_of(block)]
RUN = [
    page
    for page, blocks in BLOCKS.items()
    if not page.startswith("docs/recipes/")  # interop/test_recipes.py runs these with the packages of trainers
    and any(
        block.language in ("sh", "console", "python") and not FILE_OF_A_PROJECT.match(block.text) for block in blocks
    )
]


def reason_not_to_run(command: str) -> str | None:
    return next((reason for words, reason in NOT_RUN.items() if re.match(words, command)), None)


@dataclass
class Session:
    """A shell that remembers its folder in a file."""

    folder: Path
    file: Path
    words: dict[str, str]

    def run(self, command: str) -> tuple[int, str]:
        """Runs a line as it is shown, but for names such as URL, which get a value; returns exit code and output."""
        for word, value in self.words.items():
            command = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", value, command)
        if command.startswith("tokenmill ") and "&&" not in command:  # in this process, which takes half the time
            said = cli(Project(self.folder), *shlex.split(command, comments=True)[1:])
            return said.returncode, said.stderr + said.stdout
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }
        done = subprocess.run(
            ["bash", "-c", f"trap 'pwd > {self.file}' EXIT\n{command}"],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.folder = Path(self.file.read_text(encoding="utf-8").strip())
        if command.startswith("tokenmill init"):
            inline(Project(next(self.folder.glob("**/params.yaml")).parent))
        return done.returncode, done.stdout


def inline(project: Project) -> None:
    change(project, {"run.engine": "inline"})


def change(project: Project, settings: Mapping[str, str]) -> None:
    """Changes keys of params.yaml, and keeps its remarks."""
    path = project.root / "params.yaml"
    path.write_text(with_settings(path.read_text(encoding="utf-8"), settings), encoding="utf-8")


@pytest.fixture(scope="module")
def git_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A name for commits, the branch that the pages call main, and no configuration of DVC in the account."""
    settings = {"user.name": "Team", "user.email": "team@example.org", "init.defaultBranch": "main"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
        patch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path_factory.mktemp("dvc")))
        for i, (key, value) in enumerate(settings.items()):
            patch.setenv(f"GIT_CONFIG_KEY_{i}", key)
            patch.setenv(f"GIT_CONFIG_VALUE_{i}", value)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, git_settings: None) -> Project:
    """A new project with six short documents, built and committed."""
    folder = tmp_path_factory.mktemp("docs")
    assert cli(Project(folder), "init", "my-tokens").returncode == 0
    project = Project(folder / "my-tokens")
    inline(project)
    change(project, {"train_vocab.vocab_size": "272"})
    for shard, documents in DOCUMENTS.items():
        project.write(shard, documents)
    assert cli(project, "build").returncode == 0
    run(project.root, "git", "add", "-A")
    run(project.root, "git", "commit", "-q", "-m", "First build")
    return project


def prepare_dvc(project: Project, bare: Path) -> None:
    """The reader of the page on DVC has changed a parameter, and has a git repository to push to."""
    run(project.root, "git", "remote", "add", "origin", str(bare))
    run(project.root, "git", "push", "-q", "-u", "origin", "main")
    change_a_parameter(project, bare)


def change_a_parameter(project: Project, bare: Path) -> None:
    """The reader has changed a parameter, so that there is something to build."""
    change(project, {"train_vocab.vocab_size": "270"})


def prepare_tokenizer(project: Project, bare: Path) -> None:
    """The reader of the page on other tokenizers has one, and a model of SentencePiece."""
    pieces = project.root / "pieces.json"
    pieces.write_text(json.dumps(document_of(PIECES, False, PLAIN, "a")), encoding="utf-8")
    convert(pieces, project.root, "sentencepiece")
    (project.root / "tokenizer.model").rename(project.root / "model.model")
    shutil.copy(project.root / "data/tokenizer/tokenizer.json", project.root)


def prepare_drop(project: Project, bare: Path) -> None:
    """The reader of the page on taking documents out has named the list."""
    change(project, {"source.drop": "drop.csv"})
    pipeline = project.root / "dvc.yaml"
    text = pipeline.read_text(encoding="utf-8")
    pipeline.write_text(text.replace("deps: [data/raw", "deps: [data/raw, drop.csv"), encoding="utf-8")


def prepare_columns(project: Project, bare: Path) -> None:
    """Gives each document a language and a number of stars, which the project is to keep."""
    for path in (project.root / "data/raw").rglob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [line | {"lang": ["en", "de", None][i % 3], "stars": i} for i, line in enumerate(lines)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    change(project, {"source.keep_columns": "[lang, stars]"})


def prepare_trim(project: Project, bare: Path) -> None:
    """The reader of the page on trimming has a tokenizer to trim, and the settings for it."""
    (project.root / "old").mkdir()
    shutil.copytree(project.root / "data/tokenizer", project.root / "old/tokenizer")
    digest = Tokenizer.load(project.root / "old/tokenizer").digest
    change(project, {"train_vocab.trim": f"{{from: old/tokenizer, digest: {digest}, keep: 268, counts: null}}"})


def prepare_parity(project: Project, bare: Path) -> None:
    """The reader of the page on parity has two languages, and the settings for it."""
    for path in (project.root / "data/raw").rglob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [line | {"lang": ["en", "en", "de"][i % 3]} for i, line in enumerate(lines)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    change(project, {"count.by": "lang", "train_vocab.parity": "{variant: base}"})


def prepare_superwords(project: Project, bare: Path) -> None:
    """The reader of the page on superwords has the settings for them."""
    change(project, {"count.superwords": "superbpe", "train_vocab.superwords": "{transition: 0.5, words_max: 4}"})
    change(project, {"train_vocab.vocab_size": "300"})


PREPARE: dict[str, Callable[[Project, Path], None]] = {
    "docs/guides/documents.md": prepare_columns,
    "docs/guides/drop.md": prepare_drop,
    "docs/guides/dvc.md": prepare_dvc,
    "docs/guides/other-tokenizers.md": prepare_tokenizer,
    "docs/guides/parity.md": prepare_parity,
    "docs/guides/plan.md": change_a_parameter,
    "docs/guides/superwords.md": prepare_superwords,
    "docs/guides/trim.md": prepare_trim,
}


def normal(text: str) -> str:
    """The text with numbers and their units, digests and widths of columns left out."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", NOT_SHOWN.sub("", text))
    text = re.sub(r"[─╌═]+", "─", re.sub(r"\d[\d,.]*( [kMG]B)?", "N", text))
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def assert_prints(page: str, command: str, shown: str, printed: str) -> None:
    """Compares them; `…` stands for anything."""
    wanted = re.escape(normal(shown)).replace("…", ".*")
    if not re.fullmatch(wanted, normal(printed), flags=re.DOTALL):
        pytest.fail(f"{page}: {command}\nprints:\n{printed}", pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_a_page_runs_and_prints_what_it_shows(page: str, built: Project, tmp_path: Path) -> None:
    bare = tmp_path / "team.git"
    run(tmp_path, "git", "init", "-q", "--bare", str(bare))
    words = {
        "FILES": f"{built.root}/data/raw/*.jsonl",
        "URL": str(bare),
        "git@example.org:team/tokens.git": str(bare),
        "/mnt/team/store": str(tmp_path / "store"),
        "OLD": "HEAD~1",
        "--top 4096": "--top 128",
        "make demo": "rm -r data/raw && python -m tokenmill.corpus.sample data/raw && tokenmill build && echo done",
        "NEW.jsonl": str(tmp_path / "new.jsonl"),
    }
    (tmp_path / "new.jsonl").write_text('{"id": "new", "text": "one more document"}\n', encoding="utf-8")
    session = Session(tmp_path, tmp_path / "folder", words)
    if page not in FROM_NOTHING:
        session.folder = shutil.copytree(built.root, tmp_path / "my-tokens", symlinks=True)
        PREPARE.get(page, lambda project, bare: None)(Project(session.folder), bare)
    for block, following in zip(BLOCKS[page], [*BLOCKS[page][1:], None], strict=True):
        if block.language == "python" and not FILE_OF_A_PROJECT.match(block.text):
            done = Project(session.folder).run(sys.executable, "-c", block.text)
            assert done.returncode == 0, f"{page}:\n{block.text}\n{done.stderr}"
            if following is not None and following.language == "text":
                assert_prints(page, block.text, following.text, done.stdout)
        for command, shown in commands_of(block):
            if reason_not_to_run(command):
                continue
            code, printed = session.run(command)
            found = FOUND.get(" ".join(command.split()[:2]), set())
            assert code in {0} | found, f"{page}: {command}\n{printed}"
            if shown is not None:
                assert_prints(page, command, shown, printed)


def test_a_command_that_is_not_run_is_one_of_the_command_line() -> None:
    unrun = [command for command in COMMANDS if reason_not_to_run(command) and command.startswith("tokenmill ")]
    assert unrun
    for command in unrun:
        make_parser().parse_args(shlex.split(command, comments=True)[1:])  # SystemExit where it is none


@pytest.mark.parametrize("words", NOT_RUN)
def test_a_reason_not_to_run_is_in_use(words: str) -> None:
    assert [command for command in COMMANDS if re.match(words, command)]


def test_a_shown_output_that_differs_in_more_than_numbers_is_noticed() -> None:
    assert_prints("page", "command", "count  2  0.6 run\n…\nend", "count 1,284 15.5   run\nx\ny\nend\n")
    with pytest.raises(pytest.fail.Exception, match="prints"):
        assert_prints("page", "command", "count  2  run", "count  2  up to date")


SETTINGS = [
    pytest.param(block.text, id=f"{page}-{i}")
    for page, blocks in BLOCKS.items()
    for i, block in enumerate(block for block in blocks if block.language == "yaml" and block.text[0] != " ")
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_that_are_shown_are_allowed(text: str, tmp_path: Path) -> None:
    yaml = YAML(typ="safe", pure=True)
    params: dict[str, Any] = yaml.load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    for section, values in yaml.load(text.replace("SHA256", "a" * 64)).items():
        params[section] = values if section == "tokenizer" else params.get(section, {}) | values
    (tmp_path / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    load_params(tmp_path / "params.yaml")


def test_no_command_with_what_it_prints_stands_in_two_places() -> None:
    shown = [
        pair
        for blocks in BLOCKS.values()
        for block in blocks
        for pair in commands_of(block)
        if len((pair[1] or "").split()) > 1
    ]
    assert len(shown) > 10
    assert [pair for pair in set(shown) if shown.count(pair) > 1] == []


def test_every_error_code_that_a_page_names_is_one() -> None:
    named = {code for page in PAGES for code in re.findall(r"\bTM\d{3}\b", page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert named <= error_pages().keys()


def test_a_recipe_names_a_version_of_the_lock_for_each_package_that_it_was_run_with() -> None:
    lock = (REPOSITORY / "interop/requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^([\w-]+)==([\w.]+)", lock, re.MULTILINE)
    for page in (REPOSITORY / "docs/recipes").glob("*.md"):
        said = re.search(r"This was run with (.*?)\.\n\Z", page.read_text(encoding="utf-8"), re.DOTALL)
        if said is not None and "of its own" not in said[1]:
            named = re.findall(r"([\w-]+)\s(\d[\d.]*\d)", said[1])
            assert {name for name, _ in named} == {name for name, _ in {*named} & {*locked}}, page.name


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 8_000


def test_a_line_of_prose_has_at_most_120_characters() -> None:
    # code, tables, pictures, addresses
    others = r"```.*?^```$|<!-- generated.*?^<!-- end -->$|^(?:\||<|!\[|#|    ).*?$|^[^\n]*https?://[^\n]*$"
    long = []
    for page in [*PAGES, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "SECURITY.md"]:
        text = re.sub(others, "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        long += [f"{page.name}: {line}" for line in text.splitlines() if len(line) > 120]
    assert long == []


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert len(links) > 10
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_every_params_key_is_explained_in_a_guide() -> None:
    guides = " ".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs/guides").glob("*.md"))
    guides = re.sub(r"<!-- generated.*?<!-- end -->", "", guides, flags=re.DOTALL)
    names = {name.split(".")[1] for name in keys() if name.count(".") == 1} - {"approximate"}
    assert [name for name in names if not re.search(rf"`(\w+\.)?{name}\b", guides)] == []


def test_the_page_of_layers_names_every_folder() -> None:
    text = (REPOSITORY / "docs/design/layers.md").read_text(encoding="utf-8")
    folders, rooms = (
        set(re.findall(r"^\| `(\w+)/` \|", text.split("## Layers")[i], flags=re.MULTILINE)) for i in (0, 1)
    )
    assert len(folders) == 9
    assert [folder for folder in folders if not (REPOSITORY / folder).is_dir()] == []
    assert rooms == {path.parent.name for path in (REPOSITORY / "tokenmill").glob("*/__init__.py")}
