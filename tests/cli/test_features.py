"""The commands of features: where the command line finds them, and what it imports for them."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
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
    ("command", "features"), [("status", set()), ("build", set()), ("choose", {"plan"}), ("view", {"view"})]
)
def test_a_command_imports_no_feature_but_its_own(command: str, features: set[str]) -> None:
    assert features_imported(command) == features


def test_the_completion_and_mistyped_commands_know_the_commands_of_features() -> None:
    for first in ([], ["completion"], ["veiw"], ["--json"]):
        assert make_parser(first).commands.keys() >= COMMANDS.keys()
