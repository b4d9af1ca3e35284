"""One bandwidth test, from the sender's and from the receiver's side; never two at once on a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import grpc
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon import iperf
from trimtab_netmon.bandwidth import (
    RATE_WINDOW,
    SAMPLE_INTERVAL,
    SETTLE_WINDOW,
    TEST_LIMIT,
    Rates,
    Sample,
    best_rates,
    flowing_in,
    has_risen,
    has_seen_enough,
    is_lower_bound,
    is_more,
    is_over_time,
    judge,
    under_way,
    was_held_down,
    was_starved,
)
from trimtab_netmon.interface import InterfaceWatch
from trimtab_netmon.measurements import Method
from trimtab_netmon.peers import Peers
from trimtab_netmon.settings import Settings


class BusyError(Exception):
    """This host, or the other, is in a test already."""


@dataclass(frozen=True)
class TestResult:
    """What one test found."""

    bandwidth: float
    """Bytes per second."""
    method: Method
    duration: float
    """Seconds from the test's first data to its end."""
    is_lower_bound: bool
    """The link may carry more."""
    num_bytes: int
    """Bytes that the test sent."""

    @classmethod
    def of(cls, rates: Rates, expected: float, duration: float, num_bytes: int) -> TestResult:
        """What these rates say of a link that was ``expected`` to carry so many bytes per second."""
        bandwidth, method = judge(rates, expected)
        return cls(bandwidth, method, duration, is_lower_bound(bandwidth, rates, expected), num_bytes)


class Tester:
    """This host's part in bandwidth tests."""

    def __init__(
        self, settings: Settings, interface: InterfaceWatch, peers: Peers, latency_to: Callable[[int], float]
    ) -> None:
        self._settings = settings
        self._interface = interface
        self._peers = peers
        self._latency_to = latency_to
        self._is_taken = False
        self._sent_before, self._sent_at = 0.0, float("-inf")
        """What the job sent before this host's last test, and when that test ended."""

    async def send(self, target: int, expected: float) -> TestResult:
        """Test the bandwidth to another worker. Raises `BusyError` or `TestError`."""
        with self._reserve():
            try:
                return await self._send_gently(target, expected)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise BusyError(f"worker {target} is in a test already") from None
                raise iperf.TestError(f"worker {target}: {error.details()}") from None
            except OSError as error:
                raise iperf.TestError(f"worker {self._settings.worker} cannot test: {error}") from error

    async def _send_gently(self, target: int, expected: float) -> TestResult:
        """Confirm the expected rate with few bytes under way; where that fails, send all that the link takes."""
        limit = under_way(expected, 2 * self._latency_to(target))
        # What the job received may refute the expected rate, unless it can have come over a faster link than this one.
        most_known = max(expected, self._interface.capacity)
        is_refuted = is_more(self._interface.most_received(RATE_WINDOW), most_known)
        if expected == 0 or is_refuted or limit // iperf.NUM_STREAMS > iperf.largest_window():
            rates, duration, num_bytes = await self._send(target, expected, None)
            return TestResult.of(rates, expected, duration, num_bytes)
        spent, spent_bytes = 0.0, 0
        with suppress(iperf.TestError):  # the other host's kernel may grant less
            rates, spent, spent_bytes = await self._send(target, expected, limit // iperf.NUM_STREAMS)
            found = TestResult.of(rates, expected, spent, spent_bytes)
            if not was_held_down(found.bandwidth, rates, limit, expected, 2 * self._latency_to(target)):
                return found
        rates, duration, num_bytes = await self._send_once_free(target, expected)
        return TestResult.of(rates, expected, spent + duration, spent_bytes + num_bytes)

    async def _send_once_free(self, target: int, expected: float) -> tuple[Rates, float, int]:
        """Test without a window as soon as the other host has ended its part of the attempt before."""
        deadline = time.monotonic() + iperf.PATIENCE
        while True:
            try:
                return await self._send(target, expected, None)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(SAMPLE_INTERVAL)

    async def _send(self, target: int, expected: float, window: int | None) -> tuple[Rates, float, int]:
        """Return the rates of one test, its duration in seconds and the bytes that it sent."""
        call = self._peers.peer(target).ReceiveTest(
            netmon_pb2.ReceiveTestRequest(source=self._settings.worker, limit_seconds=TEST_LIMIT),
            timeout=TEST_LIMIT + 3 * iperf.PATIENCE,
        )
        client, sent_before = None, 0.0
        round_trip = 2 * self._latency_to(target)
        begun, report = time.monotonic(), ""
        flows_since, sent_throughout = float("inf"), float("inf")
        received: list[Sample] = []
        try:
            async for update in call:
                received.append(Sample(update.monotonic_seconds, update.received_bytes, update.test_bytes))
                if client is None:  # the first update: the receiver is ready
                    sent_before = self._sent_by_the_job()
                    client = await iperf.start_client(
                        self._peers.endpoint(target), self._settings.listen, TEST_LIMIT, window
                    )
                    begun = time.monotonic()
                if received[-1].own > 0:
                    flows_since = min(flows_since, time.monotonic())
                has_ended = client.returncode is not None or time.monotonic() - begun > TEST_LIMIT
                if has_ended or is_over_time(received, round_trip) or has_seen_enough(received, expected, round_trip):
                    break
                if window and has_risen(received, expected):
                    break
        finally:
            call.cancel()
            sent_throughout = self._interface.least_sent(SETTLE_WINDOW, flows_since)
            if client is not None:
                report = await iperf.stop(client)
                self._sent_before, self._sent_at = sent_before, time.monotonic()
        flowing = flowing_in(received)
        total, own = best_rates(flowing)
        if own == 0:
            raise iperf.TestError(f"iperf3 to worker {target}: {iperf.complaint(report) or 'no data arrived'}")
        duration = flowing[-1].at - flowing[0].at
        rates = Rates(
            received=total,
            own=own,
            sent_before=sent_before,
            sent_throughout=sent_throughout,
            was_starved=was_starved(received),
            has_settled=has_seen_enough(received, expected, round_trip),
        )
        return rates, duration, flowing[-1].own

    def _sent_by_the_job(self) -> float:
        """Bytes per second that just left this host; if a test has just ended here, those from before that test."""
        if time.monotonic() < self._sent_at + RATE_WINDOW:
            return self._sent_before
        return self._interface.sending_rate(RATE_WINDOW)

    async def receive(self, limit: float) -> AsyncIterator[netmon_pb2.ReceiveTestUpdate]:
        """Serve one test: the interface's counter until the sender cancels. Raises `BusyError` or `TestError`."""
        with self._reserve():
            try:
                server = await iperf.start_server(self._settings.listen)
            except OSError as error:
                raise iperf.TestError(f"worker {self._settings.worker} cannot start iperf3: {error}") from error
            try:
                deadline = time.monotonic() + min(limit, TEST_LIMIT) + iperf.PATIENCE
                while server.returncode is None and time.monotonic() < deadline:
                    reading = self._interface.read()
                    yield netmon_pb2.ReceiveTestUpdate(
                        monotonic_seconds=reading.at,
                        received_bytes=reading.received,
                        test_bytes=iperf.transferred_bytes(server),
                    )
                    await asyncio.sleep(SAMPLE_INTERVAL)
            finally:
                await iperf.stop(server)

    @contextmanager
    def _reserve(self) -> Iterator[None]:
        if self._is_taken:
            raise BusyError(f"worker {self._settings.worker} is in a test already")
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False
