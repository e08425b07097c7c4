"""A project is built, published, cloned, fetched, shown and read in any surroundings, or one error says what is wrong with them."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders.teams import Team, commit, copied, make_team
from tests.conftest import REPOSITORY, make_project
from tokenmill.dataset.manifest import read_manifest

pytestmark = pytest.mark.slow

NAME = (
    "'b' \"c\" %b%20?b=c#d&e;f@g:1 *[b]? $HOME `x` ~ \\ {{x}}: - [y], z 😀 " + unicodedata.normalize("NFD", "ü") + "ü"
)
BROKEN = b"\xff[[[broken\n= = {\0"
TRAP = b"raise SystemExit('the module of a library was imported from the working folder')\n"
FOLDERS = {
    name: f"BASE/{name}/{NAME}\n" for name in ("HOME", "TMPDIR", "PREFECT_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
}
INTERPRETER = {"PYTHONSAFEPATH": "1", "PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error"}
ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
HTTP_PROXIES = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), "http://PROXY") | {
    "no_proxy": ""
}
ADDRESSES = (resource.RLIMIT_AS, (6_000 << 20, 6_000 << 20))
AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
GIT_SETTINGS = """
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[gpg]
    program = /bin/false
[core]
    fsmonitor = BASE/hooks/any
    hooksPath = BASE/hooks
    autocrlf = true
[push]
    default = nothing
[status]
    short = true
    branch = true
    showUntrackedFiles = no
[color]
    ui = always
[log]
    showSignature = true
[fetch]
    pruneTags = true
"""


@dataclass(frozen=True)
class Surroundings:
    """`environment`: variables; BASE stands for the folder of the test, PROXY for an address, and None unsets a variable. `files`:
    what is in that folder. `folder`: the name of the team's folder in it. `prefix`: the beginning of the command. `says`: what the
    error of the build has to name; None where each step ends well."""

    engine: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Sequence[tuple[int, tuple[int, int]]] = ()
    folder: str = "team"
    umask: int = -1
    prefix: Sequence[str] = ()
    says: str | None = None


TABLE = {
    # Each row has what cannot hide something else of the row: all of it must be without effect.
    "workers of a cluster": Surroundings(
        "dask",
        {**FOLDERS, **INTERPRETER, **HTTP_PROXIES, "TZ": "Pacific/Chatham"},
        limits=[ADDRESSES],
        folder=NAME,
        umask=0o077,
    ),
    # Ray's sockets need a short path, and its dashboard, which runs for what it reports, asks clouds by the proxies.
    "workers of Ray": Surroundings(
        "ray",
        {**FOLDERS, **INTERPRETER, "TMPDIR": tempfile.gettempdir(), "TZ": "Pacific/Chatham"},
        folder=NAME,
        umask=0o077,
    ),
    # DVC's own commands fail where the folder for caches has letters beyond ASCII, too.
    "names, a mask and a far time": Surroundings(
        "threads", {**FOLDERS, "XDG_CACHE_HOME": "BASE/caches", "TZ": "Pacific/Chatham"}, folder=NAME, umask=0o077
    ),
    "an interpreter of other ways, in ASCII, with limits": Surroundings(
        "inline",
        {**INTERPRETER, **ASCII, "LC_ALL": "POSIX"},
        limits=[ADDRESSES, (resource.RLIMIT_NOFILE, (64, 64))],
    ),
    "HTTP proxies, modules of our names, and settings of git": Surroundings(
        "threads",
        {
            **HTTP_PROXIES,
            "GIT_CONFIG_GLOBAL": "BASE/gitconfig",
        },
        {
            **{
                f"team/project/{name}.py": TRAP
                for name in ("tokenmill", "polars", "json", "numpy", "tokenizers", "sitecustomize")
            },
            "team/project/prefect/__init__.py": TRAP,
            "gitconfig": GIT_SETTINGS.encode(),
            "hooks/any": b"",
        },
    ),
    "a SOCKS proxy, no home, no settings of git, and ASCII": Surroundings(
        "threads",
        {
            **ASCII,
            "ALL_PROXY": "socks5h://PROXY",
            "HOME": None,
            "XDG_CACHE_HOME": None,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C",
        },
    ),
    "a home that cannot be written to, with settings that no build reads": Surroundings(
        "threads",
        {
            "HOME": "BASE/home",
            "PREFECT_API_KEY": "x",
            "PREFECT_API_URL": "",
            "PREFECT_PROFILE": "none",
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "0",
            "PREFECT_LOGGING_SETTINGS_PATH": "/nowhere.yml",
            "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "1",
            "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "1",
        },
        {
            f"home/{name}": BROKEN
            for name in (
                ".aws/config",
                ".aws/credentials",
                ".config/pip/pip.conf",
                ".config/matplotlib/matplotlibrc",
                ".netrc",
            )
        },
        prefix=AS_A_USER,
    ),
    "no network, numbers that are none, and settings of DVC": Surroundings(
        "inline",
        {
            **dict.fromkeys(
                ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM", "DVC_NO_ANALYTICS"), "some"
            ),
            **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "DVC_GLOBAL_CONFIG_DIR", "DVC_SYSTEM_CONFIG_DIR"), "/nowhere"),
            "MALLOC_ARENA_MAX": "some",
            "DVC_STUDIO_URL": "http://127.0.0.1:9",
            "DVC_STUDIO_TOKEN": "x",
            "DVC_EXP_NAME": "x",
            "PREFECT_HOME": "BASE/prefect",
        },
        {"prefect/profiles.toml": BROKEN},
    ),
    "files that may be small": Surroundings(
        "threads", limits=[(resource.RLIMIT_FSIZE, (64 << 10,) * 2)], says="ulimit -f"
    ),
    "a temporary folder of other bytes": Surroundings(
        "inline", {"TMPDIR": os.fsdecode(b"/a\xff")}, says="the environment's TMPDIR"
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team, and what a build without these surroundings gave it."""
    project = make_project(tmp_path_factory.mktemp("built") / "project")
    project.set(run__workers=1, run__report_page=True)
    return make_team(project)


