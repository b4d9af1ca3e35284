"""What is believed of links' bandwidth: what makes a measurement stale, and what a test that went wrong costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_netmon.coordination.link_estimates import LONGEST_PAUSE, SUSPECT_GRACE, BandwidthRecords, MaxAge
from trimtab_netmon.links.measurements import Measurement, Method

PAIRS = [(0, 1), (1, 2), (2, 0)]
FAST, SLOW = 125e6, 12.5e6
FOREVER = 1e9


def found(value, is_lower_bound=False):
    return Measurement(value, Method.IPERF3, 0.0, is_lower_bound=is_lower_bound)


def after_tests(at=0.0, value=FAST, max_age=FOREVER):
    records = BandwidthRecords(PAIRS, MaxAge(max_age, 0.0))
    for pair in PAIRS:
        records.succeed(pair, at, found(value))
    return records


@given(st.floats(0, 1e6))
def test_a_measurement_tells_its_age_and_goes_stale_when_too_old(age):
    measurement = after_tests(max_age=100.0).measurement((0, 1), age)
    assert (measurement.age, measurement.stale) == (age, age > 100.0)


@given(st.integers(2, 64), st.floats(0.1, 60), st.floats(0.001, 0.5))
def test_no_measurement_is_too_old_before_every_link_could_have_had_its_turn(num_workers, interval, share):
    num_links = num_workers * (num_workers - 1)
    assert MaxAge.of(num_workers, interval, share, 50e9).seconds(0.0) >= num_links * interval
    assert MaxAge.of(num_workers, interval, share, 50e9).seconds(0.0) >= num_links * 2 * 0.5 / (num_workers * share)


def test_evidence_against_a_measurement_makes_it_stale_unless_a_test_answers_soon():
    records = after_tests()
    assert records.invalidate(PAIRS, 10.0) == PAIRS
    assert not records.measurement((0, 1), 10.0 + SUSPECT_GRACE).stale
    records.invalidate(PAIRS, 14.0)  # more of it is no reason to believe the measurement for longer
    assert records.measurement((0, 1), 10.1 + SUSPECT_GRACE).stale
    records.succeed((0, 1), 16.0, found(FAST))
    assert not records.measurement((0, 1), 100.0).stale
    assert records.measurement((1, 2), 100.0).stale


def test_evidence_is_not_answered_by_a_test_that_began_before_it():
    records = after_tests()
    records.invalidate([(0, 1)], 10.0)
    records.succeed((0, 1), 9.0, found(FAST))
    assert not records.is_current((0, 1), 9.0)
    assert records.measurement((0, 1), 11.0 + SUSPECT_GRACE).stale
    assert records.invalidate([(0, 1)], 8.0) == [], "evidence that is older than the test says nothing"


def test_where_no_test_can_be_paid_for_a_measurement_in_doubt_is_stale_at_once():
    records = after_tests()
    records.invalidate(PAIRS, 10.0)
    assert not records.measurement((0, 1), 10.0).stale
    assert records.measurement((0, 1), 10.0, is_affordable=False).stale
    assert not after_tests().measurement((0, 1), 10.0, is_affordable=False).stale


def test_a_round_that_found_nothing_changed_clears_the_other_links_too():
    records = after_tests()
    records.invalidate(PAIRS, 10.0)
    records.revalidate(11.0)
    assert not records.measurement((0, 1), 100.0).stale
    records.invalidate(PAIRS, 12.0)
    records.revalidate(11.0)
    assert records.measurement((0, 1), 100.0).stale


def test_a_measurement_that_moved_supersedes_all_that_were_found_before():
    records = after_tests()
    assert records.succeed((0, 1), 5.0, found(SLOW))
    assert records.measurement((1, 2), 6.0).is_outdated
    assert not records.measurement((0, 1), 6.0).stale
    assert not records.succeed((1, 2), 6.0, found(SLOW)), "what was superseded is not what was believed"


def test_a_test_that_was_disturbed_says_nothing_against_a_higher_figure():
    records = after_tests(value=12.5e6)
    assert not records.succeed((0, 1), 5.0, found(0.84e6, is_lower_bound=True))
    assert records.measurement((0, 1), 6.0).value == 12.5e6
    assert not records.is_current((0, 1), 5.0), "it is to be tested again"
    assert records.next_periodic(lambda pair: True) == (0, 1)
    assert records.measurement((0, 1), 5.1 + SUSPECT_GRACE).stale, "and not believed for ever meanwhile"
    assert not records.succeed((0, 1), 7.0, found(12.4e6))
    assert records.measurement((0, 1), 8.0) == Measurement(12.4e6, Method.IPERF3, age=1.0)


def test_a_test_that_was_disturbed_twice_is_believed_for_what_it_is():
    records = after_tests()
    records.succeed((0, 1), 5.0, found(SLOW, is_lower_bound=True))
    assert records.succeed((0, 1), 6.0, found(0.9 * SLOW, is_lower_bound=True))
    measurement = records.measurement((0, 1), 7.0)
    assert (measurement.value, measurement.is_lower_bound) == (SLOW, True)


@pytest.mark.parametrize("is_lower_bound", [False, True])
def test_a_first_test_that_found_little_is_repeated_before_it_counts(is_lower_bound):
    """The first tests run while the job's processes load their libraries, and the slowest link decides."""
    records = BandwidthRecords(PAIRS, MaxAge(FOREVER, 0.0))
    records.succeed((0, 1), 0.0, found(FAST))
    assert not records.succeed((1, 2), 0.0, found(SLOW, is_lower_bound))
    assert records.measurement((1, 2), 1.0).value == 0, "nothing is known of it yet"
    assert [records.expected(pair) for pair in PAIRS] == [FAST] * 3, "nor expected because of it"
    assert records.is_suspect((1, 2))
    assert records.next_periodic(lambda pair: True) == (1, 2), "before those never tried"
    assert not records.succeed((1, 2), 2.0, found(1.2 * FAST)), "no change of the network"
    assert records.measurement((1, 2), 3.0).value == 1.2 * FAST
    assert not records.measurement((0, 1), 3.0).stale
    assert records.next_periodic(lambda pair: True) == (2, 0)


