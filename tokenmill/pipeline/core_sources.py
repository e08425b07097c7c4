"""The digest of the core's sources, to tell a compiled core that is older than they are."""

import hashlib
from pathlib import Path

_CRATE = Path(__file__).parent.parent.parent / "core"


def sources_hash(crate: Path = _CRATE) -> str | None:
    """sha256, in hex, over the crate's sources as core/build.rs takes it; None where there are none (an installed wheel).

    Over Cargo.lock, Cargo.toml, build.rs and src/**/*.rs in the order of their names: name, NUL, length (u64, little-endian),
    content.
    """
    if not (crate / "Cargo.toml").is_file():
        return None
    digest = hashlib.sha256()
    names = [
        "Cargo.lock",
        "Cargo.toml",
        "build.rs",
        *(p.relative_to(crate).as_posix() for p in crate.glob("src/**/*.rs")),
    ]
    for name in sorted(names):
        content = (crate / name).read_bytes()
        digest.update(name.encode() + b"\0" + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