@pytest.mark.parametrize("name", TABLE)
def test_every_step_ends_well_or_in_one_error(
    built: Team, tmp_path: Path, proxy: tuple[str, list[bytes]], name: str
) -> None:
    row = TABLE[name]
    address, heard = proxy
    team = copied(built, tmp_path / row.folder)
    team.project.set(run__engine=row.engine)
    with (team.project.root / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("*.py\n")
    commit(team.project)
    for path, content in row.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.replace(b"BASE", os.fsencode(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for variable, value in row.environment.items():
        environment.pop(variable, None)
        if value is not None:
            environment[variable] = value.replace("BASE", str(tmp_path)).replace("PROXY", address)
            if value == FOLDERS.get(variable):
                Path(environment[variable]).mkdir(parents=True)
    if row.prefix:
        (tmp_path / "home").chmod(0o555)
    done = subprocess.run(
        [*row.prefix, sys.executable, str(REPOSITORY / "tests/builders/steps.py"), json.dumps(steps(team, row))],
        cwd=tmp_path,
        env=environment,
        umask=row.umask,
        preexec_fn=lambda: [resource.setrlimit(*limit) for limit in row.limits],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
    assert heard == []
    if row.says is not None:
        assert done.returncode == 2, done.stderr
        [error] = [line for line in done.stderr.splitlines() if line.startswith("tokenmill: error")]
        assert row.says.replace("BASE", str(tmp_path)) in error
        return
    assert done.returncode == 0, done.stderr
    assert team.project.outputs() == built.project.outputs()
    if row.engine in ("dask", "ray"):
        return
    fetched, published = (
        folder / "tokenizer.json"
        for folder in (team.bare.parent / "clone/fetched", team.project.root / "data/tokenizer")
    )
    assert fetched.read_bytes() == published.read_bytes()


def steps(team: Team, row: Surroundings) -> list[list[str]]:
    """What `tests/builders/steps.py` is to do: the build, and what follows it, unless the row is about the build alone."""
    root, above = str(team.project.root), team.bare.parent
    building = [[root, "tokenmill", "build", "--force"]]
    if row.says is not None or row.engine in ("dask", "ray"):
        return building
    clone, tokens = str(above / "clone"), team.project.root / "data/tokens"
    stored = above / "place" / read_manifest(tokens).digest[:16]
    return [
        *building,
        [str(above), "tokenmill", "init", "--quiet", "another"],
        [root, "dvc", "remote", "modify", "--local", "store", "verify", "true"],
        *([root, "tokenmill", *command] for command in (["status"], ["verify"], ["publish", "tokenizer@v1.0.0"])),
        [root, "git", "clone", "--quiet", str(team.bare), clone],
        [clone, "dvc", "pull"],
        [clone, "tokenmill", "status"],
        [clone, "tokenmill", "upload", str(above / "place")],
        [clone, "tokenmill", "download", stored.as_uri(), "downloaded"],
        [clone, "tokenmill", "fetch", "tokenizer@v1.0.0", "--from", str(team.bare), "fetched"],
        [root, "view", str(tokens)],
        [root, "read", str(tokens)],
        [root, "read", stored.as_uri(), str(above / "cache")],
    ]