@pytest.mark.parametrize("is_lower_bound", [False, True])
def test_a_first_test_that_found_little_is_believed_when_the_second_says_so_too(is_lower_bound):
    records = BandwidthRecords(PAIRS, MaxAge(FOREVER, 0.0))
    records.succeed((0, 1), 0.0, found(FAST))
    records.succeed((1, 2), 0.0, found(SLOW))
    assert not records.succeed((1, 2), 2.0, found(0.8 * SLOW, is_lower_bound)), "no change of the network"
    estimate = SLOW if is_lower_bound else 0.8 * SLOW  # of two the higher, where the second was disturbed
    assert records.measurement((1, 2), 3.0).value == estimate
    assert not records.is_suspect((1, 2))
    assert records.succeed((1, 2), 4.0, found(FAST)), "from here on another figure is a change"


def test_a_higher_lower_bound_counts_at_once():
    records = after_tests(value=SLOW)
    assert records.succeed((0, 1), 5.0, found(FAST, is_lower_bound=True))
    assert records.measurement((0, 1), 6.0).is_lower_bound


def test_a_link_that_fails_is_left_alone_for_longer_each_time():
    records, now, pauses = after_tests(), 10.0, []
    for _ in range(20):
        records.fail((0, 1), now, now + 1.0)
        assert not records.may_be_tested((0, 1), now + 1.0)
        pause = next(p for p in (2.0**k / 10 for k in range(20)) if records.may_be_tested((0, 1), now + 1.0 + p))
        pauses.append(pause)
        now += 1.0 + pause
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert LONGEST_PAUSE <= pauses[-1] < 2 * LONGEST_PAUSE
    records.succeed((0, 1), now, found(FAST))
    records.fail((0, 1), now + 1, now + 1)
    assert records.may_be_tested((0, 1), now + 1 + pauses[0]), "a success forgives what was before"


def test_the_measurement_of_a_link_that_fails_twice_is_stale_and_stays_a_bound():
    records = after_tests()
    records.fail((0, 1), 5.0, 6.0)
    assert not records.measurement((0, 1), 7.0).stale
    records.fail((0, 1), 8.0, 9.0)
    records.succeed((1, 2), 10.0, found(2 * FAST))
    measurement = records.measurement((0, 1), 11.0)
    assert (measurement.value, measurement.stale, measurement.is_outdated) == (FAST, True, False)
    records.succeed((0, 1), 12.0, found(FAST))
    assert not records.measurement((0, 1), 13.0).stale


@pytest.mark.parametrize("num_failures", [1, 10])
def test_a_link_that_cannot_be_tested_does_not_take_the_others_turns(num_failures):
    records = after_tests()
    for _ in range(num_failures):
        records.fail((0, 1), 1.0, 2.0)
    turns = []
    for now in range(3, 9):
        pair = records.next_periodic(lambda pair, now=now: records.may_be_tested(pair, now))
        if pair == (0, 1):
            records.fail(pair, now, now)
        else:
            records.succeed(pair, now, found(FAST))
        turns.append(pair)
    assert turns.count((0, 1)) <= 2
    assert {(1, 2), (2, 0)} < {*turns, (0, 1)}


@given(st.permutations(PAIRS))
def test_the_link_tried_longest_ago_is_next_and_one_never_tried_before_all(order):
    records = BandwidthRecords(PAIRS, MaxAge(FOREVER, 0.0))
    for at, pair in enumerate(order):
        missing = [each for each in PAIRS if each not in order[:at]]
        assert records.next_periodic(lambda pair: True) == missing[0]
        records.succeed(pair, float(at), found(FAST))
    assert records.next_periodic(lambda pair: True) == order[0]
