"""A status that another version wrote: what is known of it is read, and the rest costs one line in the log."""

import pytest
from fixtures import ago, batch_job, observed
from trimtab_api.trainingjob.status import Status
from trimtab_operator.decisions.decide import Action, decide
from trimtab_operator.status.parse import read_status


def condition(kind="Ready", **changed):
    said = {"status": "True", "reason": "r", "message": "m", "lastTransitionTime": ago(9), "observedGeneration": 1}
    return {"type": kind, **said, **changed}


def resource(**status):
    return {"metadata": {"namespace": "team", "name": "digits"}, "status": status}


KNOWN = {"state": "Running", "restarts": 2, "startTime": ago(60), "conditions": [condition(), condition("Started")]}


def test_a_status_of_this_version_is_read_without_a_word(caplog):
    assert read_status(resource(**KNOWN)) == Status.model_validate(KNOWN)
    assert read_status({"metadata": {}}) == Status()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("change", "kept", "word"),
    [
        ({"state": "Paused"}, {"state": "Pending"}, "state"),
        ({"workers": 3}, {"workers": {}}, "workers"),
        ({"plan": {"version": 1}}, {"plan": None}, "plan.name"),
        ({"conditions": [condition("Quiet"), *KNOWN["conditions"]]}, {}, "conditions.0.type"),
        ({"conditions": [*KNOWN["conditions"], condition("Quiet", status="Maybe")]}, {}, "conditions.2.status"),
        ({"conditions": "none"}, {"conditions": []}, "conditions"),
        ({"state": "Paused", "conditions": []}, {"state": "Pending", "conditions": []}, "state"),
    ],
)
def test_what_is_not_known_is_left_out_and_the_rest_stays(caplog, change, kept, word):
    read = read_status(resource(**{**KNOWN, **change}))
    assert read == Status.model_validate({**KNOWN, **kept})
    (line,) = caplog.messages
    assert line.startswith("team/digits: a part of its status was ignored")
    assert word in line


def test_an_attempt_that_runs_goes_on_though_the_state_is_not_known():
    status = read_status(resource(**{**KNOWN, "state": "Paused"})).model_dump(by_alias=True)
    assert decide(observed(status=status, batch_job=batch_job(attempt=2))).action is Action.NOTHING


def test_a_job_that_ended_in_a_way_that_is_not_known_does_not_start_again():
    status = read_status(resource(state="Cancelled", completionTime=ago(1), restarts=2))
    assert status.is_final
    assert decide(observed(status=status.model_dump(by_alias=True), batch_job=None)).action is Action.NOTHING
