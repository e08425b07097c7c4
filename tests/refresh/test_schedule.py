"""`tokenmill serve` wakes at the moments of its schedule, also when clocks change."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule, tz

from tokenmill.features.refresh.commands import seconds_until, times

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=2 * 365)
STEP = timedelta(minutes=30)  # all clocks of these zones change by a multiple of it, at a multiple of it

ZONES = pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])


def walk(zone: str) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Each half hour of two years, with what the clocks of a zone show then and half an hour before."""
    shown = ZoneInfo(zone)
    at = BEGIN
    while (at := at + STEP) < END:
        yield at, at.astimezone(shown).replace(tzinfo=None), (at - STEP).astimezone(shown).replace(tzinfo=None)


def woken(cron: str, zone: str) -> list[datetime]:
    """The moments at which somebody wakes who asks at each time of the schedule how long to sleep until the next one."""
    clock, found = BEGIN, []
    for at in times(cron, zone, BEGIN):
        clock += timedelta(seconds=seconds_until(at, clock.astimezone(ZoneInfo(zone))))
        if clock >= END:
            return found
        found.append(clock)
    raise AssertionError


@pytest.mark.slow
@ZONES
@pytest.mark.parametrize("minute", [0, 30])
def test_a_time_of_day_comes_once_a_day_at_the_moment_when_clocks_first_show_it_or_have_skipped_it(
    zone: str, minute: int
) -> None:
    moments = list(walk(zone))
    for hour in range(24):
        expected: dict[object, datetime] = {}
        for at, now, before in moments:
            asked = now.replace(hour=hour, minute=minute)
            if before < asked <= now:
                expected.setdefault(now.date(), at)
        assert woken(f"{minute} {hour} * * *", zone) == list(expected.values()), hour


@ZONES
def test_every_hour_is_every_moment_at_which_clocks_show_a_full_hour(zone: str) -> None:
    assert woken("0 * * * *", zone) == [at for at, now, _ in walk(zone) if now.minute == 0]


@pytest.mark.slow
@ZONES
def test_times_of_day_that_clocks_show_are_those_of_dateutil(zone: str) -> None:
    shown = tz.gettz(zone)
    for hour in range(24):
        rule = rrule.rrule(rrule.DAILY, dtstart=datetime(2025, 12, 31, hour), until=datetime(2028, 1, 2))
        moments = [at.replace(tzinfo=shown).astimezone(UTC) for at in rule if tz.datetime_exists(at, shown)]
        found = woken(f"0 {hour} * * *", zone)
        clocks = [at.astimezone(ZoneInfo(zone)) for at in found]
        at_the_hour = [at for at, now in zip(found, clocks, strict=True) if (now.hour, now.minute) == (hour, 0)]
        assert at_the_hour == [at for at in moments if BEGIN < at < END]
        assert len(found) - len(at_the_hour) <= 2, "a time that clocks skip comes when they go forward"
