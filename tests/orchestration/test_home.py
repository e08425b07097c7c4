"""The server of a build keeps its records in the project, and leaves the account's Prefect alone."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import prefect
import pytest
from pytest import MonkeyPatch

from tests.builders.prefect_server import Server, prefect_home, recorded_runs
from tests.conftest import Project
from tokenmill.orchestration.home import Home, _copy_database

pytestmark = pytest.mark.slow

NEWER = "0123456789ab"


def make_newer(home: Path) -> None:
    """Gives the database in a home of Prefect a revision that no Prefect knows yet."""
    database = sqlite3.connect(home / "prefect.db")
    database.execute("update alembic_version set version_num = ?", (NEWER,))
    database.commit()
    database.close()


@pytest.fixture
def account(tmp_path: Path, prefect_database: Path) -> Path:
    """The home folder of an account whose Prefect is newer than the installed one."""
    (tmp_path / "account").mkdir()
    make_newer(prefect_home(tmp_path / "account/.prefect", prefect_database))
    return tmp_path / "account"


def revision(database: Path) -> str:
    connection = sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)
    [[found]] = connection.execute("select version_num from alembic_version").fetchall()
    connection.close()
    return str(found)


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_a_database_that_a_server_made_is_kept_for_further_projects(
    new_project: Callable[[str], Project], tmp_path: Path, prefect_database: Path
) -> None:
    caches = tmp_path / "caches"
    kept = caches / f"tokenmill/prefect/{prefect.__version__}.db"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"damaged")
    project = new_project("first")
    project.set(run__engine="threads")
    project.build(XDG_CACHE_HOME=str(caches))
    assert recorded_runs({"PREFECT_HOME": str(project.root / ".tokenmill/prefect")}, "flow_run")
    assert revision(kept) == revision(prefect_database)

    with MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(caches))
        home = Home(tmp_path / "second", is_own=True)
        assert home.has_to_make_database()
        home.made()
        assert not home.has_to_make_database()
    assert revision(home.path / "prefect.db") == revision(prefect_database)
    with closing(sqlite3.connect(home.path / "prefect.db")) as connection:
        assert connection.execute("select count(*) from flow_run").fetchall() == [(0,)]
    assert [path.name for path in (*kept.parent.iterdir(), *home.path.iterdir())] == [kept.name, "prefect.db"]


def test_a_database_with_records_is_not_kept_and_one_that_is_there_stays(
    tmp_path: Path, prefect_database: Path
) -> None:
    home = Home(prefect_home(tmp_path / "home", prefect_database), is_own=True)
    with MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with closing(sqlite3.connect(home.path / "prefect.db")) as connection:
            connection.execute("insert into configuration (id, key, value) values ('1', 'ENCRYPTION_KEY', '{}')")
            connection.commit()
        home.keep_database()
        [folder] = tmp_path.glob("tokenmill/prefect")
        assert [*folder.iterdir()] == [] and folder.stat().st_mode & 0o077 == 0
        content = (home.path / "prefect.db").read_bytes()
        _copy_database(prefect_database, home.path / "prefect.db")
        assert (home.path / "prefect.db").read_bytes() == content


def test_two_builds_at_once_have_their_own_databases_and_do_not_touch_the_newer_one_of_the_account(
    new_project: Callable[[str], Project], account: Path
) -> None:
    projects = [new_project("one"), new_project("other")]
    for project in projects:
        project.set(run__engine="threads")
    before = state(account / ".prefect")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda project: project.build(HOME=str(account)), projects))
    assert state(account / ".prefect") == before
    for project in projects:
        home = {"PREFECT_HOME": str(project.root / ".tokenmill/prefect")}
        assert recorded_runs(home, "flow_run") == [(f"build {project.root.name}", "COMPLETED")]
        assert (project.root / ".tokenmill/prefect").stat().st_mode & 0o007 == 0


def test_a_database_of_another_prefect_is_one_error_that_names_both_revisions_and_the_ways_out(
    project: Project, account: Path, prefect_database: Path
) -> None:
    project.set(run__engine="threads")
    home = account / ".prefect"
    asked = project.run("tokenmill", "build", HOME=str(account), PREFECT_HOME=str(home))
    own = prefect_home(project.root / ".tokenmill/prefect", prefect_database)
    make_newer(own)
    unasked = project.run("tokenmill", "build", HOME=str(account))
    for done, path, way in ((asked, home, "Unset PREFECT_HOME"), (unasked, own, f"Delete it (`rm -r {own}`)")):
        assert done.returncode == 2
        words = done.stderr.splitlines()[-1]
        assert words.startswith(f"tokenmill: error[TM703]: {path}: ")
        assert f"found revision {NEWER}" in words and f"expects {revision(prefect_database)}" in words
        assert way in words and "PREFECT_API_URL" in words and "run.engine: inline" in words
        assert "Traceback" not in done.stderr


def test_a_server_that_a_profile_of_the_account_names_is_used(project: Project, account: Path, server: Server) -> None:
    profile = f'active = "team"\n[profiles.team]\nPREFECT_API_URL = "{server.url}"\n'
    (account / ".prefect/profiles.toml").write_text(profile, encoding="utf-8")
    project.set(run__engine="threads")
    project.build(HOME=str(account))
    assert server.flow_run(f"build {project.root.name}")["state"]["type"] == "COMPLETED"
    assert not (project.root / ".tokenmill/prefect").exists()


def test_settings_of_the_accounts_database_are_not_the_ones_of_a_build(project: Project, account: Path) -> None:
    """An account's profile may name the database of a team and a password of its server."""
    profile = (
        'active = "own"\n[profiles.own]\nPREFECT_API_DATABASE_CONNECTION_URL = "sqlite+aiosqlite:////nowhere/x.db"\n'
    )
    profile += 'PREFECT_SERVER_API_AUTH_STRING = "name:word"\nPREFECT_API_AUTH_STRING = "name:word"\n'
    (account / ".prefect/profiles.toml").write_text(profile, encoding="utf-8")
    project.set(run__engine="threads")
    project.build(HOME=str(account))
    assert recorded_runs({"PREFECT_HOME": str(project.root / ".tokenmill/prefect")}, "flow_run")
