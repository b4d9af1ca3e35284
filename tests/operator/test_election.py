"""How long a leader may count on its lease: no longer than another waits before it takes over."""

from types import SimpleNamespace

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from trimtab_operator.kube import election
from trimtab_operator.kube.election import LEASE_SECONDS, RENEW_DEADLINE_SECONDS


@pytest.fixture
def now(monkeypatch):
    """A clock, as a list of its one moment."""
    moment = [100.0]
    monkeypatch.setattr(election, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


@pytest.fixture
def lock():
    client = ApiClient(Configuration(host="http://127.0.0.1:1"))
    return election.Lock(client, "trimtab-operator", "trimtab", "this process")


def answered(now, seconds, answer):
    """A request that takes so many seconds of the clock."""

    def request(*_):
        now[0] += seconds
        if isinstance(answer, Exception):
            raise answer
        return answer

    return request


def test_a_lease_counts_from_the_request_that_renewed_it(now, lock, monkeypatch):
    monkeypatch.setattr(LeaseLock, "update", answered(now, 2.5, True))
    assert lock.update("trimtab-operator", "trimtab", None)
    assert lock.seconds_left() == RENEW_DEADLINE_SECONDS - 2.5
    now[0] += RENEW_DEADLINE_SECONDS
    assert lock.seconds_left() < 0
    assert RENEW_DEADLINE_SECONDS < LEASE_SECONDS


@pytest.mark.parametrize("answer", [False, OSError("no route to host")])
def test_a_renewal_that_failed_does_not_lengthen_a_lease(now, lock, monkeypatch, answer):
    monkeypatch.setattr(LeaseLock, "create", answered(now, 0.0, True))
    assert lock.create("trimtab-operator", "trimtab", None)
    monkeypatch.setattr(LeaseLock, "update", answered(now, 3.0, answer))
    assert not lock.update("trimtab-operator", "trimtab", None)
    assert lock.seconds_left() == RENEW_DEADLINE_SECONDS - 3.0
