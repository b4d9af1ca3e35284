"""What is kept of pods, by the job that they say they are of."""

import pytest
from trimtab_operator.operator import PodCache


def pod(job, phase="Running", name="digits-0"):
    labels = {"trimtab.dev/job-name": job}
    return {"metadata": {"name": name, "namespace": "team", "labels": labels}, "status": {"phase": phase}}


@pytest.fixture
def cache():
    return PodCache()


def test_a_pod_is_news_when_it_is_new_and_when_it_says_something_else(cache):
    told = [cache.put(pod("digits", phase)) for phase in ("Pending", "Pending", "Running", "Running")]
    assert told == [True, False, True, False]
    assert cache.of("team", "digits") == [pod("digits")]
    assert cache.of("other", "digits") == []


def test_a_pod_that_is_gone_is_forgotten_and_may_be_twice(cache):
    for name in ("digits-0", "digits-1"):
        cache.put(pod("digits", name=name))
    for _ in range(2):
        cache.remove(pod("digits"))
    assert cache.of("team", "digits") == [pod("digits", name="digits-1")]


def test_a_pod_that_is_labelled_as_another_jobs_is_no_longer_of_the_first(cache):
    cache.put(pod("digits"))
    cache.put(pod("letters"))
    assert (cache.of("team", "digits"), cache.of("team", "letters")) == ([], [pod("letters")])
    cache.remove(pod("letters"))
    assert cache.of("team", "letters") == []
