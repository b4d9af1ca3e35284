"""What Prometheus is told of jobs, and of what the operator does for them."""

import pytest
from fake_api import fake_api
from fixtures import ago, rank0_status, said
from kubernetes.client import ApiClient, Configuration
from prometheus_client import CollectorRegistry
from trimtab_api.trainer.v1 import status_pb2
from trimtab_operator.kube import events
from trimtab_operator.kube.api import Api, RefusedError, Unreachable
from trimtab_operator.kube.events import EventRecorder
from trimtab_operator.kube.resources import TRAINING_JOBS
from trimtab_operator.observability import metrics
from trimtab_operator.observability.job_metrics import JobMetrics
from trimtab_operator.rank0.sanitize import Rank0Status


class Rank0s:
    """What rank 0 of each job says, by the job's uid."""

    num_streams = 1

    def __init__(self, **messages):
        self.messages = messages

    def latest(self, uid):
        return self.messages.get(uid)

    def since_progress(self, uid):
        return 42.0 if uid in self.messages else None


def cached(name, **status):
    return {
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
        **({"status": status} if status else {}),
    }


def told(jobs, most=1000, **messages):
    """The value of each sample, by its name and the values of its labels."""
    registry = CollectorRegistry()
    registry.register(JobMetrics(lambda: jobs, Rank0s(**messages), most))
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {(each.name.removeprefix("trimtab_operator_"), *each.labels.values()): each.value for each in samples}


def started(status, seconds_ago):
    return {"type": "Started", "status": status, "lastTransitionTime": ago(seconds_ago)}


RUNNING = {
    "state": "Running", "step": 7, "loss": 0.5, "plan": {"name": "0.01/all-gather"}, "startTime": ago(100),
    "conditions": [started("True", 70)],
}  # fmt: skip


def test_jobs_are_counted_in_every_state_there_is():
    found = told([cached("new"), cached("a", **RUNNING), cached("b", **RUNNING)])
    assert (found["jobs", "Pending"], found["jobs", "Running"], found["jobs", "Failed"]) == (1, 2, 0)
    assert found["streams",] == 1


def test_of_each_job_is_told_what_rank_0_said_last_or_else_what_its_status_says():
    found = told([cached("a", **RUNNING), cached("b", **RUNNING)], **{"uid-a": rank0_status(gain=0.4)})
    assert found["job_info", "team", "a", "Running", "0.01/all-gather"] == 1
    assert (found["job_step", "team", "a"], found["job_step", "team", "b"]) == (12, 7)
    assert found["job_loss", "team", "b"] == 0.5
    assert found["job_gain_ratio", "team", "a"] == 0.4
    assert found["job_since_progress_seconds", "team", "a"] == 42
    assert found["job_start_seconds", "team", "a"] == 30
    assert not {("job_gain_ratio", "team", "b"), ("job_since_progress_seconds", "team", "b")} & set(found)


@pytest.mark.parametrize("conditions", [[], [started("False", 70)], [started("True", 170)]])
def test_a_start_that_is_not_over_or_was_told_by_a_wrong_clock_took_no_time(conditions):
    assert ("job_start_seconds", "team", "a") not in told([cached("a", **{**RUNNING, "conditions": conditions})])


def test_a_job_that_has_ended_waits_for_no_progress():
    ended = cached("a", **{**RUNNING, "state": "Succeeded"})
    assert ("job_since_progress_seconds", "team", "a") not in told([ended], **{"uid-a": rank0_status()})


def test_with_more_jobs_than_asked_for_none_has_series_of_its_own():
    jobs = [cached("a", **RUNNING), cached("b", **RUNNING)]
    assert ("job_step", "team", "a") in told(jobs, most=2)
    found = told(jobs, most=1)
    assert found["jobs", "Running"] == 2
    assert not any(name.startswith("job_") for name, *_ in found)


def test_a_gain_that_cannot_be_true_is_as_if_it_had_not_been_said():
    assert Rank0Status.sanitize(said(gain=7.0)).gain is None
    assert Rank0Status.sanitize(status_pb2.Status(gain=0.5)).gain is None, "without a plan nothing is exchanged"


def value(counter, **labels):
    return counter.labels(**labels)._value.get()


def test_requests_are_counted_by_how_they_were_answered():
    configuration = Configuration()
    with fake_api() as server:
        configuration.host = server.url
        api = Api(ApiClient(configuration))
        before = [value(metrics.API_REQUESTS, method="GET", code=code) for code in ("200", "403", "no answer")]
        api.get(TRAINING_JOBS, "team", "digits")
        server.status = 403
        with pytest.raises(RefusedError):
            api.get(TRAINING_JOBS, "team", "digits")
    server.server_close()
    with pytest.raises(Unreachable):
        api.get(TRAINING_JOBS, "team", "digits")
    after = [value(metrics.API_REQUESTS, method="GET", code=code) for code in ("200", "403", "no answer")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


class Refusing:
    """An API server that takes no event."""

    def create(self, resource, manifest):
        raise RefusedError(403, "Forbidden", "no")


def test_events_that_were_never_written_are_counted():
    recorder = EventRecorder(Refusing())
    too_many, refused = (value(metrics.EVENTS_DROPPED, reason=reason) for reason in ("too many", "refused"))
    for _ in range(events._MAX_PENDING + 1):
        recorder.enqueue("team/digits", {})
    recorder.flush("team/digits")
    assert value(metrics.EVENTS_DROPPED, reason="too many") == too_many + 1
    assert value(metrics.EVENTS_DROPPED, reason="refused") == refused + events._MAX_PENDING
