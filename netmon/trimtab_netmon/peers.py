"""Channels to the other workers' monitors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import grpc.aio
from trimtab_api.channels import open_async_channel
from trimtab_api.netmon.v1 import netmon_pb2_grpc

from trimtab_netmon.settings import Endpoint


class Peers:
    """One channel to each monitor, made when first used."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._channels: dict[int, grpc.aio.Channel] = {}

    def peer(self, worker: int) -> netmon_pb2_grpc.MonitorPeerAsyncStub:
        """What monitors ask each other."""
        stub = netmon_pb2_grpc.MonitorPeerStub(self._channel(worker))
        return cast("netmon_pb2_grpc.MonitorPeerAsyncStub", stub)

    def monitor(self, worker: int) -> netmon_pb2_grpc.NetworkMonitorAsyncStub:
        """What trainers ask a monitor."""
        stub = netmon_pb2_grpc.NetworkMonitorStub(self._channel(worker))
        return cast("netmon_pb2_grpc.NetworkMonitorAsyncStub", stub)

    async def close(self) -> None:
        """Close every channel."""
        for channel in self._channels.values():
            await channel.close(grace=None)

    def _channel(self, worker: int) -> grpc.aio.Channel:
        if worker not in self._channels:
            self._channels[worker] = open_async_channel(str(self._endpoints[worker]))
        return self._channels[worker]
