"""Why a Job cannot make its pods, or a pod not mount its volumes: when and how often the API server is asked, and what
of its answers is told.
"""

from datetime import timedelta
from urllib.parse import parse_qs, urlparse

import pytest
from fake_api import fake_api
from fixtures import NOW, ago, batch_job, observed, pod
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.decisions.pod_creation_errors import PodCreationErrors, newest_creation_error
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.timers import seconds_to_question
from trimtab_operator.kube.api import Api, RefusedError

FORBIDDEN = 'pods "digits-0-x" is forbidden: exceeded quota: none'
TOLD = Problem("FailedCreate", f"the Job digits cannot make pods: {FORBIDDEN}")


def event(seconds_ago=1, message=f"Error creating: {FORBIDDEN}"):
    return {"metadata": {"name": "digits.1"}, "lastTimestamp": ago(seconds_ago), "message": message}


@pytest.fixture
def server():
    with fake_api() as server:
        server.body = {"items": [event()]}
        yield server


@pytest.fixture
def refused(server):
    return PodCreationErrors(Api(ApiClient(Configuration(host=server.url))))


def after(seconds, **known):
    """A job of two workers that has one pod, so many seconds on."""
    return observed(**{"batch_job": batch_job(active=1), "now": NOW + timedelta(seconds=seconds), **known})


@pytest.mark.parametrize(
    ("missing", "asked_ago", "seconds"),
    [(0, None, 5), (4, None, 1), (5, None, 0), (9, None, -4), (6, 1, 4), (10, 5, 0), (100, 4, 6), (3600, 10, 20)],
)
def test_pods_get_a_while_to_come_and_then_it_is_asked_more_and_more_seldom(missing, asked_ago, seconds):
    assert seconds_to_question(missing, asked_ago) == seconds


def test_a_job_that_lacks_pods_for_a_while_is_asked_why_once_until_it_is_time_again(server, refused):
    assert (refused.explain(after(0)), refused.seconds_to_question(after(0))) == (None, 5.0)
    assert refused.explain(after(4)) is None
    assert server.asked == []
    assert [refused.explain(after(seconds)) for seconds in (5, 6, 9)] == [TOLD] * 3
    assert refused.seconds_to_question(after(9)) == 1.0
    ((path, _),) = server.asked
    asked = urlparse(path)
    assert asked.path == "/api/v1/namespaces/team/events"
    query = parse_qs(asked.query)
    assert query["fieldSelector"] == ["involvedObject.uid=child-uid,reason=FailedCreate"]
    assert int(query["limit"][0]) <= 100
    refused.explain(after(10))
    assert len(server.asked) == 2


def test_how_long_a_job_has_lacked_pods_counts_once_it_was_asked_why(server, refused):
    refused.explain(after(0))
    assert refused.missing_pods_seconds(after(4)) == 0.0
    refused.explain(after(5))
    assert refused.missing_pods_seconds(after(70)) == 70.0
    refused.explain(after(71, batch_job=batch_job(uid="the-next", active=1)))
    assert refused.missing_pods_seconds(after(72)) == 0.0


@pytest.mark.parametrize(
    "known",
    [
        {"batch_job": None},
        {"batch_job": batch_job(active=2)},
        {"batch_job": batch_job(active=1, succeeded=1)},
        {"batch_job": batch_job(is_begun=False)},
        {"batch_job": batch_job(is_suspended=True)},
        {"batch_job": batch_job(is_deleting=True)},
        {"batch_job": batch_job(is_complete=True)},
        {"batch_job": batch_job(failure="f", failed=1)},
        {"batch_job": batch_job(owner_uid="other")},
        {"status": {"restarts": 1}},
        {"status": {"state": "Failed"}},
    ],
)
def test_nobody_is_asked_of_a_job_that_has_its_pods_or_is_not_to_have_them(server, refused, known):
    refused.explain(after(0))
    for seconds in (1, 60):
        assert refused.explain(after(seconds, **known)) is None
        assert refused.seconds_to_question(after(seconds, **known)) is None
    assert server.asked == []


def test_what_was_said_of_one_attempt_is_not_said_of_the_next(server, refused):
    refused.explain(after(0))
    assert refused.explain(after(5)) == TOLD
    assert refused.explain(after(6, batch_job=batch_job(uid="next", active=1))) is None
    assert len(server.asked) == 1


def test_of_many_words_the_newest_are_told_without_what_recorders_put_before_them():
    combined = "(combined from similar events): Error creating: newest"
    told = newest_creation_error(after(0), [event(9), event(2, combined), event(5)])
    assert told == Problem("FailedCreate", "the Job digits cannot make pods: newest")
    assert newest_creation_error(after(0), []) is None


