"""What a link carries, from what passed the interfaces; the job's own traffic is no change of the network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_netmon.links.measurements import Method
from trimtab_netmon.probing.bandwidth import (
    SAMPLE_INTERVAL,
    Rates,
    Sample,
    best_rates,
    has_seen_enough,
    is_over_time,
    judge,
    under_way,
    was_held_down,
    was_starved,
)

GIGABIT = 125e6


def samples(rate_at, seconds, own_from=0.0, step=0.025):
    """Counters of an interface with a total rate over time, half of it the test's own once that has begun."""
    total = own = 0.0
    result = []
    for index in range(round(seconds / step) + 1):
        at = index * step
        result.append(Sample(at, int(total), int(own)))
        total += rate_at(at) * step
        own += rate_at(at) * step / 2 if at >= own_from else 0
    return result


@given(st.floats(1e6, 1e9))
def test_an_idle_link_carries_what_arrived(rate):
    assert judge(Rates(received=rate, own=0.97 * rate, sent_before=0.0), 0.0) == (rate, Method.IPERF3)


@given(
    capacity=st.floats(1e6, 1e9),
    share=st.floats(0.1, 1),
    busy_before=st.floats(0, 1),
    where=st.sampled_from(["sender", "receiver", "both"]),
)
def test_traffic_at_either_end_never_moves_the_measurement_of_an_unchanged_link(capacity, share, busy_before, where):
    own = share * capacity
    sent_before = max(busy_before, 1 - share) * capacity if where != "receiver" else 0.0
    received = capacity if where != "sender" else own
    value, _ = judge(Rates(received, own, sent_before), expected=capacity)
    assert value == pytest.approx(capacity)


@given(expected=st.floats(0.95, 1.05), own=st.floats(0.3, 1.03), beside=st.floats(0.2, 4), sent=st.floats(0, 1))
def test_what_others_send_the_receiver_is_not_what_the_link_carries(expected, own, beside, sent):
    """The test's flows get up to all of the link, and two tests of it differ by a few percent."""
    rates = Rates((own + beside) * GIGABIT, own * GIGABIT, max(sent, 1 - own) * GIGABIT)
    value, _ = judge(rates, expected * GIGABIT)
    assert value == pytest.approx(GIGABIT, rel=0.06)


@pytest.mark.parametrize("expected", [0.0, 10 * GIGABIT, 0.1 * GIGABIT])
def test_a_changed_link_full_of_traffic_shows_what_was_moved(expected):
    rates = Rates(received=GIGABIT, own=0.4 * GIGABIT, sent_before=GIGABIT)
    assert judge(rates, expected) == (GIGABIT, Method.IPERF3_SHARED)


def test_a_senders_bursts_to_other_hosts_are_not_what_a_slow_link_carries():
    bursts = Rates(received=3.1e6, own=1.5e6, sent_before=4.2e6, sent_throughout=2.0e6)
    assert judge(bursts, GIGABIT) == (3.1e6, Method.IPERF3_SHARED)
    full = Rates(received=3.1e6, own=1.5e6, sent_before=4.2e6, sent_throughout=4.3e6)
    assert judge(full, GIGABIT) == (4.2e6, Method.IPERF3_SHARED)


def test_a_test_goes_on_until_its_own_data_flow():
    steady_traffic = samples(lambda at: GIGABIT, 2.0, own_from=99.0)
    assert not has_seen_enough(steady_traffic, GIGABIT, 0.002)


def test_a_test_that_meets_the_expected_measurement_is_short():
    assert has_seen_enough(samples(lambda at: GIGABIT, 0.4), GIGABIT, 0.050)
    assert not has_seen_enough(samples(lambda at: GIGABIT, 0.4), 0.0, 0.050)
    assert has_seen_enough(samples(lambda at: GIGABIT, 0.8), 0.0, 0.050)


def test_slow_start_is_not_yet_the_rate():
    def doubling(at):
        return min(GIGABIT, 1e6 * 2 ** (at / 0.1))

    assert not has_seen_enough(samples(doubling, 0.65), 0.0, 0.002)
    assert has_seen_enough(samples(doubling, 1.2), 0.0, 0.002)


def test_a_rate_that_passes_the_expected_measurement_on_its_way_up_does_not_confirm_it():
    def doubling(at):
        return min(GIGABIT, 1e6 * 2 ** (at / 0.05))

    ends = [0.3 + 0.025 * i for i in range(40)]
    for expected in (0.05 * GIGABIT, 0.1 * GIGABIT, 0.3 * GIGABIT):
        seen = next(end for end in ends if has_seen_enough(samples(doubling, end), expected, 0.050))
        assert seen >= 0.7, "slow start's eight round trips, and not before"


