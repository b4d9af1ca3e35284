"""One bandwidth test, from the sender's and from the receiver's side; never two at once on a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon import iperf
from trimtab_netmon.bandwidth import (
    RATE_WINDOW,
    TEST_LIMIT,
    Sample,
    Traffic,
    best_rate,
    has_seen_enough,
    judge,
    mean_rate,
)
from trimtab_netmon.figures import Method
from trimtab_netmon.interface import InterfaceWatch
from trimtab_netmon.peers import Peers
from trimtab_netmon.settings import Settings

#: Seconds between the receiver's samples.
SAMPLE_INTERVAL = 0.025


class BusyError(Exception):
    """This host, or the other, is in a test already."""


@dataclass(frozen=True)
class TestResult:
    """What one test found."""

    bandwidth: float
    """Bytes per second."""
    method: Method
    duration: float
    """Seconds that the test kept both hosts busy."""


class Tester:
    """This host's part in bandwidth tests."""

    def __init__(self, settings: Settings, interface: InterfaceWatch, peers: Peers) -> None:
        self._settings = settings
        self._interface = interface
        self._peers = peers
        self._is_taken = False

    async def send(self, target: int, previous: float) -> TestResult:
        """Test the bandwidth to another worker. Raises `BusyError` or `TestError`."""
        with self._reserve():
            begun = time.monotonic()
            try:
                traffic = await self._send(target, previous)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise BusyError(f"worker {target} is in a test already") from None
                raise iperf.TestError(f"worker {target}: {error.details()}") from None
            bandwidth, method = judge(traffic, previous)
            return TestResult(bandwidth, method, time.monotonic() - begun)

    async def _send(self, target: int, previous: float) -> Traffic:
        call = self._peers.peer(target).ReceiveTest(
            netmon_pb2.ReceiveTestRequest(source=self._settings.worker, limit_seconds=TEST_LIMIT),
            timeout=TEST_LIMIT + 3 * iperf.PATIENCE,
        )
        client = None
        begun, report = time.monotonic(), ""
        received: list[Sample] = []
        sent: list[Sample] = []
        last = netmon_pb2.ReceiveTestUpdate()
        try:
            async for last in call:
                received.append(Sample(last.monotonic_seconds, last.received_bytes))
                if not report:
                    reading = self._interface.read()
                    sent.append(Sample(reading.at, reading.sent))
                if client is None:  # the first update: the receiver is ready
                    begun = time.monotonic()
                    client = await iperf.start_client(
                        self._settings.peers[target], self._settings.listen, TEST_LIMIT + 1
                    )
                elif not report:  # afterwards the receiver finishes by itself
                    has_ended = client.returncode is not None or time.monotonic() - begun > TEST_LIMIT
                    if has_ended or has_seen_enough(received, previous):
                        report = await iperf.stop(client) or "{}"
        finally:
            call.cancel()
            if client is not None and not report:
                report = await iperf.stop(client)
        if last.test_bytes == 0:
            raise iperf.TestError(f"iperf3 to worker {target}: {iperf.complaint(report) or 'no data arrived'}")
        sent_seconds = sent[-1].at - sent[0].at
        return Traffic(
            received=best_rate(received),
            own=last.test_bytes_per_second,
            beside_receiver=mean_rate(received) - last.test_bytes / (received[-1].at - received[0].at),
            beside_sender=mean_rate(sent) - iperf.total_bytes(report) / sent_seconds,
        )

    async def receive(self, limit: float) -> AsyncIterator[netmon_pb2.ReceiveTestUpdate]:
        """Serve one test: the interface's counter until the sender ends it. Raises `BusyError` or `TestError`."""
        with self._reserve():
            server = await iperf.start_server(self._settings.listen)
            try:
                deadline = time.monotonic() + min(limit, TEST_LIMIT) + iperf.PATIENCE
                while server.returncode is None and time.monotonic() < deadline:
                    yield self._update()
                    await asyncio.sleep(SAMPLE_INTERVAL)
                yield self._update(await iperf.finish(server))
            finally:
                await iperf.stop(server)

    def _update(self, report: str = "") -> netmon_pb2.ReceiveTestUpdate:
        reading = self._interface.read()
        return netmon_pb2.ReceiveTestUpdate(
            monotonic_seconds=reading.at,
            received_bytes=reading.received,
            test_bytes_per_second=iperf.best_rate(report, RATE_WINDOW),
            test_bytes=iperf.total_bytes(report),
        )

    @contextmanager
    def _reserve(self) -> Iterator[None]:
        if self._is_taken:
            raise BusyError(f"worker {self._settings.worker} is in a test already")
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False
