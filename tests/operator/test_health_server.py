"""Where the operator's probes are answered."""

import socket
import urllib.request

import pytest
from trimtab_operator.observability.health import HealthServer


def addresses_here():
    """Of this machine, of each family that it speaks."""
    yield "127.0.0.1"
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return
    yield "[::1]"


@pytest.mark.parametrize("address", list(addresses_here()))
def test_probes_are_answered_on_either_family_of_addresses(address):
    server = HealthServer(0, lambda: None, lambda: None)
    server.start()
    with urllib.request.urlopen(f"http://{address}:{server.port}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok\n"
    server.stop()
