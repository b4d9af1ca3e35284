"""Ports for a run on loopback: nobody else may come by them before the run's own processes do."""

import socket

import pytest
from trimtab.environment.free_ports import free_ports, server_ports


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
