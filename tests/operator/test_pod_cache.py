"""What is kept of pods, by the Job that made them."""

import pytest
from trimtab_operator.reconcile.caches import PodCache


def pod(job, phase="Running", name="digits-0"):
    metadata = {
        "name": name,
        "namespace": "team",
        "labels": {"trimtab.dev/job-name": job},
        "ownerReferences": [{"name": job, "uid": f"uid of {job}", "controller": True}],
    }
    return {"metadata": metadata, "status": {"phase": phase}}


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


def test_a_pod_is_of_the_job_that_made_it_whatever_its_labels_say(cache):
    relabelled = pod("digits")
    relabelled["metadata"]["labels"]["trimtab.dev/job-name"] = "letters"
    cache.put(pod("digits"))
    assert not cache.put(relabelled)
    assert (cache.of("team", "digits"), cache.of("team", "letters")) == ([relabelled], [])


def test_a_pod_that_was_orphaned_is_no_longer_of_the_job(cache):
    cache.put(pod("digits"))
    orphan = pod("digits")
    orphan["metadata"]["ownerReferences"] = []
    assert cache.put(orphan)
    assert cache.of("team", "digits") == []
    cache.remove(orphan)
    cache.remove(orphan)
