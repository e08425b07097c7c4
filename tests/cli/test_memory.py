"""verify keeps the memory that it has freed, unless the user tells glibc what to do."""

import os
import platform
import subprocess
import sys

import pytest

_CODE = """
import resource
import sys
from tokenmill.cli.main import main

def n_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        blocks = [bytes(1 << 16) for _ in range(100)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

main(["verify", "nothing-there"])
n_faults()
print(n_faults(), file=sys.stderr)
"""
_N_PAGES = 50 * 100 * (1 << 16) // os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have settings of their own")
@pytest.mark.parametrize(
    ("asked", "is_kept"),
    [({}, True), ({"MALLOC_TOP_PAD_": "0"}, False), ({"GLIBC_TUNABLES": "glibc.malloc.top_pad=0"}, False)],
)
def test_freed_memory_is_kept_unless_the_user_says_otherwise(asked: dict[str, str], is_kept: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        env={**environment, **asked},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    n_faults = int(done.stderr.splitlines()[-1])
    assert (n_faults < _N_PAGES / 10) is is_kept
