"""The exceptions that a DVC remote can raise."""

import sys

_BY_MODULE = {
    "dvc_objects.fs.errors": ("AuthError", "ConfigError", "RemoteMissingDepsError"),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
}


def remote_errors() -> tuple[type[Exception], ...]:
    """OSError, ImportError (the client is not installed), and the other exceptions of the clients. Call this in an `except`
    clause, which is evaluated after the raise: a client that is not imported by then cannot have raised.

    >>> ValueError in remote_errors()
    False
    """
    clients = [(sys.modules[name], errors) for name, errors in _BY_MODULE.items() if name in sys.modules]
    return (OSError, ImportError, *(getattr(module, error) for module, errors in clients for error in errors))
