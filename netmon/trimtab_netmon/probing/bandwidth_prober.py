"""One bandwidth test, from the sender's and from the receiver's side; never two at once on a host."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import grpc
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.peers.channels import AddressUnknownError, Peers
from trimtab_netmon.probing import iperf
from trimtab_netmon.probing.attempt_results import BusyThread, Sent, TestResult
from trimtab_netmon.probing.bandwidth import (
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
    is_more,
    is_over_time,
    under_way,
    was_held_down,
    was_starved,
)
from trimtab_netmon.probing.engines import (
    MOST_OF_IPERF3,
    NUM_STREAMS,
    PATIENCE,
    START_PATIENCE,
    Engine,
    Receiver,
    Sender,
    SpoiledError,
    TestError,
    choose,
    engines_for,
)
from trimtab_netmon.probing.interface import InterfaceWatch
from trimtab_netmon.probing.iperf import IperfClient, IperfServer
from trimtab_netmon.probing.native import NativeReceiver, NativeSender
from trimtab_netmon.settings import Settings

log = logging.getLogger("trimtab_netmon")

#: Seconds that both ends of one attempt take at most: to start, to send, and to end.
CALL_LIMIT = START_PATIENCE + TEST_LIMIT + 2 * PATIENCE


class BusyError(Exception):
    """A test of this host, or of the other one, is under way already."""


class Tester:
    """The part of this host in bandwidth tests."""

    def __init__(
        self, settings: Settings, interface: InterfaceWatch, peers: Peers, latency_to: Callable[[int], float]
    ) -> None:
        self._settings = settings
        self._interface = interface
        self._peers = peers
        self._latency_to = latency_to
        self._is_taken = False
        self._is_iperf3_spoiled = False
        self.outrun_by: set[int] = set()
        """Workers, to whom a link kept iperf3 busy all the time."""
        self._sent_before, self._sent_at = 0.0, float("-inf")
        """The job's sending rate [bytes/s] before this host's last test, and when that test ended."""

    async def send(self, target: int, expected: float) -> TestResult:
        """Test the bandwidth to another worker.

        Raises:
            BusyError: If this host or the other is in a test already.
            TestError: If the test cannot run.
        """
        with self._reserve():
            try:
                return await self._send_gently(target, expected)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise BusyError(f"worker {target} is busy with another test") from None
                raise TestError(f"worker {target}: {error.details()}") from None
            except OSError as error:
                raise TestError(f"worker {self._settings.worker} cannot test: {_describe_error(error)}") from error

    async def _send_gently(self, target: int, expected: float) -> TestResult:
        """Confirm the expected rate with few bytes under way; if that fails, send all that the link takes."""
        limit = under_way(expected, 2 * self._latency_to(target))
        # What the job received may refute the expected rate, unless it can have come over a faster link than this one.
        most_known = max(expected, self._interface.capacity)
        is_refuted = is_more(self._interface.most_received(RATE_WINDOW), most_known)
        attempts: list[Sent] = []
        if not (expected == 0 or is_refuted or limit // NUM_STREAMS > iperf.largest_window()):
            with suppress(TestError):  # the other host's kernel may grant less
                sent = await self._send(target, expected, limit // NUM_STREAMS)
                found = TestResult.of(sent, expected)
                if not was_held_down(found.bandwidth, sent.rates, limit, expected, 2 * self._latency_to(target)):
                    return found
                attempts.append(sent)
        sent = await self._send_once_free(target, expected)
        found = TestResult.of(sent, expected)
        if sent.was_outrun:
            self.outrun_by.add(target)
        is_beyond_iperf3 = sent.was_outrun or found.bandwidth > MOST_OF_IPERF3
        if self._settings.probe == "auto" and sent.engine is Engine.IPERF3 and is_beyond_iperf3:
            attempts.append(sent)
            with suppress(TestError):
                found = TestResult.of(await self._send_once_free(target, found.bandwidth), found.bandwidth)
        return found.after(*attempts)

    async def _send_once_free(self, target: int, expected: float) -> Sent:
        """Test without a window as soon as the other host has ended its part of the attempt before."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await self._send(target, expected, None)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(SAMPLE_INTERVAL)

    async def _send(self, target: int, expected: float, window: int | None) -> Sent:
        usable = engines_for(self._settings.probe, expected, has_outrun_iperf3=target in self.outrun_by)
        engines = [netmon_pb2.Engine.Name(each.value) for each in usable]
        call = self._peers.peer(target).ReceiveTest(
            netmon_pb2.ReceiveTestRequest(source=self._settings.worker, limit_seconds=TEST_LIMIT, engines=engines),
            timeout=CALL_LIMIT,
        )
        sender: Sender | None = None
        sent_before, engine = 0.0, Engine.IPERF3
        round_trip = 2 * self._latency_to(target)
        begun, failure, report = time.monotonic(), "", ""
        flows_since, sent_throughout = float("inf"), float("inf")
        received: list[Sample] = []
        sending, receiving = BusyThread(), BusyThread()
        try:
            async for update in call:
                received.append(Sample(update.monotonic_seconds, update.received_bytes, update.test_bytes))
                if sender is None:  # the first update: the receiver is ready
                    sent_before = self._sent_by_the_job()
                    engine = _engine_of(update)
                    sender = await self._start_sender(target, engine, update, window)
                    begun = time.monotonic()
                if received[-1].own > 0:
                    flows_since = min(flows_since, time.monotonic())
                    receiving.record(update.monotonic_seconds, update.busiest_thread_seconds)
                    sending.record(time.monotonic(), sender.busiest_thread_seconds)
                has_ended = sender.is_over or time.monotonic() - begun > TEST_LIMIT + PATIENCE
                if has_ended or is_over_time(received, round_trip) or has_seen_enough(received, expected, round_trip):
                    break
                if window and has_risen(received, expected):
                    break
        finally:
            call.cancel()
            sent_throughout = self._interface.least_sent(SETTLE_WINDOW, flows_since)
            if sender is not None:
                failure, report = sender.failure, await sender.stop()
                self._sent_before, self._sent_at = sent_before, time.monotonic()
        flowing = flowing_in(received)
        total, own = best_rates(flowing)
        if own == 0 or failure:
            said = "; ".join(filter(None, (failure, report))) or "no data arrived"
            raise TestError(f"to worker {target}: {said}")
        rates = Rates(
            received=total,
            own=own,
            sent_before=sent_before,
            sent_throughout=sent_throughout,
            was_starved=was_starved(received),
            has_settled=has_seen_enough(received, expected, round_trip),
        )
        was_outrun = engine is Engine.IPERF3 and (sending.was_always_busy or receiving.was_always_busy)
        return Sent(rates, flowing[-1].at - flowing[0].at, flowing[-1].own, engine, was_outrun)

    async def _start_sender(
        self, target: int, engine: Engine, ready: netmon_pb2.ReceiveTestUpdate, window: int | None
    ) -> Sender:
        where = replace(self._peers.endpoint(target), port=ready.port)
        source = self._settings.listen.host
        if engine is Engine.NATIVE:
            return NativeSender(where, source, ready.ticket, TEST_LIMIT, window)
        return await IperfClient.start(where, source, TEST_LIMIT, window)

    def _sent_by_the_job(self) -> float:
        """Return the bytes/s that just left this host, or that left it before a test that has just ended here."""
        if time.monotonic() < self._sent_at + RATE_WINDOW:
            return self._sent_before
        return self._interface.sending_rate(RATE_WINDOW)

    async def receive(
        self, source: int, limit: float, engines: Sequence[Engine]
    ) -> AsyncIterator[netmon_pb2.ReceiveTestUpdate]:
        """Serve one test from a worker: yield the interface's counter until the sender cancels.

        Raises:
            BusyError: If this host or the other is in a test already.
            TestError: If the test cannot run.
        """
        with self._reserve():
            limit = min(limit, TEST_LIMIT) + PATIENCE
            engine = choose(engines, self._is_iperf3_spoiled)
            try:
                receiver = await self._start_receiver(source, engine, limit)
            except OSError as error:
                raise TestError(
                    f"worker {self._settings.worker} cannot receive a test: {_describe_error(error)}"
                ) from error
            try:
                deadline = time.monotonic() + limit
                update = netmon_pb2.ReceiveTestUpdate(
                    engine=netmon_pb2.Engine.Name(engine.value), port=receiver.port, ticket=receiver.ticket
                )
                most_bytes = 0
                while not receiver.is_over and time.monotonic() < deadline:
                    receiver.require_good()
                    reading = self._interface.read()
                    update.monotonic_seconds, update.received_bytes = reading.at, reading.received
                    update.test_bytes = receiver.num_bytes
                    update.busiest_thread_seconds = receiver.busiest_thread_seconds
                    most_bytes = max(most_bytes, update.test_bytes)
                    yield update
                    update = netmon_pb2.ReceiveTestUpdate()
                    await asyncio.sleep(SAMPLE_INTERVAL)
                receiver.require_good()
                # Whoever connects first has the only session of iperf3, and may be gone before anybody looks.
                if engine is Engine.IPERF3 and receiver.is_over and most_bytes == 0:
                    raise SpoiledError("iperf3 ended without any data from the sender")
            except SpoiledError as error:
                self._distrust_iperf3(error)
                raise
            finally:
                await receiver.stop()

    def _distrust_iperf3(self, error: SpoiledError) -> None:
        if not self._is_iperf3_spoiled:
            self._is_iperf3_spoiled = True
            log.warning("%s; from now on this host receives tests by the native engine where the job allows it", error)

    async def _start_receiver(self, source: int, engine: Engine, limit: float) -> Receiver:
        try:
            peer = self._peers.endpoint(source).host
        except AddressUnknownError as error:
            raise TestError(str(error.details())) from None
        if engine is Engine.NATIVE:
            return NativeReceiver(self._settings.listen.host, peer, limit)
        return await IperfServer.start(self._settings.listen.host, peer)

    @contextmanager
    def _reserve(self) -> Iterator[None]:
        if self._is_taken:
            raise BusyError(f"worker {self._settings.worker} is busy with another test")
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False


def _describe_error(error: OSError) -> str:
    """Describe an error; some have no words, such as asyncio's for a process that has ended."""
    return str(error) or type(error).__name__


def _engine_of(update: netmon_pb2.ReceiveTestUpdate) -> Engine:
    """Return the engine that a receiver chose.

    Raises:
        TestError: If that engine is not known here.
    """
    try:
        return Engine(update.engine)
    except ValueError:
        raise TestError(f"the receiver chose engine {update.engine}, which is not known here") from None
