"""How many requests the operator makes, and how what recurs is spread."""

import time
from concurrent.futures import ThreadPoolExecutor

from fake_api import fake_api
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.decisions.policies.timers import SPREAD, spread
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.rate_limit import RateLimit
from trimtab_operator.kube.resources import PODS


class Clock:
    """Time that passes while somebody sleeps."""

    now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@given(rate=st.floats(1, 1000), burst=st.integers(1, 100), pauses=st.lists(st.floats(0, 2), max_size=50))
def test_no_more_turns_are_given_than_the_burst_and_the_rate(rate, burst, pauses):
    clock = Clock()
    limit = RateLimit(rate, burst, clock, clock.sleep)
    for turn, pause in enumerate(pauses, start=1):
        clock.now += pause
        limit.wait()
        assert turn <= burst + rate * clock.now + 1e-6


def test_who_asks_within_the_burst_does_not_wait():
    clock = Clock()
    limit = RateLimit(10.0, 5, clock, clock.sleep)
    for _ in range(5):
        limit.wait()
    assert clock.now == 0.0
    limit.wait()
    assert clock.now == 0.1


def test_the_api_asks_for_a_turn_with_each_request():
    clock = Clock()
    with fake_api() as server:
        api = Api(ApiClient(Configuration(host=server.url)), RateLimit(2.0, 1, clock, clock.sleep))
        for _ in range(5):
            api.get(PODS, "team", "digits-0")
    assert clock.now == 2.0


def test_waits_of_many_jobs_are_spread_and_that_of_one_stays():
    waits = sorted(spread(600.0, f"uid-{number}") for number in range(1000))
    assert waits[0] >= 600.0
    assert waits[-1] <= 600.0 * (1 + SPREAD)
    assert waits[250] < 645.0 < waits[350]
    assert spread(600.0, "uid-7") == spread(600.0, "uid-7")


class SlowlyMultiplied(float):
    """A rate of which a product takes a moment: what another thread does meanwhile must not be lost."""

    def __rmul__(self, other):
        time.sleep(0.005)
        return float(self) * float(other)


def test_no_two_threads_are_given_the_same_turn():
    waits = []
    limit = RateLimit(SlowlyMultiplied(1.0), 1, lambda: 0.0, waits.append)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            threads.submit(limit.wait)
    assert sorted(waits) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
