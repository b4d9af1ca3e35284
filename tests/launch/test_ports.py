"""Ports for a run on loopback: nobody else may come by them before the run's own processes do."""

import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.launch.environment import ports as module
from trimtab.launch.environment.ports import free_ports, server_ports


def test_no_port_is_one_that_an_outgoing_connection_may_be_given():
    ports = free_ports(40)
    assert len(set(ports)) == 40
    assert set(ports) <= set(server_ports())


def test_a_port_is_free():
    for number in free_ports(10):
        with socket.socket() as port:
            port.bind(("127.0.0.1", number))


@pytest.mark.parametrize(
    ("told", "ports"),
    [
        ("32768\t60999\n", range(10000, 32767)),
        ("10100 65000", range(10000, 65535)),
        ("", range(10000, 32767)),
    ],
)
def test_where_the_kernel_leaves_few_ports_all_are_taken(tmp_path, told, ports):
    file = tmp_path / "ip_local_port_range"
    file.write_text(told)
    assert server_ports(file) == ports


@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_no_two_ports_are_next_to_each_other(count, random):
    few = server_ports()[: 4 * count + 8]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "server_ports", lambda: few)
        patch.setattr(module, "random", random)
        ports = sorted(free_ports(count))
    assert all(above - below > 1 for below, above in pairwise(ports))
