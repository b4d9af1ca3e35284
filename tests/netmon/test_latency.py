"""From echoes to latency."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_netmon.probing.latency import LatencyWindow, RoundTrip


def after(samples):
    """The estimate after (time, one-way seconds, quiet) samples."""
    window = LatencyWindow()
    for at, one_way, quiet in samples:
        window.add(RoundTrip(at, 2 * one_way, quiet))
        window.estimate()
    return window


def steady(start, stop, one_way, quiet=True, step=0.1):
    count = round((stop - start) / step)
    return [(start + step * index, one_way, quiet) for index in range(count)]


def test_a_few_echoes_are_needed():
    assert after(steady(0, 0.3, 0.005)).estimate() is None
    assert after(steady(0, 0.5, 0.005)).estimate().latency == pytest.approx(0.005)


def test_queues_do_not_raise_latency_however_long_they_last():
    busy = steady(2, 60, 0.100, quiet=False)
    estimate = after(steady(0, 2, 0.001) + busy).estimate()
    assert estimate.latency == pytest.approx(0.001)
    assert estimate.queueing == pytest.approx(0.099)


def test_a_rise_shows_within_a_second_of_quiet_echoes():
    assert after(steady(0, 5, 0.001) + steady(5, 6.1, 0.025)).estimate().latency == pytest.approx(0.025)


def test_a_slight_rise_needs_more_than_a_few_echoes_that_a_busy_machine_sent_late():
    before = [(0.5 * index, 0.002, True) for index in range(20)]
    late = [(10 + 0.3 * index, 0.0026, True) for index in range(12)]
    assert after(before + late[:11]).estimate().latency == pytest.approx(0.002)
    assert after(before + late).estimate().latency == pytest.approx(0.0026)
    far = [(at, 0.0032, quiet) for at, _, quiet in late]
    assert after(before + far[:4]).estimate().latency == pytest.approx(0.0032)


def test_a_slight_rise_shows_in_the_end_however_few_echoes_are_quiet():
    rare = [(10 + 2 * index, 0.0026, True) for index in range(7)]
    assert after(steady(0, 10, 0.002) + rare).estimate().latency == pytest.approx(0.0026)


def test_echoes_older_than_a_rise_do_not_make_a_fall_of_a_slight_rise_after_it():
    window = after(steady(0, 5, 0.002))
    for index, one_way in enumerate([0.02503] * 5 + [0.02505] * 20):
        window.add(RoundTrip(6.1 + 0.3 * index, 2 * one_way, True))
        if index >= 4:
            assert window.estimate().latency >= 0.02503


def test_a_rise_shows_in_the_pauses_of_a_busy_link():
    busy = [(5 + 0.1 * index, 0.025 if index % 10 == 0 else 0.120, index % 10 == 0) for index in range(60)]
    assert after(steady(0, 5, 0.001) + busy).estimate().latency == pytest.approx(0.025)


@given(st.floats(0.0001, 0.9), st.booleans())
def test_a_fall_shows_at_once_quiet_or_not(factor, quiet):
    samples = [*steady(0, 5, 0.025), (5.0, 0.025 * factor, quiet)]
    assert after(samples).estimate().latency == pytest.approx(0.025 * factor)


@given(st.lists(st.tuples(st.floats(0.001, 0.2), st.booleans()), min_size=5, max_size=100))
def test_latency_is_never_above_the_shortest_recent_echo_nor_below_any_echo(echoes):
    samples = [(0.1 * index, one_way, quiet) for index, (one_way, quiet) in enumerate(echoes)]
    latency = after(samples).estimate().latency
    assert min(one_way for _, one_way, _ in samples) <= latency * 1.000001
    assert latency <= min(one_way for _, one_way, _ in samples[-9:]) * 1.000001


def test_doubt_is_a_link_whose_every_echo_is_slow():
    window = after(steady(0, 5, 0.001))
    assert not window.is_suspect()
    for at, one_way, quiet in steady(5, 6.1, 0.025, quiet=False):
        window.add(RoundTrip(at, 2 * one_way, quiet))
    assert window.is_suspect()


def test_a_latency_tells_when_it_was_last_seen():
    assert after(steady(0, 5, 0.001)).estimate().age == pytest.approx(0.0)
    busy = steady(5, 30, 0.050, quiet=False)
    estimate = after(steady(0, 5, 0.001) + busy).estimate()
    assert estimate.latency == pytest.approx(0.001)
    assert estimate.age == pytest.approx(25.0, abs=0.2), "queues hide whether it still holds"
    seen = after([*steady(0, 5, 0.001), *busy, (30.0, 0.0012, False)])
    assert seen.estimate().age == pytest.approx(0.0)


def test_a_rise_on_a_link_that_never_pauses_makes_the_latency_old_and_a_pause_shows_it():
    never_quiet = steady(5, 30, 0.026, quiet=False)
    assert after(steady(0, 5, 0.001) + never_quiet).estimate().age > 20
    paused = after(steady(0, 5, 0.001) + never_quiet + steady(30, 30.4, 0.025)).estimate()
    assert (paused.latency, paused.age) == (pytest.approx(0.025), pytest.approx(0.0))
