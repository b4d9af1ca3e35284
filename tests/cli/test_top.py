"""What `trimtab top` shows of a job, from its object."""

import pytest
from trimtab.k8s.job_row import JobRow
from trimtab.k8s.job_table import COLUMNS, GAP, age, cells, details, fitted_widths, lines, most_urgent

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


def test_figures_are_told_to_programs_in_base_units():
    told = JobRow.of(job(state="Running", **LONG)).to_json(AT + 5)
    assert (told["step_seconds"], told["since_progress_seconds"], told["gain"]) == (0.12, 5.0, 0.8)
    assert JobRow.of(job(stepTime="what a later version says")).to_json(AT)["step_seconds"] is None


def test_jobs_of_several_namespaces_are_told_apart():
    assert lines([], AT) == ["no TrainingJobs"]
    alone = [JobRow.of(job())]
    assert lines(alone, AT)[1].split()[0] == "digits"
    several = [*alone, JobRow.of(job(namespace="other"))]
    assert [line.split()[0] for line in lines(several, AT)] == ["JOB", "team/digits", "other/digits"]


LONG = {
    "step": 1041,
    "loss": 0.25,
    "stepTime": "120ms",
    "lastProgressTime": "2026-03-01T12:00:00Z",
    "plan": {"name": "0.01/all-gather/sparsifier=tracked,fusion=safusion", "adoptedAtStep": 7, "reason": "faster"},
    "gain": 0.8,
    "message": "rank 1 comes 0.3 s after the others in 97% of the steps",
}


@pytest.mark.parametrize("width", range(40, 240, 7))
def test_what_is_shown_fits_and_numbers_are_never_cut(width):
    row = JobRow.of(job("a-name-that-nobody-wants-to-type-twice", state="Running", **LONG))
    table = [cells(row, AT + 5, with_namespace=True)]
    widths = fitted_widths(table, width)
    assert sum(widths.values()) + GAP * (len(widths) - 1) <= width
    assert list(widths) == [name for name in COLUMNS if name in widths]
    natural = dict(zip(COLUMNS, map(len, table[0]), strict=True))
    assert all(widths[name] >= natural[name] for name in widths if name not in ("JOB", "PLAN", "MESSAGE"))
    assert widths["STATE"] >= len("Running")
    assert widths["JOB"] >= 14


def test_a_wide_terminal_shows_everything():
    table = [cells(JobRow.of(job(state="Running", **LONG)), AT, with_namespace=False)]
    assert fitted_widths(table, 200) == {
        name: max(len(name), len(cell)) for name, cell in zip(COLUMNS, table[0], strict=True)
    }


def test_where_a_window_is_too_low_for_all_jobs_those_that_are_over_go_first():
    rows = [JobRow.of(job(name, state=state)) for name, state in (("a", "Failed"), ("b", "Running"), ("c", "Pending"))]
    assert [row.name for row in most_urgent(rows, 2)] == ["b", "c"]
    assert [row.name for row in most_urgent(rows, 1)] == ["b"]
    assert [row.name for row in most_urgent(rows, 9)] == ["a", "b", "c"]


def test_how_long_ago_is_told_in_one_unit():
    assert [age(each) for each in (0, 119.4, 120, 7199, 7200, 172_799, 172_800)] == [
        "0s", "119s", "2m", "119m", "2h", "47h", "2d",
    ]  # fmt: skip


def test_of_one_job_is_told_why_it_has_its_plan_how_its_network_is_and_why_it_restarted():
    plan = {"name": "0.01/all-gather", "adoptedAtStep": 7, "reason": "0.01/all-gather should take 90ms a step"}
    network = {"latency": "5ms", "bandwidth": "95Mbps", "stale": True}
    restarted = {"restarts": 1, "disruptions": 1, "lastRestartReason": "worker 2: exit code 1"}
    row = JobRow.of(job(plan=plan, network=network, workers={"ready": 3}, message="waits", **restarted))
    assert details(row) == [
        ("plan", "since step 7: 0.01/all-gather should take 90ms a step"),
        ("network", "slowest link: 5ms one way, 95Mbps, too old to trust"),
        ("workers", "3 ready; restarted 2 times, last because worker 2: exit code 1"),
        ("message", "waits"),
    ]
    assert details(JobRow.of(job(state="Pending"))) == []
