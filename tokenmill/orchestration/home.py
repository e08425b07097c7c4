"""Chooses where an embedded server keeps its database: in the project's folder, unless PREFECT_HOME is set."""

import os
import shlex
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from prefect import __version__ as prefect_version
from prefect.settings import get_current_settings

from tokenmill.errors import TokenmillError
from tokenmill.layout import PREFECT_DIRECTORY
from tokenmill.storage.atomic import is_left_over, partial_path
from tokenmill.storage.writable import user_caches

_EMPTY_DATABASES = "tokenmill/prefect"
_TABLES_OF_RECORDS = ("flow_run", "block_document", "configuration")
_SQLITE, _DATABASE = "sqlite+aiosqlite:///", "prefect.db"


@dataclass(frozen=True)
class Home:
    """The home of an embedded server. `is_own`: whether it is the project's, not PREFECT_HOME.

    A server with the home of the account would migrate the account's database, and could not read that of a newer Prefect.
    """

    path: Path
    is_own: bool

    @classmethod
    def of(cls, root: Path) -> Self:
        """The home of the embedded server of the project at `root`."""
        settings = get_current_settings()
        if "home" in settings.model_fields_set:
            return cls(settings.home, is_own=False)
        return cls((root / PREFECT_DIRECTORY).absolute(), is_own=True)

    def made(self) -> dict[str, str]:
        """Creates the home if it is the project's own, and gives the environment variables that make a server use it. The profile
        stays the account's, which the build reads too.

        The server works in the home and names its database there without a folder, because the path of a folder may have what ends
        a path in a URL. Empty if Prefect is configured to have its database elsewhere.
        """
        database = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"{_SQLITE}{_DATABASE}"}
        if not self.is_own:
            chosen = get_current_settings().server.database.connection_url
            is_here = chosen is not None and chosen.get_secret_value() == f"{_SQLITE}{self.path}/{_DATABASE}"
            return {"PREFECT_HOME": str(self.path.absolute()), **database} if is_here else {}
        self.path.mkdir(mode=0o770, parents=True, exist_ok=True)  # closed to others, because blocks hold secrets
        if self.has_to_make_database() and (kept := _empty_database()) is not None:
            _copy_database(kept, self.path / _DATABASE)
        return {
            "PREFECT_HOME": str(self.path),
            "PREFECT_PROFILES_PATH": str(get_current_settings().profiles_path),
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "0",  # whoever saves a block registers its type
            **database,
        }

    def has_to_make_database(self) -> bool:
        """Whether the server makes its database as it starts, by Prefect's migrations, which take some seconds."""
        return self.is_own and not (self.path / _DATABASE).exists()

    def keep_database(self) -> None:
        """Keeps a copy of the database that the server has just made for further projects of this user, unless it has records."""
        if (kept := _empty_database()) is None:
            return
        with suppress(OSError):
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in kept.parent.glob(f"{kept.name}*"):  # a damaged one, or of a killed build
                if left.suffix != ".partial" or is_left_over(left):
                    left.unlink()
        _copy_database(self.path / _DATABASE, kept)

    def how_to_save(self, block: str) -> str:
        """Says what to do if the block TYPE/NAME is not in this home."""
        if not self.is_own:
            return f"Its blocks are those of PREFECT_HOME, {self.path}: save it there, or correct refresh.notify."
        return (
            f"A build's own server has its blocks in {self.path}. Save the block there: run the code that saves it with "
            f"PREFECT_HOME={shlex.quote(str(self.path))}. Or set PREFECT_HOME=~/.prefect for tokenmill, if {block} is among the "
            "blocks of your account."
        )

    def other_revision(self, revision: str) -> TokenmillError:
        """The error for a database whose revision `revision` is unknown to the installed Prefect."""
        name = shlex.quote(str(self.path))
        ways = (
            f"Delete it (`rm -r {name}`): it has only the records of earlier builds and the blocks that were saved there."
            if self.is_own
            else "Unset PREFECT_HOME, which gives each project a database of its own, or name another folder in it."
        )
        return TokenmillError(
            self.path,
            f"Prefect's database there is of another Prefect, probably a newer one: found revision {revision}; Prefect "
            f"{prefect_version}, which is installed here, expects {self._revision()} or an earlier one.",
            f"{ways} Or install the Prefect that made it, name its standing server in PREFECT_API_URL, or set run.engine: inline "
            "in params.yaml.",
            code="TM703",
        )

    def _revision(self) -> str:
        from alembic.script import ScriptDirectory
        from prefect.server.database.alembic_commands import alembic_config
        from prefect.server.database.dependencies import provide_database_interface
        from prefect.server.database.orm_models import AioSqliteORMConfiguration

        orm = AioSqliteORMConfiguration() if self.is_own else provide_database_interface().orm
        config = alembic_config()
        config.set_main_option("version_locations", str(orm.versions_dir))
        return str(ScriptDirectory.from_config(config).get_current_head())


def _empty_database() -> Path | None:
    """Where the empty database of the installed Prefect is kept; None if this user can keep none."""
    caches = user_caches()
    return None if caches is None else caches / _EMPTY_DATABASES / f"{prefect_version}.db"


def _copy_database(source: Path, target: Path) -> None:
    """Copies a database without records, also one in use, unless there is one already. If that fails there is no copy: the server
    makes the database, or says what is wrong."""
    partial = partial_path(target)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as original,
            closing(sqlite3.connect(partial)) as copy,
        ):
            original.backup(copy)
            copy.execute("pragma journal_mode=delete")  # in WAL mode, reading it would leave two files beside it
            records = [copy.execute(f"select 1 from {table} limit 1").fetchone() for table in _TABLES_OF_RECORDS]
        if not any(records):
            os.link(partial, target)  # never in place of a database that another process has made meanwhile
    except (sqlite3.Error, OSError):
        pass
    finally:
        with suppress(OSError):
            partial.unlink()
