"""Projects, homes of Prefect and datasets in folders of any name, and the few names that are refused before anything is made."""

import os
import unicodedata
from pathlib import Path

import pytest

import tokenmill
from tests.builders import in_process
from tests.builders.document_sets import documents_dataset
from tests.conftest import REPOSITORY
from tokenmill.dataset.manifest import read_manifest
from tokenmill.versioning.dvc_settings import set_in

NAMES = {
    "umlaut": "Müller",
    "decomposed umlaut": unicodedata.normalize("NFD", "Müller"),
    "space and quotes": "a 'b' \"c\"",
    "percent": "a%b%20c",
    "parts of a URL": "a?b=c#d&e;f@g:1",
    "a glob": "a*[b]?",
    "for a shell": "$HOME `x` ~ \\",
    "for YAML and jinja": "{{x}}: - [y], z",
    "beyond the first plane": "😀 东京",
}
REFUSED = {
    "newline": "a\nb",
    "carriage return": "a\rb",
    "line separator": "a\u2028b",
    "not UTF-8": os.fsdecode(b"a\xffb"),
    "a variable of DVC's configuration": "%(x)s",
    "three quotes": "a'''b",
}


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("command", [["init", "."], ["build"], ["status"]], ids=lambda command: command[0])
def test_a_path_that_dvc_cannot_write_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, command: list[str]
) -> None:
    folder = tmp_path / name / "p"
    folder.mkdir(parents=True)
    if command != ["init", "."]:
        (folder / "params.yaml").write_bytes((REPOSITORY / "params.yaml").read_bytes())
    before = list(folder.iterdir())
    done = in_process.tokenmill(folder, *command)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("tokenmill: error[TM100]: ") and line.endswith("Rename the folder.")
    assert list(folder.iterdir()) == before


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_dvc_reads_the_settings_that_are_set_for_it(tmp_path: Path, name: str) -> None:
    from dvc.config import Config

    path = tmp_path / name / "config.local"
    path.parent.mkdir()
    path.write_text("['remote \"r\"']\n    url = /Müller # ours\n    password = %(x)\n", encoding="utf-8")
    set_in(path, "core", {"site_cache_dir": str(path)})
    set_in(path, "core", {"analytics": False})
    assert "# ours" in path.read_text(encoding="utf-8")
    found = Config.load_file(str(path))
    assert found["core"] == {"site_cache_dir": str(path), "analytics": "False"}
    assert found["remote"]["r"] == {"url": "/Müller", "password": "%(x)"}


def test_a_url_of_a_file_names_a_folder_of_any_name(tmp_path: Path) -> None:
    local = documents_dataset(tmp_path / "local", [[[1, 2], [3]]], ["arrow"])
    place = tmp_path / NAMES["percent"] / NAMES["umlaut"] / read_manifest(local).digest[:16]
    place.parent.mkdir(parents=True)
    (place / "tokens").parent.mkdir()
    local.rename(place / "tokens")
    for url in (place.as_uri(), f"file://{place}".replace("%", "%25")):
        dataset = tokenmill.open(url, cache=tmp_path / "cache")
        assert [ids.tolist() for ids in dataset] == [[1, 2], [3]]
