"""Channels to the other workers' monitors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import grpc
import grpc.aio
from trimtab_api.netmon.v1 import netmon_pb2_grpc
from trimtab_api.rpc.channels import open_async_channel

from trimtab_netmon.peers.addresses import PeerAddresses, is_literal
from trimtab_netmon.settings import Endpoint


class AddressUnknownError(grpc.aio.AioRpcError):
    """A call that failed before it began, because the address of the other monitor is not known yet."""

    def __init__(self, endpoint: Endpoint) -> None:
        nothing = grpc.aio.Metadata()
        details = f"the address of {endpoint.host} is not known yet"
        super().__init__(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details, None)


class Peers:
    """One channel to each monitor, made when first used, and again once the monitor has another address.

    A channel is to an IP address: gRPC would look a name up once a second for as long as nobody answers.
    """

    def __init__(self, endpoints: Sequence[Endpoint], addresses: PeerAddresses) -> None:
        self._endpoints = endpoints
        self._addresses = addresses
        self._channels: dict[int, tuple[str, grpc.aio.Channel]] = {}
        self._retired: list[grpc.aio.Channel] = []
        """Channels to earlier addresses. To close one would cancel the tasks that still read from it; they find out by
        its keepalive that nobody answers there any more."""

    def peer(self, worker: int) -> netmon_pb2_grpc.MonitorPeerAsyncStub:
        """Return a stub for calls between monitors.

        Raises:
            AddressUnknownError: If the monitor's address is not known yet.
        """
        stub = netmon_pb2_grpc.MonitorPeerStub(self._channel(worker))
        return cast("netmon_pb2_grpc.MonitorPeerAsyncStub", stub)

    def monitor(self, worker: int) -> netmon_pb2_grpc.NetworkMonitorAsyncStub:
        """Return a stub for the calls that trainers make.

        Raises:
            AddressUnknownError: If the monitor's address is not known yet.
        """
        stub = netmon_pb2_grpc.NetworkMonitorStub(self._channel(worker))
        return cast("netmon_pb2_grpc.NetworkMonitorAsyncStub", stub)

    def endpoint(self, worker: int) -> Endpoint:
        """Return where a monitor was last found, by its IP address.

        Raises:
            AddressUnknownError: If the monitor's address is not known yet.
        """
        address = self._addresses.address(worker)
        if address is None:
            raise AddressUnknownError(self._endpoints[worker])
        return Endpoint(address, self._endpoints[worker].port)

    async def close(self) -> None:
        """Close every channel."""
        for channel in (*self._retired, *(channel for _, channel in self._channels.values())):
            await channel.close(grace=None)

    def _channel(self, worker: int) -> grpc.aio.Channel:
        endpoint, address = self._endpoints[worker], self.endpoint(worker).host
        opened = self._channels.get(worker)
        if opened is None or opened[0] != address:
            if opened is not None:
                self._retired.append(opened[1])
            name = None if is_literal(endpoint.host) else endpoint.host
            channel = open_async_channel(f"{address}:{endpoint.port}", server_name=name)
            opened = self._channels[worker] = (address, channel)
        return opened[1]
