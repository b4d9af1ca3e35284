"""Each policy by itself, with the time handed in."""

from datetime import timedelta

import pytest
from fixtures import NOW
from hypothesis import given
from hypothesis import strategies as st
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.decisions.policies.restart import FailJob, Restart, after_disruption, after_failure
from trimtab_operator.decisions.policies.timers import seconds_to_deadline, seconds_to_expiry, seconds_to_next_check
from trimtab_operator.decisions.suspension import wanted_suspension
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.status.conditions import best_of_late, is_degraded

CAUSE = Problem("Error", "worker 0 failed")


@pytest.mark.parametrize("seconds_to", [seconds_to_deadline, seconds_to_expiry])
@pytest.mark.parametrize(
    ("limit", "since", "left"),
    [(None, 10, None), (60, None, None), (60, 0, 60), (60, 59, 1), (60, 60, 0), (60, 61, -1), (0, 0, 0)],
)
def test_time_runs_from_a_moment_and_without_one_or_a_limit_it_does_not(seconds_to, limit, since, left):
    moment = None if since is None else NOW - timedelta(seconds=since)
    assert seconds_to(limit, moment, NOW) == left


@pytest.mark.parametrize(
    ("asked", "is_suspended", "by_us", "is_queued", "wanted"),
    [
        (False, False, False, False, None),
        (True, True, True, False, None),
        (True, True, False, False, None),
        (True, False, False, False, True),
        (False, True, True, False, False),
        (False, True, False, False, None),
        (True, False, False, True, None),
        (False, True, True, True, None),
    ],
)
def test_suspension(asked, is_suspended, by_us, is_queued, wanted):
    assert wanted_suspension(asked, is_suspended, by_us, is_queued) is wanted


@given(st.sampled_from(["Never", "OnFailure"]), st.integers(0, 10), st.integers(0, 10))
def test_restarts_after_failures_end(policy, counted, limit):
    verdict = after_failure(CAUSE, policy, counted, limit)
    if policy == "OnFailure" and counted < limit:
        assert verdict == Restart(CAUSE, counts_toward_max_restarts=True)
    else:
        assert isinstance(verdict, FailJob)
        assert "worker 0 failed" in verdict.message


@given(st.booleans(), st.integers(0, 10), st.integers(0, 10))
def test_disruptions_do_not_count_and_end_all_the_same(is_memory_eviction, disruptions, limit):
    verdict = after_disruption(CAUSE, is_memory_eviction, disruptions, limit)
    if disruptions < limit:
        assert verdict == Restart(CAUSE, counts_toward_max_restarts=False, is_memory_eviction=is_memory_eviction)
    else:
        assert isinstance(verdict, FailJob)
        assert verdict.reason == "TooManyDisruptions"
        assert verdict.message.endswith(f"(after {disruptions} disruptions, the most that spec.maxDisruptions allows)")


def test_a_network_is_degraded_at_half_its_best_and_recovers_later():
    shares = [1.0, 0.6, 0.49, 0.6, 0.69, 0.71, 0.6]
    degraded = False
    seen = []
    for share in shares:
        degraded = is_degraded(degraded, share * 125e6, 125e6)
        seen.append(degraded)
    assert seen == [False, False, True, True, True, False, False]


def test_a_network_that_stays_slower_is_good_again_within_a_day():
    best, degraded = 1e9, True
    for hour in range(24):
        best = best_of_late(best, 3e8, 3600)
        degraded = is_degraded(degraded, 3e8, best)
        assert degraded or hour > 6, "a network that is slow for a night is degraded all night"
    assert not degraded


def test_the_best_is_never_less_than_the_present_bandwidth_whatever_the_clock_says():
    assert best_of_late(1e8, 3e8, 3600) == 3e8
    assert best_of_late(1e9, 3e8, -3600) == 1e9
    assert best_of_late(0, 3e8, 0) == 3e8


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.floats(-1e6, 1e6))
def test_the_best_is_never_more_than_it_was_or_is(best, bandwidth, seconds):
    assert bandwidth <= best_of_late(best, bandwidth, seconds) <= max(best, bandwidth)


def test_an_unknown_network_is_not_degraded():
    assert not is_degraded(False, 0.0, 0.0)


@pytest.mark.parametrize(("waiting", "seconds"), [(-3, 1), (0, 1), (10, 1), (60, 6), (300, 30), (86400, 30)])
def test_what_is_in_the_way_is_looked_for_more_and_more_seldom(waiting, seconds):
    assert seconds_to_next_check(waiting) == seconds


def test_an_attempt_stalls_from_its_last_new_step_on_and_only_as_far_as_rank_0_was_heard():
    progress, last = Progress(), None
    for seconds, step, state, stalled in [
        (900.0, 0, "Starting", 0.0),  # its first word, however late
        (5.0, 0, "Starting", 5.0),
        (5.0, 0, "Starting", 10.0),
        (5.0, 1, "Running", 0.0),
        (5.0, 1, "Running", 5.0),
        (60.0, 1, "Running", 65.0),  # nothing was heard for a while, and no step was done in it
        (5.0, 2, "Running", 0.0),
        (60.0, 9, "Running", 0.0),
        (5.0, 8, "Running", 5.0),  # nobody trains backwards
    ]:
        message = Rank0Status(state=state, step=step)
        progress, last = progress.on_message(last, message, seconds), message
        assert (progress.seconds_without_progress, progress.has_trained) == (stalled, step > 0)


def test_what_has_trained_has_trained_whatever_rank_0_says_later():
    runs, starts = Rank0Status(state="Running", step=1), Rank0Status(state="Starting", step=1)
    assert Progress().on_message(None, runs, 0.0).on_message(runs, starts, 5.0).has_trained