@pytest.mark.parametrize(("seconds_ago", "told"), [(61, None), (59, TOLD)])
def test_what_kept_pods_from_being_made_before_the_job_ran_is_over(seconds_ago, told):
    said = {"observedGeneration": 1, "reason": "r"}
    conditions = [
        {"type": "Ready", "status": "False", "lastTransitionTime": ago(60), **said},
        {"type": "Started", "status": "True", "lastTransitionTime": ago(600), **said},
    ]
    assert newest_creation_error(after(0, status={"conditions": conditions}), [event(seconds_ago)]) == told


def test_an_operator_that_may_not_read_events_goes_on_without(server, refused):
    server.status = 403
    refused.explain(after(0))
    assert refused.explain(after(5)) is None
    server.status = 503
    with pytest.raises(RefusedError):
        refused.explain(after(10))


MISSING = 'MountVolume.SetUp failed for volume "settings" : configmap "none" not found'
UNMOUNTED = Problem(
    "FailedMount",
    f"worker 1 cannot mount its volumes: {MISSING}; once that is mended it starts by itself; where the template is "
    "wrong, delete the job, mend its file and create it anew",
)


def mounting(worker, **known):
    return pod(worker, **{"phase": "Pending", "uid": f"pod-{worker}", "is_mounting": True, **known})


def mounts(seconds, *pods, **known):
    """A job of two workers whose pods are there, so many seconds on."""
    return after(seconds, **{"batch_job": batch_job(active=2), "pods": pods, **known})


def asked_of(server):
    selectors = [parse_qs(urlparse(path).query)["fieldSelector"][0] for path, _ in server.asked]
    return [each.split(",")[0].removeprefix("involvedObject.uid=") for each in selectors]


def test_a_pod_that_waits_for_its_volumes_for_long_is_asked_why_now_and_then(server, refused):
    server.body = {"items": [event(9, "older"), event(1, MISSING)]}
    assert (refused.explain(mounts(0, mounting(1))), refused.seconds_to_question(mounts(0))) == (None, 10.0)
    assert refused.explain(mounts(9, mounting(1))) is None
    assert server.asked == []
    assert [refused.explain(mounts(seconds, mounting(1))) for seconds in (10, 11, 19)] == [UNMOUNTED] * 3
    ((path, _),) = server.asked
    assert urlparse(path).path == "/api/v1/namespaces/team/events"
    assert parse_qs(urlparse(path).query)["fieldSelector"] == ["involvedObject.uid=pod-1,reason=FailedMount"]
    refused.explain(mounts(20, mounting(1)))
    assert len(server.asked) == 2


def test_of_many_pods_one_at_a_time_is_asked_until_one_says_why_and_then_that_one(server, refused):
    pods = [mounting(worker) for worker in (2, 0, 1)]
    server.body = {"items": []}
    assert [refused.explain(mounts(seconds, *pods)) for seconds in (0, 10, 20, 30, 40)] == [None] * 5
    assert asked_of(server) == ["pod-0", "pod-1", "pod-2", "pod-0"]
    server.body = {"items": [event(1, MISSING)]}
    assert [refused.explain(mounts(seconds, *pods)) for seconds in (50, 60)] == [UNMOUNTED] * 2
    assert asked_of(server)[4:] == ["pod-1", "pod-1"]


def test_what_kept_a_pod_from_starting_is_over_once_it_starts(server, refused):
    server.body = {"items": [event(1, MISSING)]}
    refused.explain(mounts(0, mounting(1)))
    assert refused.explain(mounts(10, mounting(1))) == UNMOUNTED
    assert refused.explain(mounts(11, mounting(0), pod(1))) is None, "another waits: it is asked in its turn"
    assert refused.explain(mounts(12, pod(0), pod(1))) is None
    assert refused.seconds_to_question(mounts(12)) is None


@pytest.mark.parametrize(
    "known",
    [
        {"pods": (mounting(1, to_end_by=ago(0)),)},
        {"batch_job": batch_job(is_suspended=True)},
        {"batch_job": batch_job(is_deleting=True)},
        {"batch_job": batch_job(failure="f", failed=1)},
        {"batch_job": batch_job(owner_uid="other")},
        {"status": {"restarts": 1}},
        {"status": {"state": "Failed"}},
    ],
)
def test_no_pod_is_asked_about_that_is_not_to_start(server, refused, known):
    refused.explain(mounts(0, mounting(1)))
    for seconds in (1, 60):
        assert refused.explain(mounts(seconds, **{"pods": (mounting(1),), **known})) is None
    assert server.asked == []


def test_while_pods_are_missing_the_job_alone_is_asked(server, refused):
    for seconds in (0, 5, 10):
        assert refused.explain(mounts(seconds, mounting(1), batch_job=batch_job(active=1))) in (None, TOLD)
    assert asked_of(server) == ["child-uid"] * 2
