"""No room of tests takes a larger part of the whole than tests/budget.toml gives it."""

from pathlib import Path

import pytest

from tests.times import KINDS, budget, recorded, room_of, shares

TESTS = Path(__file__).parent
SLACK = 2
POINTS = 2.0  # of small rooms, whose share is mostly noise


def over_budget(now: dict[str, float], allowed: dict[str, float]) -> list[str]:
    """A line for each room whose share is more than twice its budget, and two points."""
    return [
        f"{room}: {share:.1f} % of the whole, budget {allowed.get(room, 0)} %"
        for room, share in sorted(now.items())
        if share > SLACK * allowed.get(room, 0) + POINTS
    ]


@pytest.mark.parametrize("kind", KINDS.values())
def test_each_room_keeps_to_its_share_in_the_last_run(kind: str) -> None:
    seconds = recorded(kind)
    if not seconds:
        pytest.skip("no run of all these tests is recorded here")
    over = over_budget(shares(seconds), budget()[kind])
    assert not over, "Make these tests faster, or raise the share in tests/budget.toml and say why:\n" + "\n".join(over)


@pytest.mark.parametrize("kind", KINDS.values())
def test_the_shares_are_of_rooms_and_make_a_whole(kind: str) -> None:
    allowed = budget()[kind]
    rooms = {room_of(path.relative_to(TESTS.parent).as_posix()) for path in TESTS.rglob("test_*.py")}
    assert allowed.keys() <= rooms
    assert 95 <= sum(allowed.values()) <= 105


def test_a_room_that_takes_more_is_named() -> None:
    allowed = {"chat": 10.0, "corpus": 90.0}
    assert over_budget({"chat": 21.9, "corpus": 78.1}, allowed) == []
    assert over_budget({"chat": 22.1, "corpus": 77.9}, allowed) == ["chat: 22.1 % of the whole, budget 10.0 %"]
    assert over_budget({"view": 2.1, "corpus": 97.9}, allowed) == ["view: 2.1 % of the whole, budget 0 %"]
    assert shares({"tests/chat/test_a.py": 1, "tests/chat/test_b.py": 2, "tests/test_c.py": 1}) == {
        "chat": 75.0,
        "test_c": 25.0,
    }
