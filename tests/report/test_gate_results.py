"""Gates are read without eval, and hold or fail as their sign says."""

import pytest

from tokenmill.config.gates import parse_gate
from tokenmill.errors import ParamsError, ValidationError
from tokenmill.report.gate_results import Published, check_gates, flat, refuse_broken

MEASURES = flat(
    {"bytes_per_token": {"overall": 4.0, "lang": {"de": 3.5}}, "unused_tokens_share": 0.01, "tokens": 10}
    | {"gini": {"languages": None}}
)
PUBLISHED = Published("dataset@v1.2.0", {"bytes_per_token.lang.de": 4.0})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("bytes_per_token.overall >= 4.0", True),
        ("bytes_per_token.overall > 4", False),
        ("unused_tokens_share<=0.02", True),
        ("unused_tokens_share < 1e-3", False),
        ("tokens == 10", True),
        ("bytes_per_token.lang.de >= 0.95 * published", False),
        ("bytes_per_token.lang.de >= 0.8*published", True),
        ("gini.languages <= 0.3", False),
    ],
)
def test_a_gate_holds_or_not(text: str, holds: bool) -> None:
    (outcome,) = check_gates([text], MEASURES, PUBLISHED)
    assert outcome.holds == holds


@pytest.mark.parametrize(
    "text",
    [
        "bytes_per_token",
        "tokens >= x",
        "tokens => 4",
        ">= 4",
        "tokens >= 4 * other",
        "tokens >= 1e999",
        "tokens >= 4 >= 3",
    ],
)
def test_what_is_no_gate_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="MEASURE SIGN NUMBER"):
        parse_gate(text)


def test_an_unknown_measure_gets_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"did you mean bytes_per_token\?"):
        parse_gate("bytes_per_tokn.overall >= 4")
    with pytest.raises(ParamsError, match=r"Did you mean bytes_per_token\.lang\.de\?"):
        check_gates(["bytes_per_token.lang.du >= 4"], MEASURES, None)


def test_without_a_published_measure_a_gate_holds_and_says_why() -> None:
    gate = ["bytes_per_token.overall >= 0.9 * published"]
    for published, why in (
        (Published(None, {}, "no version is published yet"), "no version is published yet"),
        (PUBLISHED, "dataset@v1.2.0 has no such measure"),
    ):
        (outcome,) = check_gates(gate, MEASURES, published)
        assert outcome.holds and outcome.note == f"not compared: {why}"


def test_the_error_has_a_table_of_what_was_wanted_and_found() -> None:
    outcomes = check_gates(
        ["bytes_per_token.overall >= 4.5", "tokens <= 10", "bytes_per_token.lang.de >= 0.95 * published"],
        MEASURES,
        PUBLISHED,
    )
    with pytest.raises(ValidationError) as caught:
        refuse_broken(outcomes)
    assert caught.value.code == "TM503"
    assert str(caught.value).splitlines()[:4] == [
        "validate.gates: 2 of 3 gates do not hold:",
        "  gate                                         wanted  found",
        "  bytes_per_token.overall >= 4.5               >= 4.5  4",
        "  bytes_per_token.lang.de >= 0.95 * published  >= 3.8  3.5    0.95 × 4 of dataset@v1.2.0",
    ]
    refuse_broken(outcomes[1:2])
