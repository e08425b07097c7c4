"""A broken file of Prefect's settings is named, before an import of Prefect fails on it."""

from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill.errors import ParamsError
from tokenmill.orchestration.settings_files import check_files

BROKEN: dict[str, tuple[bytes, str]] = {
    "cut off": (b"active = [\n", "expected TOML"),
    "text in UTF-16": ('active = "a"\n'.encode("utf-16"), "expected UTF-8"),
    "profiles that are a number": (b"profiles = 1\n", "profiles: expected a table; found 1"),
    "a profile that is a number": (b"[profiles]\nteam = 3\n", "profiles.team: expected a table; found 3"),
}
PLACES = ["PREFECT_HOME", "PREFECT_PROFILES_PATH", "HOME", "prefect.toml", "pyproject.toml"]


def place(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tells Prefect in one of several ways where its profiles.toml is, and gives that path."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("PREFECT_HOME", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    path = folder / ".prefect/profiles.toml"
    path.parent.mkdir()
    match how:
        case "PREFECT_HOME":
            monkeypatch.setenv(how, str(path.parent))
        case "PREFECT_PROFILES_PATH":
            monkeypatch.setenv(how, str(path))
        case "prefect.toml":
            Path(how).write_text(f'profiles_path = "{path}"\n', encoding="utf-8")
        case "pyproject.toml":
            Path(how).write_text(f'[tool.prefect]\nprofiles_path = "{path}"\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("how", PLACES)
@pytest.mark.parametrize("case", BROKEN)
def test_broken_profiles_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, how: str) -> None:
    path = place(tmp_path, how, monkeypatch)
    check_files()
    content, words = BROKEN[case]
    path.write_bytes(content)
    with pytest.raises(ParamsError) as raised:
        check_files()
    assert str(path) in str(raised.value) and words in str(raised.value)
    path.write_bytes(b'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n')
    check_files()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("prefect.toml", b"[tool\n", "TOML"),
        ("pyproject.toml", b"[tool\n", "TOML"),
        ("prefect.toml", b"\xff", "UTF-8"),
        (".env", b"\xff", "UTF-8"),
    ],
)
def test_broken_settings_in_the_working_directory_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, expected: str
) -> None:
    place(tmp_path, "HOME", monkeypatch)
    Path(name).write_bytes(content)
    with pytest.raises(ParamsError, match=f"{name}: Prefect's settings: expected {expected}"):
        check_files()


def test_a_virtual_environment_named_env_is_no_file_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, "HOME", monkeypatch)
    Path(".env").mkdir()
    check_files()


def test_a_build_ends_with_the_name_of_the_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.set(run__engine="threads")
    path = project.root / "home/profiles.toml"
    path.parent.mkdir()
    path.write_text("active = [\n", encoding="utf-8")
    monkeypatch.setenv("PREFECT_HOME", str(path.parent))
    done = project.cli("build")
    assert done.returncode == 2
    assert f"error[TM100]: {path}: Prefect's settings: expected TOML" in done.stderr
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
