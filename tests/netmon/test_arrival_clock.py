"""Times of arrival by a clock that nobody sets."""

import pytest
from trimtab_netmon.probing.arrival_clock import ArrivalClock

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


class Clocks:
    """A machine's two clocks, one of which may be set."""

    def __init__(self):
        self.now, self.set_by = 50 * SECOND, 0

    def monotonic(self):
        return self.now

    def wall(self):
        return WALL + self.now + self.set_by


def converted(clock, *stamps):
    """The monotonic times of datagrams that are read together."""
    clock.refresh()
    return [clock.monotonic(stamp) for stamp in stamps]


def test_a_stamp_becomes_the_monotonic_time_of_the_same_moment():
    clocks = Clocks()
    clock = ArrivalClock(clocks.monotonic, clocks.wall)
    stamp = clocks.wall()
    clocks.now += 3_000_000  # the process is woken late
    assert converted(clock, stamp) == [clocks.now - 3_000_000]


@pytest.mark.parametrize("step", [-3600 * SECOND, -9_991_000, 9_991_000, 3600 * SECOND])
def test_a_clock_that_was_set_spoils_the_stamps_of_before_and_none_after(step):
    clocks = Clocks()
    clock = ArrivalClock(clocks.monotonic, clocks.wall)
    stamp = clocks.wall()
    clocks.now += 10_000_000
    clocks.set_by += step
    assert converted(clock, stamp, stamp) == [None, None], "every one of those read together"
    stamp = clocks.wall()
    clocks.now += 1_000_000
    assert converted(clock, stamp) == [clocks.now - 1_000_000]


def test_a_process_that_has_to_wait_between_two_readings_does_not_mistake_that_for_a_set_clock():
    clocks = Clocks()
    clock = ArrivalClock(clocks.monotonic, clocks.wall)
    waits = [0, 500_000_000]

    def interrupted_once():
        clocks.now += waits.pop() if waits else 0
        return clocks.wall()

    clock._wall = interrupted_once
    assert converted(clock, WALL + clocks.now) != [None]
