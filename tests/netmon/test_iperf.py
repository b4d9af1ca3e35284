"""The children that run iperf3 end with those who wanted them."""

import asyncio

import psutil
import pytest
from trimtab_netmon import iperf


def servers():
    return [each for each in psutil.Process().children() if "--server" in each.cmdline()]


def test_a_server_that_nobody_wants_any_more_ends_before_it_listens(monkeypatch):
    monkeypatch.setattr(iperf, "_is_listening", lambda port: False)
    monkeypatch.setattr(iperf, "PATIENCE", 60)  # a busy machine may stand still for longer than it is

    async def scenario():
        starting = asyncio.create_task(iperf.IperfServer.start("127.0.0.1", "127.0.0.1"))
        while not servers():
            assert not starting.done(), starting.exception()
            await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return servers()

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == []
