"""Verifying a signed directory finds any changed file, and model-signing's own command agrees."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.builders.teams import keys
from tokenmill.errors import ParamsError, VersionsError
from tokenmill.versioning.signing import sign_directory, verify_directory

SUBJECT = "a:b@v1.0.0 0123abcd"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Files whose order differs between whole names and parts of names."""
    made = tmp_path / "tokenizer"
    for name in ("a-b.txt", "a/x.json", "a/y/z.bin", "a.txt", "B"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"content of {name}", encoding="utf-8")
    return made


def model_signing(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_signing", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_what_was_signed_verifies(directory: Path, tmp_path: Path, curve: ec.EllipticCurve) -> None:
    private, public = keys(tmp_path, curve)
    assert verify_directory(directory, sign_directory(directory, private, SUBJECT), public, "t") == SUBJECT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda directory: (directory / "B").write_text("x"), r"mismatch for 'B'"),
        (lambda directory: (directory / "a/y/z.bin").unlink(), "Missing files.*: a/y/z.bin"),
        (lambda directory: (directory / "a/new").write_text(""), "Extra files.*: a/new"),
        (
            lambda directory: (directory / "a.txt").rename(directory / "b.txt"),
            "Extra files.*: b.txt.*Missing files.*: a.txt",
        ),
        (lambda directory: (directory / "link").symlink_to("B"), "link.*symlink"),
        (lambda directory: (directory / ".gitattributes").write_text(""), "Extra files.*: .gitattributes"),
    ],
)
def test_a_file_that_differs_is_named(
    directory: Path, tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    private, public = keys(tmp_path)
    signature = sign_directory(directory, private, SUBJECT)
    change(directory)
    with pytest.raises(VersionsError, match=words):
        verify_directory(directory, signature, public, "t")


def test_another_key_and_a_changed_signature_are_refused(directory: Path, tmp_path: Path) -> None:
    private, _public = keys(tmp_path)
    signature = sign_directory(directory, private, SUBJECT)
    _private, other = keys(tmp_path)
    with pytest.raises(VersionsError, match="Key mismatch"):
        verify_directory(directory, signature, other, "t")
    for broken in ("", "{}", "[]", '{"dsseEnvelope": 1}', signature.replace("bundle.v0.3", "bundle.v9")):
        with pytest.raises(VersionsError, match=r"^t: "):
            verify_directory(directory, broken, other, "t")


def test_a_key_of_another_kind_is_refused(directory: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, ec.SECP256K1())
    with pytest.raises(ParamsError, match="P-256"):
        sign_directory(directory, private, SUBJECT)
    with pytest.raises(ParamsError, match="private key cannot be used"):
        sign_directory(directory, public, SUBJECT)
    with pytest.raises(ParamsError, match="No such file"):
        sign_directory(directory, tmp_path / "none.pem", SUBJECT)


@pytest.mark.slow
def test_model_signing_reads_our_signature_and_we_read_its_own(directory: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path)
    ours, theirs = tmp_path / "ours.sig", tmp_path / "theirs.sig"
    ours.write_text(sign_directory(directory, private, SUBJECT), encoding="utf-8")
    verify = ("verify", "key", directory, "--public_key", public, "--signature")
    done = model_signing(*verify, ours)
    assert done.returncode == 0, done.stderr
    done = model_signing("sign", "key", directory, "--private_key", private, "--signature", theirs)
    assert done.returncode == 0, done.stderr
    assert verify_directory(directory, theirs.read_text(encoding="utf-8"), public, "t") == directory.name
    (directory / "B").write_text("changed", encoding="utf-8")
    assert model_signing(*verify, ours).returncode == 1


def test_a_signature_that_tokenmill_made_itself_before_it_called_model_signing_verifies(directory: Path) -> None:
    beside = Path(__file__).parent
    signature = (beside / "earlier.sig").read_text(encoding="utf-8")
    verify_directory(directory, signature, beside / "earlier.pub", "t")
    (directory / "B").write_text("changed", encoding="utf-8")
    with pytest.raises(VersionsError, match="'B'"):
        verify_directory(directory, signature, beside / "earlier.pub", "t")


def test_a_missing_library_is_one_error_that_says_what_to_install(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys(tmp_path)
    signature = sign_directory(directory, private, SUBJECT)
    monkeypatch.setitem(sys.modules, "model_signing", None)  # as Python notes a module that cannot be imported
    with pytest.raises(ParamsError, match="pip install model-signing pyopenssl"):
        sign_directory(directory, private, SUBJECT)
    with pytest.raises(ParamsError, match="pip install model-signing pyopenssl"):
        verify_directory(directory, signature, public, "t")
