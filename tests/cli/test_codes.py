"""Every error has a code, and every code a page."""

import errno
import json
import re
from pathlib import Path

import pytest

import tokenmill
import tokenmill_reader
from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill import errors
from tokenmill.error_pages import error_pages
from tokenmill.errors import TokenmillError, code_of

SOURCES = [Path(one.__file__).parent for one in (tokenmill, tokenmill_reader)]


def kinds(kind: type[TokenmillError] = TokenmillError) -> list[type[TokenmillError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in kinds(below))]


def in_sources() -> set[str]:
    """The codes that errors are raised with."""
    texts = [path.read_text(encoding="utf-8") for folder in SOURCES for path in folder.rglob("*.py")]
    return {code for text in texts for code in re.findall(r'"(TM\d+)"', text)}


def test_every_kind_of_error_has_a_code_with_a_page() -> None:
    assert {kind.__name__ for kind in kinds() if kind.code not in error_pages()} == set()
    own = [kind.code for kind in kinds() if "code" in vars(kind)]
    assert len(set(own)) == len(own)
    assert {
        kind.__name__ for kind in kinds() if kind.__module__ == errors.__name__ and "code" not in vars(kind)
    } == set()


def test_every_code_has_a_page_of_whole_sentences_and_is_used() -> None:
    for code, page in error_pages().items():
        assert re.fullmatch(r"TM\d{3}", code)
        assert page.title and not page.title.endswith(".")
        for text in (page.meaning, page.advice):
            assert text[0].isupper() or text.startswith(("`", "params.yaml", "dvc.yaml", "run.", "tokenmill"))
            assert text.endswith(".")
    assert in_sources() == set(error_pages())
    assert list(error_pages()) == sorted(error_pages())
    assert len({page.title for page in error_pages().values()}) == len(error_pages())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TokenmillError("x"), "TM900"),
        (errors.CorpusError("x"), "TM200"),
        (errors.CorpusError("x", code="TM203"), "TM203"),
        (errors.SpecialTokenError(0, 1, "<s>"), "TM205"),
        (errors.BusyError("x", "y"), "TM402"),
        (OSError(errno.ENOSPC, "x"), "TM601"),
        (OSError(errno.EDQUOT, "x"), "TM601"),
        (OSError(errno.EACCES, "x"), "TM602"),
        (KeyboardInterrupt(), "TM801"),
        (errors.Terminated(), "TM802"),
        (errors.InternalError("x"), "TM901"),
        (ValueError("x"), "TM901"),
    ],
)
def test_an_error_has_the_code_of_its_kind(error: BaseException, code: str) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"source__glob": "data/none/*"}, "TM203"),
        ({"source__golb": "x"}, "TM101"),
        ({"run__workers": 0}, "TM102"),
        ({"run__memory_mb_max": 17}, "TM110"),
        ({"source__text_column": "words"}, "TM209"),
        ({"count__pattern": "("}, "TM302"),
    ],
)
def test_a_mistake_in_the_parameters_has_a_code_of_its_own(
    project: Project, change: dict[str, object], code: str
) -> None:
    project.set(**change)
    done = cli(project, "build")
    assert done.returncode == 2
    assert f"tokenmill: error[{code}]: " in done.stderr


def test_explain_prints_the_page_of_a_code_and_lists_all(tmp_path: Path) -> None:
    here = Project(tmp_path)
    page = cli(here, "explain", "TM203").stdout
    assert page.startswith("TM203: no file matches\n")
    assert page.replace("\n", " ").count(error_pages()["TM203"].advice) == 1
    assert cli(here, "explain", "tm203").stdout == cli(here, "explain", "203").stdout == page
    assert [line.split()[0] for line in cli(here, "explain").stdout.splitlines()] == list(error_pages())
    assert json.loads(cli(here, "explain", "--json").stdout)["result"]["TM203"]["title"] == "no file matches"


def test_explain_suggests_the_nearest_code(tmp_path: Path) -> None:
    done = cli(Project(tmp_path), "explain", "TM2203")
    assert done.returncode == 2
    assert "there is no code 'TM2203'. Did you mean TM203?" in done.stderr
