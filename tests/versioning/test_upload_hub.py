"""A dataset in a dataset of a Hugging Face hub is there whole or not at all, and comes back as it was."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.hub_server import TOKEN, Hub, hub_of
from tests.builders.teams import Team, make_team
from tests.conftest import new_project

pytestmark = pytest.mark.slow

PLACE = "hf://datasets/org/name/sets"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    project = new_project.__wrapped__(tmp_path_factory.mktemp("built"))("project")  # type: ignore[attr-defined]
    for i in range(20):
        project.write(f"more/{i:02}.jsonl", [f"document {i} about {n} cats" for n in range(20)])
    return make_team(project)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_of(tmp_path / "hub") as one:
        yield one


def run(team: Team, hub: Hub, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    return team.project.run("tokenmill", *arguments, **(hub.environment(hub.folder.parent / "home") | changes))


def files_of(folder: Path) -> dict[str, bytes]:
    names = ("tokens", "tables", "tokenizer")
    found = [path for name in names for path in (folder / name).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_a_dataset_goes_to_a_hub_in_one_commit_and_comes_back(team: Team, hub: Hub, tmp_path: Path) -> None:
    digest = json.loads((team.project.root / "data/tokens/manifest.json").read_text())["digest"]
    done = run(team, hub, "upload", PLACE)
    assert (done.returncode, done.stdout) == (0, f"{PLACE}/{digest[:16]}\n"), done.stderr
    assert hub.n_commits == 2
    there = files_of(hub.folder / "sets" / digest[:16])
    assert there == files_of(team.project.root / "data")
    assert json.loads((team.project.root / "data/uploads.json").read_text())[digest]["urls"] == [done.stdout.strip()]

    again = run(team, hub, "upload", f"{PLACE}/")
    assert again.returncode == 0 and "sent 0 bytes" in again.stderr
    assert hub.n_commits == 2
    next((hub.folder / "sets" / digest[:16] / "tables").iterdir()).unlink()
    mended = run(team, hub, "upload", PLACE)
    assert mended.returncode == 0 and "1 sent" in mended.stderr, mended.stderr

    (hub.folder / "sets" / digest[:16] / "upload.json").unlink()
    assert run(team, hub, "upload", PLACE).returncode == 0
    assert (hub.folder / "sets" / digest[:16] / "upload.json").exists()
    hub.failing_lists = [503]
    back = run(team, hub, "download", done.stdout.strip(), str(tmp_path / "back"))
    assert back.returncode == 0, back.stderr
    assert files_of(tmp_path / "back") == there
    for arguments in (["verify", "--no-source"], ["info"], ["diff", "data"]):
        looked = run(team, hub, *arguments, done.stdout.strip())
        assert looked.returncode == 0, looked.stderr
        assert TOKEN not in looked.stderr + done.stderr


def test_commits_that_fail_or_meet_another_one_are_made_again(team: Team, hub: Hub, tmp_path: Path) -> None:
    hub.failing, hub.failing_lists = [503, 412], [503]  # 412: somebody else has committed meanwhile
    code = f"""
from pathlib import Path
from tokenmill.features.share import upload
upload._N_IN_COMMIT = 10
done = upload.upload(Path(), "{PLACE}")
print(sum(done.files.values()) - done.files["sent"], done.url)
"""
    done = team.project.run(sys.executable, "-c", code, **hub.environment(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"0 {PLACE}/"), "all files are said to be sent"
    folder = hub.folder / "sets" / done.stdout.strip().rpartition("/")[2]
    assert files_of(folder) == files_of(team.project.root / "data")
    assert hub.n_commits > 3
    sent = [one for one in hub.asked if one.startswith("/kept/")]
    assert len(sent) == len(set(sent)), "a large file is sent once"


def test_another_manifest_is_not_overwritten(team: Team, hub: Hub) -> None:
    digest = json.loads((team.project.root / "data/tokens/manifest.json").read_text())["digest"]
    path = hub.folder / "sets" / digest[:16] / "tokens/manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    done = run(team, hub, "upload", PLACE)
    assert done.returncode == 2 and "nothing is overwritten" in done.stderr
    assert path.read_text() == "{}"


def test_a_manifest_that_comes_meanwhile_is_not_overwritten(team: Team, hub: Hub, tmp_path: Path) -> None:
    digest = json.loads((team.project.root / "data/tokens/manifest.json").read_text())["digest"]
    path = hub.folder / "sets" / digest[:16] / "tokens/manifest.json"
    code = f"""
from pathlib import Path
from tokenmill.features.share import upload
def commit_another(*arguments):
    path = Path({str(path)!r})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("other")
    return wrong_file(*arguments)
wrong_file, upload.wrong_file = upload.wrong_file, commit_another
upload.upload(Path(), "{PLACE}")
"""
    done = team.project.run(sys.executable, "-c", code, **hub.environment(tmp_path / "home"))
    assert "nothing is overwritten" in done.stderr
    assert path.read_text() == "other"


@pytest.mark.parametrize(
    ("command", "changes", "place", "words"),
    [
        ("upload", {"HF_TOKEN": "hf_another"}, PLACE, "create the dataset on the hub"),
        ("upload", {}, PLACE.replace("name", "name@v2"), "the dataset has no such revision"),
        ("upload", {"HF_HUB_OFFLINE": "1"}, PLACE, "HF_HUB_OFFLINE is set"),
        ("upload", {}, "hf://org/name", "expected hf://datasets/ORGANIZATION/NAME/path"),
        ("gc", {}, PLACE, "a hub keeps the files of all commits"),
    ],
)
def test_what_does_not_work_is_one_error(
    team: Team, hub: Hub, command: str, changes: dict[str, str], place: str, words: str
) -> None:
    done = run(team, hub, command, place, **changes)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr
    assert hub.n_commits == 1
