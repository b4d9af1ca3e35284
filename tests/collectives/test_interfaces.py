"""Ranks advertise an address that other machines reach."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import torch.distributed as dist
from trimtab.transport import interfaces
from trimtab.transport.interfaces import own_address
from trimtab_api.errors import UserError


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def outward(monkeypatch: pytest.MonkeyPatch) -> tuple[str, socket.AddressFamily]:
    """The address of this machine on a network, which the test machine may lack."""
    address = "192.168.7.9", socket.AF_INET
    monkeypatch.setattr(interfaces, "outward_address", lambda: address)
    return address


@pytest.mark.parametrize("names", ["lo", "lo,lo", "absent0, lo"])
def test_of_a_list_of_interfaces_the_first_with_an_address_is_used(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", names)
    assert own_address() == ("127.0.0.1", socket.AF_INET)


@pytest.mark.parametrize("names", ["absent0", "^lo", ","])
def test_a_list_without_a_usable_interface_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", names)
    with pytest.raises(UserError, match=r"^GLOO_SOCKET_IFNAME: '.*': names no network interface .* set it to one of"):
        own_address()


def test_a_host_name_that_leads_to_loopback_is_not_advertised(
    monkeypatch: pytest.MonkeyPatch, outward: tuple[str, socket.AddressFamily]
) -> None:
    found: Any = [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.1.1", 9))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: found)
    monkeypatch.setenv("MASTER_ADDR", "node0")
    assert own_address() == outward


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_ranks_that_meet_on_loopback_stay_there(
    monkeypatch: pytest.MonkeyPatch, outward: tuple[str, socket.AddressFamily], host: str
) -> None:
    monkeypatch.setenv("MASTER_ADDR", host)
    address, _ = own_address()
    assert interfaces.is_loopback(address)


def test_without_any_word_of_rank_0_the_outward_address_is_advertised(
    outward: tuple[str, socket.AddressFamily],
) -> None:
    assert own_address() == outward


def test_an_unknown_master_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(UserError, match=r"^MASTER_ADDR: 'no-such-host.invalid': cannot be reached"):
        own_address()


def test_the_store_of_a_process_group_says_where_rank_0_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.2:{port}", rank=0, world_size=1)
    try:
        assert interfaces.rank0_host() == "127.0.0.2"
    finally:
        dist.destroy_process_group()
