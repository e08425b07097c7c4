"""The most memory that this process held, as Linux counts it."""

from pathlib import Path

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # proc(5), clear_refs


def reset_peak() -> None:
    """From now on, `peak_mb` looks back to this moment; without /proc it looks back further."""
    if (_PROCESS / "clear_refs").exists():
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peak_mb() -> float | None:
    """The largest resident set since `reset_peak`, in millions of bytes; None where the system does not tell."""
    if not (_PROCESS / "status").exists():
        return None
    lines = (_PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    found = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 / 1e6 if found else None
