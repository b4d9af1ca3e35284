"""A measurement out of turn is asked for when exchanges stay off their time, and more rarely where that is in vain."""

from itertools import pairwise

from trimtab.control.doubt import Doubt


def asked(doubt, sync, *, expected=0.1, step=0.3, seconds=600.0):
    """The times at which it asks, over steps that all take the same."""
    times, now = [], 0.0
    while now < seconds:
        doubt.observe(sync, expected, step)
        if doubt.asks(now):
            times.append(now)
        now += step
    return times


def test_exchanges_on_time_raise_no_doubt():
    assert asked(Doubt(), 0.1) == []
    assert asked(Doubt(), 0.12) == []


def test_exchanges_that_are_off_by_little_of_a_step_raise_no_doubt():
    assert asked(Doubt(), 0.01, expected=0.03, step=0.3) == []


def test_three_slow_or_three_fast_exchanges_in_a_row_do():
    assert asked(Doubt(), 0.3)[0] == 0.6
    assert asked(Doubt(), 0.02)[0] == 0.6


def test_slow_and_fast_in_turns_do_not():
    doubt = Doubt()
    for step in range(30):
        doubt.observe(0.3 if step % 2 else 0.02, 0.1, 0.3)
        assert not doubt.asks(step * 0.3)


def test_measuring_in_vain_makes_the_next_wait_twice_as_long():
    times = asked(Doubt(), 0.3)
    waits = [after - before for before, after in pairwise(times)]
    assert len(times) <= 9
    assert all(after > 1.6 * before for before, after in pairwise(waits[:5]))


def test_a_change_of_the_network_restores_the_first_patience():
    doubt = Doubt()
    asked(doubt, 0.3, seconds=300)
    doubt.settle(300.0)
    for step in range(1, 30):
        doubt.observe(0.3, 0.1, 0.3)
        if doubt.asks(300 + step * 0.3):
            break
    assert 4.0 <= step * 0.3 <= 5.0