def test_a_pause_of_the_traffic_does_not_lower_the_best_rate():
    total, own = best_rates(samples(lambda at: GIGABIT if at < 0.6 else 0.0, 1.0))
    assert total == pytest.approx(GIGABIT)
    assert own == pytest.approx(GIGABIT / 2)


def test_what_the_job_receives_while_the_tests_data_wait_behind_it_is_not_its_result():
    job_only = [Sample(0.025 * i, 1000 + int(GIGABIT * 0.025 * i), 4096) for i in range(60)]
    assert not has_seen_enough(job_only, GIGABIT, 0.002)
    assert best_rates(job_only) == (0.0, 0.0)
    last = job_only[-1]
    both = [Sample(last.at + 0.025 * i, last.total + i * 10**6, last.own + i * 10**6) for i in range(1, 20)]
    assert has_seen_enough(job_only + both, 40e6, 0.002)
    total, own = best_rates(job_only + both)
    assert total > 0.9 * GIGABIT, "a window that the test's data end"
    assert own > 0
    lost = [Sample(0.025 * i, 4096, 4096) for i in range(60)]
    assert not has_seen_enough(lost, GIGABIT, 0.002), "nothing arrives at all: what was sent is lost"
    assert best_rates(lost) == (0.0, 0.0)


@given(expected=st.floats(1e6, 3e9), round_trip=st.floats(0, 0.2))
def test_a_confirming_test_fills_the_link_and_leaves_little_waiting_behind(expected, round_trip):
    waiting = under_way(expected, round_trip) - expected * round_trip
    assert 0.01 * expected <= waiting <= 0.0125 * expected + 0.25 * expected * round_trip + 2**18


def test_a_slow_link_can_show_that_it_became_faster():
    assert under_way(0.01 * GIGABIT, 0.002) / 0.002 > 0.1 * GIGABIT


def held_down(bandwidth, round_trip, chosen_by=0.002, queueing=0.0, was_starved=False):
    limit = under_way(GIGABIT, chosen_by)
    own = min(bandwidth, limit / (round_trip + queueing))
    rates = Rates(received=own, own=own, sent_before=0.0, was_starved=was_starved)
    return was_held_down(own, rates, limit, GIGABIT, round_trip)


def test_a_fall_is_believed_where_the_link_and_not_the_test_was_the_limit():
    assert not held_down(0.1 * GIGABIT, 0.004)
    assert not held_down(0.95 * GIGABIT, 0.002)
    assert held_down(GIGABIT, 0.050), "the limit was chosen by the latency of before"
    assert held_down(3 * GIGABIT, 0.002), "as much as the test could have under way"


@given(queueing=st.floats(0.02, 0.08))
def test_a_busy_machine_that_holds_a_confirming_test_down_is_not_taken_for_the_link(queueing):
    assert held_down(GIGABIT, 0.002, queueing=queueing)


def test_more_than_the_measurement_beside_the_job_may_be_a_rise_that_the_test_was_too_small_to_share_in():
    limit = under_way(0.1 * GIGABIT, 0.050)
    beside = Rates(received=0.5 * GIGABIT, own=0.02 * GIGABIT, sent_before=0.25 * GIGABIT)
    bandwidth, _ = judge(beside, 0.1 * GIGABIT)
    assert bandwidth == 0.1 * GIGABIT
    assert was_held_down(bandwidth, beside, limit, 0.1 * GIGABIT, 0.050)
    full = Rates(received=0.1 * GIGABIT, own=0.02 * GIGABIT, sent_before=0.25 * GIGABIT)
    assert not was_held_down(bandwidth, full, limit, 0.1 * GIGABIT, 0.050)


def test_a_fall_is_not_believed_of_a_host_that_was_starved():
    assert held_down(0.1 * GIGABIT, 0.004, was_starved=True)
    assert not held_down(0.95 * GIGABIT, 0.002, was_starved=True), "what was confirmed is confirmed"
    on_time = [Sample(SAMPLE_INTERVAL * i, 0) for i in range(40)]
    assert not was_starved(on_time)
    assert not was_starved(on_time[::2])
    assert was_starved(on_time[::5])


@given(round_trip=st.floats(0, 0.2))
def test_an_unsettled_test_ends_after_slow_start_could_have_ended_twice(round_trip):
    rates = [GIGABIT, GIGABIT / 2]  # every tenth of a second another one: never settled

    def ends(seconds):
        return is_over_time(samples(lambda at: rates[int(at * 10) % 2], seconds), round_trip)

    assert not ends(min(0.9 + 16 * round_trip, 2.9))
    assert ends(min(1.1 + 16 * round_trip, 3.1))
