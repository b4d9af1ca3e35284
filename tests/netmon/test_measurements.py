"""What counts as a change, and what the slowest link is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_netmon.links.measurements import (
    LinkState,
    Measurement,
    Method,
    Summary,
    apply_hysteresis,
    is_new,
    summarize,
)

measurements = st.floats(1e-4, 1e9)


def link(source, target, latency=0.001, bandwidth=125e6, **changes):
    return replace(LinkState(source, target, Measurement(latency), Measurement(bandwidth)), **changes)


def superseded(value):
    return Measurement(value, stale=True, is_outdated=True)


def ring(num_workers, **figures_of_all):
    return [link(worker, (worker + 1) % num_workers, **figures_of_all) for worker in range(num_workers)]


@given(measurements, st.floats(0.952, 1.048))
def test_noise_is_no_revision(bandwidth, factor):
    published = link(0, 1, bandwidth=bandwidth)
    settled = apply_hysteresis(published, link(0, 1, bandwidth=bandwidth * factor))
    assert not is_new(published, settled)
    assert settled.bandwidth.value == bandwidth


@given(measurements, st.floats(1.06, 100) | st.floats(0.01, 0.94))
def test_a_material_change_is_published_as_it_is(bandwidth, factor):
    published = link(0, 1, bandwidth=bandwidth)
    settled = apply_hysteresis(published, link(0, 1, bandwidth=bandwidth * factor))
    assert is_new(published, settled)
    assert settled.bandwidth.value == bandwidth * factor


def test_many_small_steps_add_up_to_a_change():
    published = link(0, 1, bandwidth=100e6)
    revisions = 0
    for step in range(100):
        settled = apply_hysteresis(published, link(0, 1, bandwidth=100e6 * 1.01**step))
        revisions += is_new(published, settled)
        published = settled
    assert 10 < revisions < 25


def test_staleness_is_a_revision():
    published = link(0, 1)
    assert is_new(published, apply_hysteresis(published, replace(link(0, 1), bandwidth=Measurement(125e6, stale=True))))


def test_the_summary_is_the_slowest_link():
    links = [*ring(3), link(1, 0, latency=0.030, bandwidth=10e6)]
    summary = summarize(links, 3, Summary())
    assert (summary.latency, summary.bandwidth, summary.stale) == (0.030, 10e6, False)


def test_nothing_measured_is_stale():
    assert summarize([LinkState(0, 1), LinkState(1, 0)], 2, Summary()) == Summary(stale=True)


def test_one_worker_alone_has_no_network():
    assert not summarize([], 1, Summary()).stale


def test_bandwidth_falls_with_the_first_link_that_shows_it():
    old = [replace(each, bandwidth=superseded(each.bandwidth.value)) for each in ring(4)[1:]]
    before = Summary(0.001, 125e6, 0.0, False)
    assert summarize([link(0, 1, bandwidth=12.5e6), *old], 4, before).bandwidth == 12.5e6


def test_bandwidth_rises_when_every_worker_has_shown_it_both_ways():
    before = Summary(0.001, 12.5e6, 0.0, False)
    fresh = ring(4, bandwidth=125e6)
    for count in range(4):
        old = [replace(each, bandwidth=superseded(12.5e6)) for each in fresh[count:]]
        assert summarize(fresh[:count] + old, 4, before).bandwidth == 12.5e6
    assert summarize(fresh, 4, before).bandwidth == 125e6


def test_a_fall_is_fresh_while_the_other_links_are_being_tested_and_not_for_ever():
    links = [link(0, 1, bandwidth=12.5e6), *(replace(each, bandwidth=superseded(125e6)) for each in ring(4)[1:])]
    before = Summary(0.001, 125e6, 0.0, False)
    assert not summarize(links, 4, before, is_settling=True).stale
    assert summarize(links, 4, before).stale


@pytest.mark.parametrize("what", ["latency", "bandwidth"])
def test_a_slowest_link_that_dies_is_no_improvement(what):
    slow = link(1, 0, latency=0.030, bandwidth=10e6)
    before = summarize([*ring(3), slow], 3, Summary())
    measurement = replace(getattr(slow, what), stale=True)
    after = summarize([*ring(3), replace(slow, **{what: measurement})], 3, before)
    assert (after.latency, after.bandwidth, after.stale) == (0.030, 10e6, True)


def test_an_old_measurement_that_says_no_more_than_the_others_does_not_make_them_stale():
    old = replace(link(1, 0), bandwidth=Measurement(119e6, stale=True))
    after = summarize([*ring(3), old], 3, Summary())
    assert (after.bandwidth, after.stale) == (125e6, False)


def test_a_peer_that_begins_anew_does_not_take_its_links_figures_with_it():
    settled = apply_hysteresis(link(0, 1), LinkState(0, 1))
    assert (settled.latency, settled.bandwidth) == (Measurement(0.001, stale=True), Measurement(125e6, stale=True))


def test_the_summary_tells_of_the_slowest_measurement_what_it_is_worth():
    slowest = Measurement(10e6, Method.IPERF3_SHARED, age=7.0, is_lower_bound=True)
    summary = summarize([*ring(3), replace(link(1, 0), bandwidth=slowest)], 3, Summary())
    assert (summary.bandwidth_age, summary.method, summary.is_lower_bound) == (7.0, Method.IPERF3_SHARED, True)
