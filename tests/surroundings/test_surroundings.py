"""A build gives the same bytes whatever variables of the environment say to the libraries under it."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import make_project

pytestmark = pytest.mark.slow

DEAD = "http://127.0.0.1:9"
INLINE: dict[str, dict[str, str]] = {
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no assertions and no docstrings": {"PYTHONOPTIMIZE": "2"},
    "no folder of the script": {"PYTHONSAFEPATH": "1"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX": {"LC_ALL": "POSIX", "LANG": ""},
    "another time": {"TZ": "Pacific/Chatham"},
    "numbers that are none": {
        "OMP_NUM_THREADS": "some",
        "RAYON_NUM_THREADS": "some",
        "TOKENIZERS_PARALLELISM": "some",
        "MALLOC_ARENA_MAX": "some",
    },
    "settings of DVC": {
        "DVC_NO_ANALYTICS": "some",
        "DVC_GLOBAL_CONFIG_DIR": "/nowhere",
        "DVC_SYSTEM_CONFIG_DIR": "/nowhere",
        "DVC_STUDIO_URL": DEAD,
        "DVC_STUDIO_TOKEN": "x",
        "DVC_EXP_NAME": "x",
    },
    "no network": {"http_proxy": DEAD, "https_proxy": DEAD, "SSL_CERT_FILE": "/nowhere", "SSL_CERT_DIR": "/nowhere"},
    "no home": {"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"},
}
WITH_PREFECT: dict[str, dict[str, str]] = {
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no assertions and no docstrings": {"PYTHONOPTIMIZE": "2"},
    "settings of Prefect": {
        "PREFECT_API_KEY": "x",
        "PREFECT_API_URL": "",
        "PREFECT_PROFILE": "none",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "0",
        "PREFECT_LOGGING_SETTINGS_PATH": "/nowhere.yml",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "1",
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "1",
    },
    "no home": {"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"},
}
CASES = [("inline", name) for name in INLINE] + [("threads", name) for name in WITH_PREFECT]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a build gives without these variables."""
    return built(tmp_path_factory.mktemp("plain") / "project", "inline", {})


@pytest.mark.parametrize(("engine", "name"), CASES, ids=[" ".join(case) for case in CASES])
def test_the_same_bytes_are_built_in_any_surroundings(
    tmp_path: Path, plain: dict[str, bytes], engine: str, name: str
) -> None:
    variables = (INLINE if engine == "inline" else WITH_PREFECT)[name]
    assert built(tmp_path / "project", engine, variables) == plain


def built(root: Path, engine: str, variables: Mapping[str, str]) -> dict[str, bytes]:
    """The outputs of a build of a project, with a report, which is a page with plots."""
    project = make_project(root)
    project.set(run__engine=engine, run__report_page=True)
    done = project.run(sys.executable, "-m", "tokenmill", "build", **variables)
    assert done.returncode == 0, done.stderr
    return project.outputs()
