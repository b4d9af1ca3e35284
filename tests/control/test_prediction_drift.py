"""A measurement out of turn is asked for when exchanges stay off their time, and more rarely where that is in vain."""

from itertools import pairwise

from trimtab.control.monitors.model_drift import PredictionDrift


def asked(drift, sync, *, expected=0.1, step=0.3, seconds=600.0):
    """The times at which it asks, over steps that all take the same."""
    times, now = [], 0.0
    while now < seconds:
        drift.observe(sync, expected, step)
        if drift.asks_to_measure(now):
            times.append(now)
        now += step
    return times


def test_exchanges_on_time_do_not_drift():
    assert asked(PredictionDrift(), 0.1) == []
    assert asked(PredictionDrift(), 0.12) == []


def test_exchanges_that_are_off_by_little_of_a_step_do_not_drift():
    assert asked(PredictionDrift(), 0.01, expected=0.03, step=0.3) == []


def test_three_slow_or_three_fast_exchanges_in_a_row_drift():
    assert asked(PredictionDrift(), 0.3)[0] == 0.6
    assert asked(PredictionDrift(), 0.02)[0] == 0.6


def test_slow_and_fast_in_turns_do_not_drift():
    drift = PredictionDrift()
    for step in range(30):
        drift.observe(0.3 if step % 2 else 0.02, 0.1, 0.3)
        assert not drift.asks_to_measure(step * 0.3)


def test_measuring_in_vain_makes_the_next_wait_twice_as_long():
    times = asked(PredictionDrift(), 0.3)
    waits = [after - before for before, after in pairwise(times)]
    assert len(times) <= 9
    assert all(after > 1.6 * before for before, after in pairwise(waits[:5]))


def test_a_change_of_the_network_restores_the_first_patience():
    drift = PredictionDrift()
    asked(drift, 0.3, seconds=300)
    drift.network_changed(300.0)
    for step in range(1, 30):
        drift.observe(0.3, 0.1, 0.3)
        if drift.asks_to_measure(300 + step * 0.3):
            break
    assert 4.0 <= step * 0.3 <= 5.0


def steps(drift, sync, start, *, expected, seconds=20.0, step=0.3):
    """When it first asks; None: not in that time."""
    for n in range(round(seconds / step)):
        drift.observe(sync, expected, step)
        if drift.asks_to_measure(start + n * step):
            return start + n * step
    return None


def test_a_refused_measurement_is_asked_for_again_even_if_the_slow_exchange_is_the_expected_one_by_then():
    drift = PredictionDrift()
    asked_at = steps(drift, 0.3, 0.0, expected=0.1)
    drift.refused(asked_at)
    assert 2.0 <= steps(drift, 0.3, asked_at + 0.3, expected=0.3) - asked_at <= 3.0


def test_a_refused_measurement_is_not_asked_for_again_once_exchanges_are_on_time():
    drift = PredictionDrift()
    asked_at = steps(drift, 0.3, 0.0, expected=0.1)
    drift.refused(asked_at)
    drift.observe(0.1, 0.12, 0.3)
    drift.observe(0.1, 0.12, 0.3)
    assert steps(drift, 0.3, asked_at + 0.3, expected=0.3) is None


def test_a_refused_measurement_does_not_make_the_next_wait_longer():
    drift = PredictionDrift()
    now = 0.0
    for _ in range(10):
        asked_at = steps(drift, 0.3, now, expected=0.1)
        assert asked_at - now <= 3.0
        drift.refused(asked_at)
        now = asked_at


def test_another_plan_is_not_held_to_what_was_expected_of_the_last():
    drift = PredictionDrift()
    drift.refused(steps(drift, 0.3, 0.0, expected=0.1))
    drift.plan_changed()
    assert steps(drift, 0.3, 1.0, expected=0.3) is None


def test_a_drift_is_unexplained_until_a_measurement_has_taken_place():
    drift = PredictionDrift()
    asked_at = steps(drift, 0.3, 0.0, expected=0.1)
    assert drift.is_unexplained
    drift.measured()
    assert not drift.is_unexplained
    assert steps(drift, 0.3, asked_at + 0.3, expected=0.1, seconds=2.0) is None, "it is too early to ask again"
    assert drift.is_unexplained, "but they are off again"


def test_one_exchange_on_time_among_slow_ones_ends_no_drift_and_two_of_three_do():
    drift = PredictionDrift()
    drift.network_changed(0.0)
    for sync, is_unexplained in ((0.3, False), (0.3, False), (0.3, True), (0.1, True), (0.3, True), (0.1, False)):
        drift.observe(sync, 0.1, 0.3)
        assert drift.is_unexplained == is_unexplained


def test_what_is_expected_may_follow_the_slow_exchanges_meanwhile():
    drift = PredictionDrift()
    drift.network_changed(0.0)
    steps(drift, 0.3, 0.0, expected=0.1, seconds=0.9)
    assert 4.0 <= steps(drift, 0.3, 0.9, expected=0.3) <= 4.5, "compared with the last confirmed prediction"
