"""What is in force when: phases, what they say of hosts and links, and the relay's words for them."""

from hypothesis import given
from hypothesis import strategies as st
from trimtab_netmon.emulate import Link, Network, Phase, random_network
from trimtab_netmon.emulate.network_file import parse_network, write_network
from trimtab_netmon.emulate.relay import Lag, RelayReport, commands
from trimtab_netmon.emulate.schedule import BANDWIDTHS, DURATIONS, LATENCIES

FAST = Phase(duration=10, latency=0.001, bandwidth=125e6)
FAR = Phase(duration=5, latency=0.025, bandwidth=125e6)
NARROW = Phase(
    duration=5,
    latency=0.002,
    bandwidth=12.5e6,
    hosts={1: 1e6},
    links=(Link(0, 1, latency=0.030), Link(1, 0, bandwidth=5e5)),
)


def test_a_phase_begins_when_the_one_before_it_ends():
    network = Network((FAST, FAR, NARROW))
    assert [network.at(t) for t in (0, 9.999, 10, 14.999, 15, 19)] == [FAST, FAST, FAR, FAR, NARROW, NARROW]


def test_the_last_phase_holds_after_the_end():
    assert Network((FAST, FAR)).at(1e6) is FAR


def test_with_repeat_the_first_phase_follows_the_last():
    network = Network((FAST, FAR), repeat=True)
    assert [network.at(t) for t in (14, 15, 25, 30 + 9, 30 + 10)] == [FAR, FAST, FAR, FAST, FAR]


def test_hosts_and_links_that_are_not_named_have_what_the_phase_says():
    assert (NARROW.host_bandwidth(0), NARROW.host_bandwidth(1)) == (12.5e6, 1e6)
    assert (NARROW.link_latency(0, 1), NARROW.link_latency(1, 0)) == (0.030, 0.002)
    assert (NARROW.link_bandwidth(0, 1), NARROW.link_bandwidth(1, 0)) == (None, 5e5)


def test_the_relay_is_told_every_host_and_every_directed_link():
    assert list(commands(Network((FAST, NARROW)), num_hosts=2)) == [
        "phase 10000000000",
        "host 0 125000000.000",
        "host 1 125000000.000",
        "link 0 0 1000000 0.000",
        "link 0 1 1000000 0.000",
        "link 1 0 1000000 0.000",
        "link 1 1 1000000 0.000",
        "phase 5000000000",
        "host 0 12500000.000",
        "host 1 1000000.000",
        "link 0 0 2000000 0.000",
        "link 0 1 30000000 0.000",
        "link 1 0 2000000 500000.000",
        "link 1 1 2000000 0.000",
        "ready hold",
    ]


def test_a_network_survives_being_written_and_read():
    network = Network((FAST, NARROW), repeat=True)
    assert parse_network(write_network(network)) == network


@given(seed=st.integers(), seconds=st.floats(min_value=1, max_value=300))
def test_a_random_network_is_in_bounds_reproducible_and_survives_being_written(seed: int, seconds: float):
    network = random_network(seed, seconds)
    assert network == random_network(seed, seconds)
    assert parse_network(write_network(network)) == network
    assert seconds <= network.duration < seconds + DURATIONS[1] + 0.1
    rounding = 1 + 5e-3
    for phase in network.phases:
        for value, (low, high) in (
            (phase.duration, DURATIONS),
            (phase.latency, LATENCIES),
            (phase.bandwidth, BANDWIDTHS),
        ):
            assert low / rounding <= value <= high * rounding


def test_other_seeds_give_other_networks():
    assert len({write_network(random_network(seed)) for seed in range(20)}) == 20


def test_a_run_is_valid_while_one_sample_in_a_hundred_is_late():
    def report(packets_late: int, heartbeats_late: int) -> RelayReport:
        packets, heartbeats = (Lag(1000, late, 0, 0, 0, 0) for late in (packets_late, heartbeats_late))
        return RelayReport("fifo", 0, 0.0, packets, heartbeats, ())

    assert report(10, 10).valid
    assert not report(11, 0).valid
    assert not report(0, 11).valid
    assert "INVALID" in report(11, 0).describe()
