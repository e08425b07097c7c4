"""The errors with which a remote of DVC fails."""

import sys

_BY_MODULE = {
    "dvc_objects.fs.errors": ("AuthError", "ConfigError", "RemoteMissingDepsError"),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
}


def remote_errors() -> tuple[type[Exception], ...]:
    """OSError, ImportError (the client is not installed), and what clients raise beside them. To be called in an `except`,
    which comes when something was raised: a client that was not imported until then cannot have raised it.

    >>> ValueError in remote_errors()
    False
    """
    clients = [(sys.modules[name], errors) for name, errors in _BY_MODULE.items() if name in sys.modules]
    return (OSError, ImportError, *(getattr(module, error) for module, errors in clients for error in errors))
