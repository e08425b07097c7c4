"""Signatures of a directory's files with a key, by the model-signing package, without a network.

The package is the extra `tokenmill[sign]`: it brings 15 others along, which whoever signs nothing can do without.
"""

import tempfile
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError, VersionsError

_MAKE_A_KEY = (
    "Make one: openssl ecparam -name prime256v1 -genkey -noout -out KEY, and openssl ec -in KEY -pubout -out PUBKEY."
)


def sign_directory(directory: Path, private_key: Path) -> str:
    """The signature, as one line of JSON, of every file in the directory, by an elliptic curve key (PEM without password).

    Raises ParamsError for a key that cannot be used, and where model-signing is missing; VersionsError for a link.
    """
    library = _library()
    _refuse_links(directory)
    try:
        config = library.signing.Config().use_elliptic_key_signer(private_key=private_key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ParamsError(
            f"{private_key}: expected a private key in PEM without a password, of the curve P-256, P-384 or P-521: {error}. "
            f"{_MAKE_A_KEY}"
        ) from None
    config.set_hashing_config(_every_file(library))
    with tempfile.TemporaryDirectory() as folder:
        signature = Path(folder) / "signature.json"
        config.sign(directory, signature)
        return signature.read_text(encoding="utf-8")


def verify_directory(directory: Path, signature: str, public_key: Path, place: str) -> None:
    """Refuses a directory that is not, file for file, what the owner of the key signed.

    Raises VersionsError, beginning with `place`, for another key, and for a file that was changed, added or removed;
    ParamsError for a key that cannot be used, and where model-signing is missing.
    """
    library = _library()
    _refuse_links(directory)
    try:
        config = library.verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ParamsError(
            f"{public_key}: expected a public key in PEM, of the curve P-256, P-384 or P-521: {error}. {_MAKE_A_KEY}"
        ) from None
    config.set_hashing_config(_every_file(library))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signature.json"
        path.write_text(signature, encoding="utf-8")
        try:
            config.verify(directory, path)
        except Exception as error:  # noqa: BLE001 — of several libraries, for what anybody may have put into a tag
            raise VersionsError(
                f"{place}: not what the owner of {public_key} signed: {str(error) or type(error).__name__:.300}. Do not use these "
                "files."
            ) from None


def _library() -> Any:
    try:
        import model_signing
    except ImportError as error:
        raise ParamsError(
            f"signatures need the package model-signing ({error}): pip install 'tokenmill[sign]'."
        ) from None
    return model_signing


def _every_file(library: Any) -> Any:
    """Each file by its sha256; none is left out, as model-signing by itself leaves out those of git."""
    config = library.hashing.Config().use_file_serialization(hashing_algorithm="sha256")
    return config.set_ignored_paths(paths=(), ignore_git_paths=False)


def _refuse_links(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_symlink():
            raise VersionsError(f"{path}: is a link; only files can be signed.")
