"""Fetches objects by their md5 from where a repository keeps them: the DVC cache of a clone, and its default remote.

Of a repository's .dvc/config nothing counts but the address of that remote, and how to sign in there.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.console import say
from tokenmill.errors import VersionsError
from tokenmill.storage.atomic import md5_file
from tokenmill.storage.urls import refuse_password
from tokenmill.versioning import git
from tokenmill.versioning.dvc_repository import cache_directory
from tokenmill.versioning.recorded import Tree
from tokenmill_reader.regular_files import open_regular

_CONFIG, _LOCAL = ".dvc/config", ".dvc/config.local"
_KEYS = """
    url region use_ssl ssl_verify port type shared jobs checksum_jobs worktree version_aware no_traverse verify method
    listobjects cache_regions slow_link_warning protected replication use_https max_sessions timeout connect_timeout read_timeout
    connection_timeout user auth custom_auth_header password token passphrase allow_agent allow_anonymous_login
    access_key_id secret_access_key session_token account_name account_key connection_string sas_token tenant_id client_id
    client_secret exclude_environment_credential exclude_visual_studio_code_credential exclude_shared_token_cache_credential
    exclude_managed_identity_credential oss_key_id oss_key_secret projectname gdrive_client_id gdrive_client_secret
    gdrive_service_account_user_email gdrive_use_service_account gdrive_trash_only gdrive_acknowledge_abuse sse sse_kms_key_id
    sse_customer_algorithm sse_customer_key acl grant_read grant_read_acp grant_write_acp grant_full_control
"""
_HARMLESS = frozenset(_KEYS.split())
"""The keys of DVC's remotes that say where files are and how to sign in, with values in the repository. The others run a command
(bearer_token_command, credential_process by configpath), name a file of this machine (keyfile), show its Kerberos ticket to a host
(gss_auth), send requests by another host (proxy_to), send what is signed with the caller's keys to a host that the repository names
(endpointurl, oss_endpoint), choose among these keys (profile), or ask the user for a password."""


@dataclass(frozen=True)
class Store:
    """A folder of objects. `fs`: DVC's file system of a remote; None: this machine's. `path`: its root there."""

    fs: Any
    path: str

    def fetch(self, md5: str, is_of_dvc_2: bool, target: Path) -> bool:
        """Copies an object to a new file. False if it is not there."""
        folder = [self.path] if is_of_dvc_2 else [self.path, "files", "md5"]
        parts = [*folder, md5[:2], md5[2:]]
        try:
            if self.fs is None:
                with open("/".join(parts), "rb", opener=open_regular) as source, target.open("xb") as copy:
                    shutil.copyfileobj(source, copy)
            else:
                self.fs.get_file(self.fs.join(*parts), str(target))
        except (FileNotFoundError, NotADirectoryError):
            target.unlink(missing_ok=True)
            return False
        return True


def fetch_object(stores: list[Store], md5: str, is_of_dvc_2: bool, target: Path) -> None:
    """Fetches an object from the first of the stores that has it. Raises VersionsError if none has it, or its bytes are others."""
    for store in stores:
        if store.fetch(md5, is_of_dvc_2, target):
            if not is_of_dvc_2 and md5_file(target) != md5.removesuffix(".dir"):
                raise VersionsError(
                    f"{store.path}: {md5}",
                    f"the bytes of this object do not match its name: found the md5 {md5_file(target)}.",
                    "Somebody changed it. Do not use it.",
                    code="TM405",
                )
            return
    where = " and ".join(store.path for store in stores) or "the repository names no default remote"
    raise VersionsError(
        md5,
        f"there is no such object in {where}." if stores else f"{where}, so there is no place to fetch it from.",
        "If the version was published before its data was pushed, run `dvc push` where it was built; else check that "
        "its DVC remote can be reached from here.",
    )


def stores_of(repository: str, tree: Tree, place: str) -> list[Store]:
    """Where the objects of a commit are: for a folder with a clone its DVC cache, then the default remote. `place`: begins errors.

    The remote is that of the user's own configuration if this has one of that name, or the clone's .dvc/config.local has; else that
    of the repository, which is said. Raises VersionsError for a key that is not harmless, ParamsError for a URL with a password,
    and DVC's errors for a config that is none.
    """
    from dvc.config import Config
    from dvc.fs import get_cloud_fs

    root = root_of(repository)
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        above = Path(folder) if root is None else root
        if root is None:  # a URL or a bare repository
            (above / ".dvc").mkdir()
            for name in (_CONFIG, _LOCAL):
                if (text := tree.text(name)) is not None:
                    (above / name).write_text(text, encoding="utf-8")
        try:
            config = Config(str(above / ".dvc"), validate=False)
        except TypeError:
            what = ".dvc/config has a key before its first section; expected sections, such as [core]."
            raise VersionsError(place, what, "Correct it there, or take another version.") from None
        theirs, local = config.read("repo"), config.read("local")
        own = {level: config.read(level) for level in ("system", "global")}
    is_local_tracked = root is None or bool(git.git(root, "ls-files", "--", _LOCAL))
    name = local["core"].get("remote") or theirs["core"].get("remote") or own["global"]["core"].get("remote")
    stores = [] if root is None else [Store(None, str(cache_directory(root)))]
    if not name:
        return stores
    own_remotes = own["system"]["remote"] | own["global"]["remote"]
    if "url" in own_remotes.get(name, {}):
        section, others = own_remotes[name], own_remotes
    else:
        others = theirs["remote"]
        mine = {} if is_local_tracked else local["remote"]
        for tracked in (theirs, local) if is_local_tracked else (theirs,):
            _refuse_harmful(tracked["remote"], mine, place)
        section = {**theirs["remote"].get(name, {}), **local["remote"].get(name, {})}
        refuse_password(f"{place}: its remote {name}", str(section.get("url")))
        if root is None:
            say(f"{place}: its files come from {section.get('url')}")
    kind, settings, path = get_cloud_fs({"remote": {**others, name.lower(): section}}, name=name)
    fs = kind(**settings)
    return [*stores, Store(None if fs.protocol == "local" else fs, path)]


def root_of(repository: str) -> Path | None:
    """The folder with .dvc of a clone on this machine; None for a URL, a bare repository, and a clone without DVC."""
    try:
        top = Path(git.git(Path(repository), "rev-parse", "--show-toplevel").rstrip("\n"))
    except (VersionsError, OSError):
        return None
    here = Path(repository).resolve()
    folders = [ancestor for ancestor in (here, *here.parents) if ancestor.is_relative_to(top.resolve())]
    return next((folder for folder in folders if (folder / ".dvc").is_dir()), None)


def _refuse_harmful(remotes: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, Any]], place: str) -> None:
    """Raises VersionsError for a key of a remote that is not harmless, unless the user's own .dvc/config.local has it."""
    for name, keys in remotes.items():
        for key in sorted(keys.keys() - _HARMLESS - own.get(name, {}).keys()):
            raise VersionsError(
                place,
                f".dvc/config, as the repository has it, sets {key} of the remote {name}.",
                "That may run a command, or use files, keys and accounts of this machine, and nothing was fetched. If you "
                f"trust the value, clone the repository, run `dvc remote modify --local {name} {key} VALUE` in the "
                f"clone, and name the clone; or give your own configuration that remote (`dvc remote add --global {name} URL`).",
            )
