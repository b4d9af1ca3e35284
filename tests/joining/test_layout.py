"""Which ranks share a host."""

import socket
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from trimtab.launch.joining.host_layout import HostEndpoint, host_name, layout, workers

CARD = HostEndpoint("a", "10.0.0.1", "eth0", 12000, True)


def test_two_hosts_whose_ranks_take_turns():
    endpoints = [replace(CARD, host=host, port=12000 + rank) for rank, host in enumerate("abab")]
    seen = [layout(endpoints, rank) for rank in range(4)]
    assert [(each.worker, each.local_rank, each.is_first) for each in seen] == [
        (0, 0, True), (1, 0, True), (0, 1, False), (1, 1, False),
    ]  # fmt: skip
    assert {each.hosts for each in seen} == {(endpoints[0], endpoints[1])}
    assert {each.ranks for each in seen} == {((0, 2), (1, 3))}


def test_our_launchers_count_ranks_worker_by_worker():
    assert workers(6, 2) == ((0, 1), (2, 3), (4, 5))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_every_host_has_one_first_rank_and_all_see_the_same_hosts(hosts):
    endpoints = [replace(CARD, host=host, port=rank) for rank, host in enumerate(hosts)]
    seen = [layout(endpoints, rank) for rank in range(len(endpoints))]
    firsts = [rank for rank, each in enumerate(seen) if each.is_first]
    assert [endpoints[rank] for rank in firsts] == list(seen[0].hosts)
    assert len({each.hosts for each in seen}) == 1
    assert all(each.hosts[each.worker].host == endpoints[rank].host for rank, each in enumerate(seen))
    assert len({(each.worker, each.local_rank) for each in seen}) == len(endpoints)


def test_a_host_has_a_name_where_a_sandbox_hides_what_tells_machines_apart(tmp_path: Path):
    missing = tmp_path / "missing"
    assert host_name() == host_name()
    assert host_name(boot_id=missing).startswith(f"{socket.gethostname()} net:[")
    assert host_name(missing, missing) == f"{socket.gethostname()} {socket.gethostname()}"
