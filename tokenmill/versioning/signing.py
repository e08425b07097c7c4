"""Signatures of a directory's files with a key, in the format of the model-signing package, without a network.

A signature is a Sigstore bundle (v0.3) around a DSSE envelope around an in-toto statement, which lists the sha256 of every
file. model-signing itself reads and writes the same; it brings 15 packages along, for ways of signing that need a network.
"""

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError, VersionsError
from tokenmill.storage.atomic import sha256_file

_BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://model_signing/signature/v1.0"


def sign_directory(directory: Path, name: str, private_key: Path) -> str:
    """The signature, as one line of JSON, of every file in the directory, by an elliptic curve key (PEM without password).

    `name` is what the statement calls the directory. Raises ParamsError for a key that cannot be used.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    key = _private_key(private_key)
    digests = _digests(directory)
    root = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests.values())).hexdigest()
    statement = {
        "_type": _STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": root}}],
        "predicateType": _PREDICATE_TYPE,
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": []},
            "resources": [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in digests.items()],
        },
    }
    payload = json.dumps(statement).encode()
    signature = key.sign(_signed_bytes(payload), ec.ECDSA(_hash_of(key.curve.key_size)))
    bundle = {
        "mediaType": _BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": _hint(key.public_key())}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }
    return json.dumps(bundle, separators=(",", ":"))


def verify_directory(directory: Path, signature: str, public_key: Path, place: str) -> None:
    """Refuses a directory that is not, file for file, what the owner of the key signed.

    Raises VersionsError, beginning with `place`, for another key, and for a file that was changed, added or removed;
    ParamsError for a key that cannot be used.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec

    key = _public_key(public_key)
    payload, signed = _envelope(signature, place)
    try:
        key.verify(signed, _signed_bytes(payload), ec.ECDSA(_hash_of(key.curve.key_size)))
    except InvalidSignature:
        raise VersionsError(f"{place}: the signature was not made with the key of {public_key}.") from None
    expected = _signed_digests(payload, place)
    found = _digests(directory)
    wrong = [
        f"{name} was {'added' if name not in expected else 'removed' if name not in found else 'changed'}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
    if wrong:
        raise VersionsError(f"{place}: not what was signed: {', '.join(wrong[:5])}. Do not use these files.")


def _digests(directory: Path) -> dict[str, str]:
    """The sha256 of every file by its name, in the order of the names' parts, as model-signing sorts paths."""
    links = [path for path in directory.rglob("*") if path.is_symlink()]
    if links:
        raise VersionsError(f"{links[0]}: is a link; only files can be signed.")
    files = sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return {path.as_posix(): sha256_file(directory / path) for path in files}


def _envelope(signature: str, place: str) -> tuple[bytes, bytes]:
    """What was signed, and its signature."""
    try:
        bundle: Any = json.loads(signature)
        envelope = bundle["dsseEnvelope"]
        if (bundle["mediaType"], envelope["payloadType"]) != (_BUNDLE_TYPE, _PAYLOAD_TYPE):
            raise VersionsError(f"{place}: a signature of another kind: {bundle['mediaType']!r:.80}.")
        payload, signed = envelope["payload"], envelope["signatures"][0]["sig"]
        return base64.b64decode(payload, validate=True), base64.b64decode(signed, validate=True)
    except (ValueError, KeyError, TypeError, IndexError, binascii.Error) as error:
        raise VersionsError(f"{place}: the signature cannot be read: {error!r:.80}.") from None


def _signed_digests(payload: bytes, place: str) -> dict[str, str]:
    """The sha256 of each file that a signed statement lists."""
    try:
        statement: Any = json.loads(payload)
        if (statement["_type"], statement["predicateType"]) != (_STATEMENT_TYPE, _PREDICATE_TYPE):
            raise VersionsError(f"{place}: a statement of another kind: {statement['predicateType']!r:.80}.")
        predicate = statement["predicate"]
        method = predicate["serialization"]["method"], predicate["serialization"]["hash_type"]
        if method != ("files", "sha256"):
            raise VersionsError(
                f"{place}: signed by {' and '.join(map(str, method))}; only files by sha256 can be verified."
            )
        return {one["name"]: one["digest"] for one in predicate["resources"]}
    except (ValueError, KeyError, TypeError) as error:
        raise VersionsError(f"{place}: the signed statement cannot be read: {error!r:.80}.") from None


def _signed_bytes(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what the signature is over."""
    return b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE.encode(), len(payload), payload)


def _hint(public_key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _hash_of(key_bits: int) -> Any:
    from cryptography.hazmat.primitives import hashes

    return {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}[key_bits]


def _private_key(path: Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:
        raise ParamsError(f"{path}: expected a private key in PEM without a password: {error}.") from None
    return _checked(path, key, ec.EllipticCurvePrivateKey)


def _public_key(path: Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except ValueError as error:
        raise ParamsError(f"{path}: expected a public key in PEM: {error}.") from None
    return _checked(path, key, ec.EllipticCurvePublicKey)


def _checked(path: Path, key: Any, kind: type[Any]) -> Any:
    curve = key.curve.name if isinstance(key, kind) else None
    if curve not in ("secp256r1", "secp384r1", "secp521r1"):
        raise ParamsError(
            f"{path}: expected a key of the curve P-256, P-384 or P-521. Make one: "
            "openssl ecparam -name prime256v1 -genkey -noout -out KEY, and openssl ec -in KEY -pubout -out PUBKEY."
        )
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ParamsError(f"{path}: the key cannot be read: {error.strerror}.") from None
