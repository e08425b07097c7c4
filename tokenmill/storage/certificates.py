"""Checks the variables that name certificates: clients of Prefect, and git's library, end in a traceback over wrong ones."""

import os
import ssl

from tokenmill.errors import ParamsError


def check_certificates() -> None:
    """Raises ParamsError for an SSL_CERT_DIR that is no folder, and an SSL_CERT_FILE that is no file of certificates."""
    for name, is_there in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        path = os.environ.get(name)
        if not path:
            continue
        what = (
            ""
            if is_there(path)
            else f"there is no {path}, or it is no {'file' if name == 'SSL_CERT_FILE' else 'folder'}"
        )
        if not what and name == "SSL_CERT_FILE":
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
            except OSError as error:
                what = f"{path}: {error}"
        if what:
            raise ParamsError(f"the environment's {name}", f"{what}.", "Correct the variable, or unset it.")
