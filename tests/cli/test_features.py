"""The commands of features: where the command line finds them, and what it imports for them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.packages import write_dist_info
from tests.conftest import REPOSITORY, Project
from tokenmill.cli.main import make_parser
from tokenmill.features import PARTS

COMMANDS = PARTS["commands"]


def features_imported(*arguments: str) -> set[str]:
    """The features of which a command line imports a module, or prepares to run one."""
    script = (
        "import sys; from tokenmill.cli.main import make_parser; make_parser(sys.argv[1:])\n"
        "print(*{name.split('.')[2] for name in sys.modules if name.startswith('tokenmill.features.')})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_each_command_of_the_table_is_added_by_its_part() -> None:
    for name in COMMANDS:
        assert name in make_parser([name]).commands
    assert make_parser().commands.keys() >= COMMANDS.keys()


@pytest.mark.parametrize(
    ("command", "features"),
    [
        ("status", set()),
        ("build", set()),
        ("check", {"convert"}),
        ("choose", {"plan"}),
        ("conform", {"conform"}),
        ("gc", {"share"}),
        ("locate", {"view"}),
        ("remap", {"trim"}),
        ("serve", {"refresh"}),
        ("view", {"view"}),
    ],
)
def test_a_command_imports_no_feature_but_its_own(command: str, features: set[str]) -> None:
    assert features_imported(command) == features


def test_the_completion_and_mistyped_commands_know_the_commands_of_features() -> None:
    for first in ([], ["completion"], ["veiw"], ["--json"]):
        assert make_parser(first).commands.keys() >= COMMANDS.keys()


@pytest.fixture
def installed(tmp_path: Path) -> Project:
    """A folder that Python searches, with the package of the page of layers as it is installed."""
    page = (REPOSITORY / "docs/design/layers.md").read_text(encoding="utf-8")
    [entry] = re.findall(r"^hello = .greeting.commands:add_commands.$", page, flags=re.MULTILINE)
    [module, _] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    folder = tmp_path / "site"
    (folder / "greeting").mkdir(parents=True)
    (folder / "greeting/commands.py").write_text(module, encoding="utf-8")
    _register(folder, entry.replace('"', ""))
    return Project(tmp_path)


def _register(folder: Path, *entries: str) -> None:
    write_dist_info(folder, "greeting", 1, "commands", *entries)


def _run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.run(
        sys.executable, "-m", "tokenmill", *arguments, PYTHONPATH=f"{project.root / 'site'}:{REPOSITORY}"
    )


def test_another_package_adds_a_command_by_an_entry_point(installed: Project) -> None:
    assert _run(installed, "hello", "Ada").stdout == "Hello, Ada.\n"
    assert json.loads(_run(installed, "hello", "Ada", "--json").stdout)["result"] == {"greeted": "Ada"}
    lines = _run(installed, "--help").stdout.splitlines()
    at = lines.index("of other packages:")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["hello", "greet", "somebody"],
        ["example:", "tokenmill", "hello", "Ada"],
    ]
    assert "Did you mean hello?" in _run(installed, "helo").stderr


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            ["status = greeting.commands:add_commands"],
            "the package greeting adds 'status' to tokenmill.commands, a name that tokenmill has already. Uninstall that package, "
            "or ask its authors for another name.",
        ),
        (
            ["view = greeting.commands:add_commands"],
            "the package greeting adds 'view' to tokenmill.commands, a name that tokenmill has already. Uninstall that package, "
            "or ask its authors for another name.",
        ),
        (
            ["hello = greeting.commands:add"],
            "'greeting.commands:add', which the package greeting adds to tokenmill.commands, cannot be imported: module "
            "'greeting.commands' has no attribute 'add'. Install the version of that package that goes with this tokenmill, or "
            "uninstall it.",
        ),
    ],
)
def test_a_part_that_cannot_be_used_is_one_error(installed: Project, entries: list[str], said: str) -> None:
    _register(installed.root / "site", *entries)
    done = _run(installed, "--help")
    assert (done.returncode, done.stderr) == (2, f"tokenmill: error[TM001]: {said}\n")
    assert _run(installed, "explain", "TM001").returncode == 0  # a command of tokenmill asks no other package
