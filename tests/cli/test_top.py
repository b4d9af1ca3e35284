"""What `trimtab top` shows of a job, from its object."""

import pytest
from trimtab.cli.top_command import table
from trimtab.cluster.job_row import JobRow

AT = 1_772_366_400.0
"""2026-03-01T12:00:00Z."""


def job(name="digits", namespace="team", **status):
    return {"metadata": {"name": name, "namespace": namespace}, "status": status}


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({"state": "Running", "lastProgressTime": "2026-03-01T12:00:00Z"}, 30.0),
        ({"state": "Restarting", "lastProgressTime": "2026-03-01T12:01:00Z"}, 0.0),
        ({"state": "Succeeded", "lastProgressTime": "2026-03-01T12:00:00Z"}, None),
        ({"state": "Starting"}, None),
    ],
)
def test_time_without_progress_counts_while_a_job_may_make_some(status, since):
    assert JobRow.of(job(**status)).since_progress(AT + 30) == since


def test_a_job_that_no_operator_has_seen_says_so():
    row = JobRow.of({"metadata": {"name": "digits", "namespace": "team"}})
    assert (row.state, row.step, row.message) == ("Pending", None, "no operator has looked at it yet")


def test_jobs_of_several_namespaces_are_told_apart():
    assert table([], AT) == ["no TrainingJobs"]
    alone = [JobRow.of(job())]
    assert table(alone, AT)[1].split()[0] == "digits"
    several = [*alone, JobRow.of(job(namespace="other"))]
    assert [line.split()[0] for line in table(several, AT)] == ["JOB", "team/digits", "other/digits"]
