"""Signs and verifies the files of a directory with an elliptic-curve key, offline, through the library model-signing."""

import base64
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError, VersionsError
from tokenmill.storage.json_files import parse_json
from tokenmill.storage.links import link

_KEY = (
    "expected a key in PEM, without a password, of the curve P-256, P-384 or P-521. Make one: "
    "openssl ecparam -name prime256v1 -genkey -noout -out KEY, and openssl ec -in KEY -pubout -out PUBKEY."
)
_UNUSABLE = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
)  # the library's errors for malformed input


def check_installed() -> None:
    """Raises ParamsError if the library is missing. Only tokenmill's extra `sign` installs it."""
    try:
        import model_signing.signing  # noqa: F401
    except ImportError as error:
        raise ParamsError(
            "--sign and --verify need the library model-signing, which cannot be imported",
            f"{error}.",
            "Run `pip install model-signing pyopenssl`, which is what tokenmill's extra `sign` brings.",
        ) from None


def sign_directory(directory: Path, private_key: Path, subject: str) -> str:
    """The signature of every file in the directory, as one line of JSON (a Sigstore bundle v0.3).

    `subject`: a name for the files, signed with them in place of the directory's name.

    Raises ParamsError for an unusable key, and VersionsError for a symbolic link, which cannot be signed.
    """
    check_installed()
    from model_signing.signing import Config

    try:
        signer = Config().set_hashing_config(_every_file()).use_elliptic_key_signer(private_key=private_key)
    except (*_UNUSABLE, OSError) as error:
        raise ParamsError(private_key, f"the private key cannot be used: {_reason(error)}; {_KEY}") from None
    # The library signs the name of the directory, so the files are linked into one with the subject's name, on the same disk.
    with tempfile.TemporaryDirectory(prefix=".tokenmill-", dir=directory.parent) as folder:
        named, signed = Path(folder) / subject, Path(folder) / "signature"
        shutil.copytree(
            directory, named, symlinks=True, copy_function=lambda file, target: link(Path(file), Path(target))
        )
        try:
            signer.sign(named, signed)
        except ValueError as error:
            raise VersionsError(directory, f"cannot be signed: {_reason(error)}.") from None
        return signed.read_text(encoding="utf-8")


def verify_directory(directory: Path, signature: str, public_key: Path, place: str) -> str:
    """Checks that the owner of the key signed exactly these files. Gives the signed subject; for signatures of an earlier
    tokenmill, the directory's name.

    Raises a VersionsError that begins with `place` for another key, and for a file that was changed, added or removed. Raises
    ParamsError for an unusable key.
    """
    check_installed()
    from cryptography.exceptions import InvalidSignature
    from model_signing.verifying import Config

    try:
        verifier = Config().set_hashing_config(_every_file()).use_elliptic_key_verifier(public_key=public_key)
    except (*_UNUSABLE, OSError) as error:
        raise ParamsError(public_key, f"the public key cannot be used: {_reason(error)}; {_KEY}") from None
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="tokenmill-") as file:
        file.write(signature)
        file.flush()
        try:
            verifier.verify(directory, file.name)
        except (*_UNUSABLE, InvalidSignature) as error:
            raise VersionsError(
                place,
                f"not what the owner of the key {public_key} signed: {_reason(error)}.",
                "Do not use these files.",
                code="TM405",
            ) from None
    statement = parse_json(base64.b64decode(parse_json(signature)["dsseEnvelope"]["payload"]))
    return str(statement["subject"][0]["name"])


def _every_file() -> Any:
    """Hashes every file. By default the library skips .git* files, so an added one would go unnoticed."""
    from model_signing.hashing import Config

    return Config().set_ignored_paths(paths=[], ignore_git_paths=False)


def _reason(error: Exception) -> str:
    reason = str(error) if isinstance(error, ValueError | OSError) else repr(error)
    return " ".join(reason.split()).rstrip(".")[:500]
