"""A call of the core on hostile input ends soon after the deadline of its thread. Ctrl-C is looked for at the same places."""

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.builders.core_calls import BYTES, encoder
from tokenmill import _core
from tokenmill.errors import PatternError, UnitTimeoutError

LONG = b"x" * 2**20
TOKENS = {token: id for id, token in enumerate([*BYTES, LONG])}
FAR = r"(?!.*Z)[\s\S]"
DEADLINE_S = 0.05
LATE_S = 8  # 0.4 s on an idle machine


def calls() -> dict[str, Callable[[], object]]:
    long = encoder(TOKENS, [])
    ids = [TOKENS[LONG]] * 1000
    chain = ["a" * n for n in range(1, 600)]
    return {
        "split by a look-ahead to the end": lambda: _core.split([FAR], "a" * 5_000_000),
        "split by a look-ahead to the end, in steps": lambda: _core.split([r"[a-z]+", FAR], "a" * 5_000_000),
        "split by a regex to the end": lambda: _core.split([r"(?s)a(?:.*Z)?"], "a" * 20_000_000),
        "count by a look-ahead to the end": lambda: _core.Counter([FAR]).update(["a" * 5_000_000]),
        "decode long tokens": lambda: long.decode_bytes(ids),
        "decode a batch of long tokens": lambda: long.decode_batch(pa.array([ids], pa.list_(pa.uint32())), 1),
        "make an encoder": lambda: encoder({b"%d" % id: id for id in range(1_000_000)}, []),
        "find many texts": lambda: _core.TextFinder(["a"]).spans("a" * 3_000_000),
        "find texts that overlap": lambda: _core.TextFinder(chain).occurring(["a" * 300_000]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", calls())
def test_a_call_ends_soon_after_its_deadline(name: str) -> None:
    call = calls()[name]
    start = time.monotonic()
    _core.deadline(DEADLINE_S)
    try:
        with pytest.raises(UnitTimeoutError):
            call()
    finally:
        _core.deadline(None)
    assert time.monotonic() - start < LATE_S


@pytest.mark.parametrize("pattern", [r"(?:(?!.*Z)[\s\S])*", r"(?:(?=[\s\S]*Z)a)+|b", r"(?:x(?<!a{2,}))*"])
def test_a_pattern_whose_single_match_may_take_hours_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"the pattern .* repeats a look-around") as error:
        _core.split([pattern], "a")
    assert repr(pattern)[1:8] in str(error.value)


@pytest.mark.parametrize("pattern", [r"(?=(\d{3})+(?!\d))", r"(?:(?!END)[\s\S])*", r"(?:(?!.*Z)a){0,9}", r"\s+(?=\S+)"])
def test_a_look_around_that_is_bounded_or_not_repeated_is_run(pattern: str) -> None:
    assert "".join(_core.split([pattern], "a 1234567 END")) == "a 1234567 END"
