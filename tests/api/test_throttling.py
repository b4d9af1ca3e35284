"""Delays that grow with each failure, and budgets that refill."""

from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.throttling import Backoff, TokenBucket


def test_a_burst_goes_through_and_then_one_in_a_while():
    bucket = TokenBucket(3, 1, period=10.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.seconds_to_level(1, 104.0) == 6.0
    assert [bucket.take(110.0), bucket.take(110.0)] == [True, False]


def test_what_is_not_used_is_kept_up_to_the_size():
    bucket = TokenBucket(2, 1, period=10.0)
    assert [bucket.take(0.0), bucket.take(0.0)] == [True, True]
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_is_set_back_takes_nothing_away_and_gives_nothing():
    bucket = TokenBucket(1, 1, period=10.0)
    assert bucket.take(100.0)
    assert bucket.seconds_to_level(1, 50.0) == 10.0
    assert bucket.take(60.0)


@given(st.lists(st.floats(0, 5), max_size=200))
def test_never_more_than_the_size_and_what_came_in_since(waits):
    bucket, now, taken = TokenBucket(5, 1, period=2.0), 0.0, 0
    for wait in waits:
        now += wait
        taken += bucket.take(now)
        assert taken <= 5 + now / 2.0 + 1e-9


def test_what_is_overspent_comes_in_first():
    bucket = TokenBucket(10, 2, filled_at=0.0)
    bucket.spend(14, 0.0)
    assert bucket.level(0.0) == -4
    assert bucket.seconds_to_level(0, 0.0) == 2.0
    assert bucket.level(2.5) == 1.0


def test_delays_grow_up_to_the_longest():
    backoff = Backoff(0.5, 4.0)
    assert [backoff.delay(failures) for failures in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert Backoff(2.0, 10.0, factor=1.5).delay(2) == 4.5
    assert backoff.delay(10**9) == 4.0
