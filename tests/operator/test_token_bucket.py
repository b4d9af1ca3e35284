"""How often one job may cost something."""

from hypothesis import given
from hypothesis import strategies as st
from trimtab_operator.kube.token_bucket import TokenBucket


def test_a_burst_goes_through_and_then_one_in_a_while():
    bucket = TokenBucket(3, 10.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.seconds_to_token(104.0) == 6.0
    assert [bucket.take(110.0), bucket.take(110.0)] == [True, False]


def test_what_is_not_used_is_kept_up_to_the_size():
    bucket = TokenBucket(2, 10.0)
    assert [bucket.take(0.0), bucket.take(0.0)] == [True, True]
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_is_set_back_takes_nothing_away_and_gives_nothing():
    bucket = TokenBucket(1, 10.0)
    assert bucket.take(100.0)
    assert bucket.seconds_to_token(50.0) == 10.0
    assert bucket.take(60.0)


@given(st.lists(st.floats(0, 5), max_size=200))
def test_never_more_than_the_size_and_what_came_in_since(waits):
    bucket, now, taken = TokenBucket(5, 2.0), 0.0, 0
    for wait in waits:
        now += wait
        taken += bucket.take(now)
        assert taken <= 5 + now / 2.0 + 1e-9
