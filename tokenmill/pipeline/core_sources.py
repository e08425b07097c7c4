"""The digest of the core's sources, which reveals a compiled core that is older than its sources."""

import hashlib
from pathlib import Path

_CRATE = Path(__file__).parent.parent.parent / "core"


def sources_hash(crate: Path = _CRATE) -> str | None:
    """The sha256, in hex, over the crate's sources, computed as in core/build.rs. None without sources (an installed wheel).

    It covers Cargo.lock, Cargo.toml, build.rs and src/**/*.rs in the order of their names. Each adds its name, NUL, its length
    (u64, little-endian) and its content.
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
