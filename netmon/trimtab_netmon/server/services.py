"""The gRPC services of a monitor, thin layers over its parts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
import grpc.aio
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.coordination.coordinator import Coordinator, ProbeDeferredError, ShuttingDownError
from trimtab_netmon.links.broadcast import Broadcast
from trimtab_netmon.links.delta_encoding import StateSender
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing.bandwidth_prober import BusyError, Tester
from trimtab_netmon.probing.engines import Engine, TestError

#: Seconds that a measurement out of turn may take, where a caller sets no deadline.
MEASURE_LIMIT = 60.0

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class NetworkMonitor:
    """The service for trainers."""

    def __init__(
        self, published: Broadcast[netmon_pb2.NetworkState], coordinator: Coordinator | None, peers: Peers
    ) -> None:
        self._published = published
        self._coordinator = coordinator
        self._peers = peers

    async def GetNetworkState(  # noqa: N802 - the contract's name
        self, request: netmon_pb2.GetNetworkStateRequest, context: Context
    ) -> netmon_pb2.NetworkState:
        """Return the state as last published."""
        return self._published.value

    async def WatchNetworkState(  # noqa: N802
        self, request: netmon_pb2.WatchNetworkStateRequest, context: Context
    ) -> AsyncIterator[netmon_pb2.NetworkState]:
        """Yield the state, then every newer one, as deltas if the reader accepts them."""
        sender = StateSender()
        async for state in self._published.subscribe():
            yield sender.message(state, time.monotonic()) if request.accepts_partial else state

    async def MeasureNow(  # noqa: N802
        self, request: netmon_pb2.MeasureNowRequest, context: Context
    ) -> netmon_pb2.NetworkState:
        """Measure out of turn; any monitor but worker 0's passes it on."""
        if self._coordinator is None:
            remaining = context.time_remaining()
            timeout = MEASURE_LIMIT if remaining is None else min(remaining, MEASURE_LIMIT)
            try:
                return await self._peers.monitor(0).MeasureNow(request, timeout=timeout)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), f"worker 0's monitor: {error.details()}")
        try:
            async with asyncio.timeout(MEASURE_LIMIT):
                return await self._coordinator.measure_now(request.reason)
        except ProbeDeferredError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ShuttingDownError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the measurement took too long")


class MonitorPeer:
    """The service for other monitors."""

    def __init__(self, links: Broadcast[netmon_pb2.LinkTable], tester: Tester, num_workers: int) -> None:
        self._num_workers = num_workers
        self._links = links
        self._tester = tester

    async def WatchLinks(  # noqa: N802
        self, request: netmon_pb2.WatchLinksRequest, context: Context
    ) -> AsyncIterator[netmon_pb2.LinkTable]:
        """Yield the latency of the links that leave this worker, as it changes."""
        async for table in self._links.subscribe():
            yield table

    async def TestBandwidth(  # noqa: N802
        self, request: netmon_pb2.TestBandwidthRequest, context: Context
    ) -> netmon_pb2.TestBandwidthResponse:
        """Test the bandwidth to another worker."""
        if request.target >= self._num_workers or not 0 <= request.expected_bytes_per_second < math.inf:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such worker, or no such bandwidth")
        try:
            result = await self._tester.send(request.target, request.expected_bytes_per_second)
        except BusyError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TestError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return netmon_pb2.TestBandwidthResponse(
            bandwidth_bytes_per_second=result.bandwidth,
            method=netmon_pb2.Method.Name(result.method.value),
            duration_seconds=result.duration,
            lower_bound=result.is_lower_bound,
            sent_bytes=result.num_bytes,
        )

    async def ReceiveTest(  # noqa: N802
        self, request: netmon_pb2.ReceiveTestRequest, context: Context
    ) -> AsyncIterator[netmon_pb2.ReceiveTestUpdate]:
        """Receive one test."""
        if request.source >= self._num_workers:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such worker")
        try:
            async for update in self._tester.receive(request.source, request.limit_seconds, _engines(request)):
                yield update
        except BusyError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TestError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _engines(request: netmon_pb2.ReceiveTestRequest) -> list[Engine]:
    """Return the engines that a sender can use, of those known here."""
    known = {engine.value: engine for engine in Engine}
    return [known[number] for number in request.engines if number in known]
