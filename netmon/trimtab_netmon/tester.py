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
from trimtab_netmon.bandwidth import RATE_WINDOW, TEST_LIMIT, Sample, TestRates, best_rate, has_seen_enough, judge
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
                rates = await self._send(target, previous)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise BusyError(f"worker {target} is in a test already") from None
                raise iperf.TestError(f"worker {target}: {error.details()}") from None
            bandwidth, method = judge(rates, previous)
            return TestResult(bandwidth, method, time.monotonic() - begun)

    async def _send(self, target: int, previous: float) -> TestRates:
        call = self._peers.peer(target).ReceiveTest(
            netmon_pb2.ReceiveTestRequest(source=self._settings.worker, limit_seconds=TEST_LIMIT),
            timeout=TEST_LIMIT + 3 * iperf.PATIENCE,
        )
        client = None
        begun, report = time.monotonic(), ""
        received: list[Sample] = []
        sent: list[Sample] = []
        own = 0.0
        try:
            async for update in call:
                received.append(Sample(update.monotonic_seconds, update.received_bytes))
                own = update.test_bytes_per_second
                if client is None:  # the first update: the receiver is ready
                    begun = time.monotonic()
                    client = await iperf.start_client(
                        self._settings.peers[target], self._settings.listen, TEST_LIMIT + 1
                    )
                    continue
                if report:  # stopped already; the receiver is finishing
                    continue
                reading = self._interface.read()
                sent.append(Sample(reading.at, reading.sent))
                has_ended = client.returncode is not None or time.monotonic() - begun > TEST_LIMIT
                if has_ended or has_seen_enough(received, previous):
                    report = await iperf.stop(client) or "{}"
        finally:
            call.cancel()
            if client is not None and not report:
                report = await iperf.stop(client)
        if own == 0:
            raise iperf.TestError(f"iperf3 to worker {target}: {iperf.complaint(report) or 'no data arrived'}")
        return TestRates(
            received=best_rate(received), sent=best_rate([each for each in sent if each.at <= sent[-1].at]), own=own
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
                own = iperf.best_rate(await iperf.finish(server), RATE_WINDOW)
                yield self._update(own)
            finally:
                await iperf.stop(server)

    def _update(self, own: float = 0.0) -> netmon_pb2.ReceiveTestUpdate:
        reading = self._interface.read()
        return netmon_pb2.ReceiveTestUpdate(
            monotonic_seconds=reading.at, received_bytes=reading.received, test_bytes_per_second=own
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
