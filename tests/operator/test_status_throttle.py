"""When a status is written: what matters at once, figures once in an interval."""

from datetime import timedelta

import pytest
from fixtures import NOW, after, ago, batch_job, rank0_status
from hypothesis import given
from hypothesis import strategies as st
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.text import write_time
from trimtab_operator.status.throttle import brings_news, seconds_to_write

INTERVAL = 60.0


@pytest.mark.parametrize(
    ("written", "change", "wait"),
    [
        (3, {}, None),
        (3, {"step": 13}, 58.0),
        (60, {"step": 13}, 1.0),
        (61, {"step": 13}, 0.0),
        (3, {"state": "Starting"}, 0.0),
        (3, {"observed_generation": 2}, 0.0),
        (3, {"restarts": 1}, 0.0),
        (3, {"plan": {"version": 2}}, 0.0),
        (3, {"conditions": {"reason": "Other"}}, 0.0),
        (3, {"conditions": {"message": "other words"}}, 58.0),
    ],
)
def test_figures_wait_and_what_matters_does_not(written, change, wait):
    before = after(batch_job=batch_job(ready=2), rank0_status=rank0_status()).model_copy(
        update={"last_update_time": ago(written)}
    )
    change = dict(change)
    if "plan" in change:
        change["plan"] = before.plan.model_copy(update=change["plan"])
    if "conditions" in change:
        first, *others = before.conditions
        change["conditions"] = (first.model_copy(update=change["conditions"]), *others)
    assert seconds_to_write(before, before.model_copy(update=change), NOW, INTERVAL) == wait


def test_what_a_job_waits_for_before_it_trains_is_told_within_ten_seconds():
    before = after(batch_job=batch_job(ready=1), progress=Progress()).model_copy(update={"last_update_time": ago(3)})
    assert before.state == "Starting"
    assert seconds_to_write(before, before.model_copy(update={"message": "other words"}), NOW, INTERVAL) == 8.0
    assert seconds_to_write(before, before.model_copy(update={"message": "other words"}), NOW, 5.0) == 3.0


@pytest.mark.parametrize(
    ("written", "seconds_to_news", "wait"), [(3, 0.0, 0.0), (3, 5.0, 5.0), (3, 59.0, 58.0), (61, 9.0, 0.0)]
)
def test_news_of_training_waits_where_there_was_too_much_of_it_and_never_longer_than_figures(
    written, seconds_to_news, wait
):
    before = after(batch_job=batch_job(ready=2), rank0_status=rank0_status()).model_copy(
        update={"last_update_time": ago(written)}
    )
    news = before.model_copy(update={"plan": before.plan.model_copy(update={"version": 2})})
    assert brings_news(before, news)
    assert seconds_to_write(before, news, NOW, INTERVAL, seconds_to_news) == wait


def test_a_network_that_degrades_is_news_of_training_and_waits_likewise():
    before = after(batch_job=batch_job(ready=2), rank0_status=rank0_status()).model_copy(
        update={"last_update_time": ago(3)}
    )
    known = {"status": before.model_dump(by_alias=True), "rank0_status": rank0_status(bandwidth=1e6)}
    degraded = after(batch_job=batch_job(ready=2), **known)
    assert degraded.condition("NetworkDegraded").status == "True"
    assert seconds_to_write(before, degraded, NOW, INTERVAL, seconds_to_news=5.0) == 5.0


@given(written_at=st.floats(0, 1, exclude_max=True), asked_at=st.floats(0, 60))
def test_figures_are_never_written_twice_in_an_interval_whatever_the_fraction(written_at, asked_at):
    written = NOW + timedelta(seconds=written_at)
    before = after(batch_job=batch_job(ready=2), rank0_status=rank0_status()).model_copy(
        update={"last_update_time": write_time(written)}
    )
    asked = written + timedelta(seconds=asked_at)
    wait = seconds_to_write(before, before.model_copy(update={"step": 13}), asked, INTERVAL)
    assert 60.0 <= (asked - written).total_seconds() + wait <= 61.0 + 1e-6
