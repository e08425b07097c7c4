"""Refuses settings in a repository's .dvc/config that run commands, read files of this machine, or use its accounts."""

from pathlib import Path
from typing import Any

from tokenmill.errors import VersionsError
from tokenmill.versioning import git

_LOCAL = ".dvc/config.local"
_KEYS = """
    url region endpointurl use_ssl ssl_verify port type shared jobs checksum_jobs worktree version_aware no_traverse verify method
    listobjects cache_regions slow_link_warning protected replication use_https max_sessions timeout connect_timeout read_timeout
    connection_timeout profile user auth custom_auth_header password token passphrase allow_agent allow_anonymous_login
    access_key_id secret_access_key session_token account_name account_key connection_string sas_token tenant_id client_id
    client_secret exclude_environment_credential exclude_visual_studio_code_credential exclude_shared_token_cache_credential
    exclude_managed_identity_credential oss_key_id oss_key_secret oss_endpoint projectname gdrive_client_id gdrive_client_secret
    gdrive_service_account_user_email gdrive_use_service_account gdrive_trash_only gdrive_acknowledge_abuse sse sse_kms_key_id
    sse_customer_algorithm sse_customer_key acl grant_read grant_read_acp grant_write_acp grant_full_control
"""
_HARMLESS = frozenset(_KEYS.split())
"""The keys of DVC's remotes that say where files are and how to sign in, with values in the repository. The others run a command
(bearer_token_command, credential_process by configpath), name a file of this machine (keyfile), show its Kerberos ticket to a host
(gss_auth), send requests by another host (proxy_to), or ask the user for a password."""


def refuse_harmful(repo: Any, repository: str, place: str) -> None:
    """Raises a VersionsError that begins with `place` for a harmful setting. `repo`: DVC's, at a commit of `repository`, a folder
    or a URL. Keys in the folder's .dvc/config.local are the user's own, and allowed."""
    from dvc.config import Config
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    tracked, own = [repo.config.read("repo")], {}
    try:
        root = Path(Repo.find_root(repository))
        config = Config(str(root / ".dvc"), validate=False)
        tracked.append(config.read("repo"))
        if git.git(root, "ls-files", "--", _LOCAL):
            tracked.append(config.read("local"))
        else:
            own = config.read("local")["remote"]
    except NotDvcRepoError:  # a URL or a bare repository, which DVC has cloned
        if "local" in repo.config.files:
            tracked.append(repo.config.read("local"))
    for name, keys in (item for one in tracked for item in one["remote"].items()):
        for key in sorted(keys.keys() - _HARMLESS - own.get(name, {}).keys()):
            raise VersionsError(
                place,
                f".dvc/config, as the repository has it, sets {key} of the remote {name}.",
                "That may run a command, or use files and accounts of this machine, and nothing was fetched. If you "
                f"trust the value, clone the repository, run `dvc remote modify --local {name} {key} VALUE` in the "
                "clone, and name the clone.",
            )
