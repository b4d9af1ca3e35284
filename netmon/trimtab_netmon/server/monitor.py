"""One worker's monitor: its parts, wired together, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from trimtab_api.errors import UserError
from trimtab_api.netmon.v1 import netmon_pb2, netmon_pb2_grpc
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import SERVER_OPTIONS, format_grpc_error, listen

from trimtab_netmon.coordination.coordinator import Coordinator
from trimtab_netmon.links import converters
from trimtab_netmon.links.broadcast import Broadcast
from trimtab_netmon.links.delta_encoding import StateReader
from trimtab_netmon.links.measurements import LinkState, Measurement, Method, moved
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing import iperf
from trimtab_netmon.probing.bandwidth_prober import Tester
from trimtab_netmon.probing.echo_packet import echo_key
from trimtab_netmon.probing.interface import InterfaceWatch, require_device_of
from trimtab_netmon.probing.latency import LatencyWindow, RoundTrip
from trimtab_netmon.probing.udp_echo import Echo
from trimtab_netmon.server.services import MonitorPeer, NetworkMonitor
from trimtab_netmon.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("trimtab_netmon")

#: Seconds between two checks whether a latency has moved.
TABLE_INTERVAL = 0.2
#: Seconds between two tables while no latency moves: each table wakes every reader.
HEARTBEAT = 1.0
#: A latency that moved by this share is news.
NEWS = 0.02
#: Seconds without an echo after which a latency is stale.
ECHO_TIMEOUT = 3.0
#: Seconds after which a latency is stale that no echo shows any more: the link never pauses, or its latency has risen.
LATENCY_TIMEOUT = 10.0
#: Seconds over which received traffic is averaged, as evidence of what links carry.
ARRIVALS_WINDOW = 1.0


class Monitor:
    """A monitor, made in a running event loop; `run` serves until cancelled."""

    def __init__(self, settings: Settings) -> None:
        if settings.others and settings.probe == "iperf3":
            iperf.require_iperf3()
        self._settings = settings
        self._metrics = Metrics(settings.worker, settings.node, settings.zone)
        self._interface = InterfaceWatch(settings.interface)
        require_device_of(settings.listen.host, settings.interface)
        self._key = echo_key(Certificates.from_environment())
        # Only monitors that prove themselves by the key can say which address of the Service is whose.
        service = settings.service if self._key and len({peer.port for peer in settings.peers}) == 1 else None
        self._addresses = PeerAddresses(settings.worker, settings.peers, settings.listen, service)
        self._peers = Peers(settings.peers, self._addresses)
        self._windows = {worker: LatencyWindow() for worker in settings.others}
        self._heard_at: dict[int, tuple[float, float]] = {}
        self._capacities: dict[int, float] = {}
        self._links = Broadcast(netmon_pb2.LinkTable(source=settings.worker))
        self._published = Broadcast(netmon_pb2.NetworkState(num_workers=len(settings.peers)))
        self._coordinator: Coordinator | None = None
        if settings.worker == 0:
            self._coordinator = Coordinator(settings, self._peers, self._published, self._metrics)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            UserError: If a port is taken.
        """
        settings = self._settings
        require_free(settings)
        tester = Tester(settings, self._interface, self._peers, self._latency)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        monitor = NetworkMonitor(self._published, self._coordinator, self._peers)
        netmon_pb2_grpc.add_NetworkMonitorServicer_to_server(
            cast("netmon_pb2_grpc.NetworkMonitorServicer", monitor), server
        )
        netmon_pb2_grpc.add_MonitorPeerServicer_to_server(
            cast("netmon_pb2_grpc.MonitorPeerServicer", MonitorPeer(self._links, tester, len(settings.peers))), server
        )
        listen(server, str(settings.listen))
        if not settings.listen.includes_loopback:  # trainers beside it need neither its address nor a name for it
            listen(server, f"localhost:{settings.listen.port}")
        echo = Echo(
            *(settings.worker, len(settings.peers), settings.listen, self._addresses, self._key),
            *(self._interface, self._metrics, self._take, self._is_suspect, self._capacity_to),
        )
        if settings.metrics_port:
            self._metrics.serve(settings.listen, settings.metrics_port)
        await server.start()
        log.info("worker %d of %d listens on %s", settings.worker, len(settings.peers), settings.listen)
        if settings.others:
            await asyncio.to_thread(iperf.log_engine, settings.probe)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (self._addresses.run(), echo.run(), self._interface.run()):
                    tasks.create_task(part)
                for part in (self._tabulate(), self._show(), self._lead_or_follow()):
                    tasks.create_task(part)
        finally:
            if self._coordinator is not None:
                self._coordinator.close()
            await server.stop(grace=0.2)
            await self._peers.close()

    def _take(self, worker: int, round_trip: RoundTrip) -> None:
        self._metrics.round_trips.observe(round_trip.seconds)
        self._windows[worker].add(round_trip)
        self._heard_at[worker] = (round_trip.at, time.time())

    def _is_suspect(self, worker: int) -> bool:
        return worker in self._heard_at and self._windows[worker].is_suspect()

    def _capacity_to(self, worker: int) -> float:
        """Return the bytes/s of the slower direction to a worker, else of the slowest known link here; 0: not known."""
        return self._capacities.get(worker) or min(self._capacities.values(), default=0.0)

    def _latency(self, worker: int) -> float:
        """Return the one-way latency to a worker in seconds; 0: not known."""
        estimate = self._windows[worker].estimate()
        return 0.0 if estimate is None else estimate.latency

    async def _tabulate(self) -> None:
        """Publish the table of the links that leave this worker, when a latency has moved and once a `HEARTBEAT`."""
        last: list[LinkState] = []
        written = float("-inf")
        while True:
            links = [self._link(worker) for worker in self._settings.others]
            now = time.monotonic()
            if now - written >= HEARTBEAT or any(map(_has_moved, last, links)):
                last, written = links, now
                self._links.publish(
                    netmon_pb2.LinkTable(
                        source=self._settings.worker,
                        links=[converters.link_to_proto(link) for link in links],
                        received_bytes_per_second=self._interface.most_received(ARRIVALS_WINDOW),
                    )
                )
            await asyncio.sleep(TABLE_INTERVAL)

    def _link(self, worker: int) -> LinkState:
        estimate = self._windows[worker].estimate()
        if estimate is None:
            return LinkState(self._settings.worker, worker)
        heard_at, heard_at_unix = self._heard_at[worker]
        silence = time.monotonic() - heard_at
        is_unreachable = silence > ECHO_TIMEOUT
        is_stale = is_unreachable or estimate.age > LATENCY_TIMEOUT
        return LinkState(
            source=self._settings.worker,
            target=worker,
            latency=Measurement(
                estimate.latency, Method.UDP_ECHO, heard_at_unix - estimate.age, is_stale, age=silence + estimate.age
            ),
            jitter=estimate.jitter,
            queueing=estimate.queueing,
            is_unreachable=is_unreachable,
        )

    async def _show(self) -> None:
        """Keep the metrics and the links' capacities up to date with the published state."""
        async for state in self._published.subscribe():
            self._metrics.show(state)
            self._capacities = _capacities(state, self._settings.worker)
            mine = [link for link in state.links if self._settings.worker in (link.source, link.target)]
            self._interface.capacity = max((converters.magnitude(link.bandwidth.value) for link in mine), default=0.0)

    async def _lead_or_follow(self) -> None:
        """Coordinate on worker 0; on the others, publish what worker 0 publishes."""
        if self._coordinator is not None:
            await self._coordinator.run()
            return
        while True:
            reader = StateReader()
            request = netmon_pb2.WatchNetworkStateRequest(accepts_partial=True)
            try:
                async for message in self._peers.monitor(0).WatchNetworkState(request):
                    if (state := reader.merge(message)) is not None:
                        self._published.publish(state)
            except grpc.aio.AioRpcError as error:
                self._published.publish(_gone_stale(self._published.value, format_grpc_error(error)))
                await asyncio.sleep(0.5)


def _has_moved(before: LinkState, after: LinkState) -> bool:
    """Return whether a link's latency moved, or began or ceased to be stale."""
    if (before.latency.stale, before.is_unreachable) != (after.latency.stale, after.is_unreachable):
        return True
    return moved(before.latency.value, after.latency.value, NEWS)


def _capacities(state: netmon_pb2.NetworkState, worker: int) -> dict[int, float]:
    """Return the bytes/s of the slower direction between a worker and each other one, where one is known."""
    result: dict[int, float] = {}
    for link in state.links:
        value = converters.magnitude(link.bandwidth.value)
        if value > 0 and worker in (link.source, link.target):
            other = link.target if link.source == worker else link.source
            result[other] = min(value, result.get(other, value))
    return result


def _gone_stale(state: netmon_pb2.NetworkState, why: str) -> netmon_pb2.NetworkState:
    """Return the state for the time when worker 0's monitor no longer answers."""
    stale = netmon_pb2.NetworkState()
    stale.CopyFrom(state)
    stale.summary.stale = True
    stale.problem = f"the monitor of worker 0 does not answer: {why}"
    return stale


def require_free(settings: Settings) -> None:
    """Check that the port that a monitor listens on is free.

    Raises:
        UserError: If it is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.listen.host, settings.listen.port))
            probe.listen()
        except OSError as error:
            raise UserError(
                f"cannot listen there for gRPC ({error.strerror}); stop what uses the port, or choose another",
                field="--listen",
                value=str(settings.listen),
            ) from None


def serve(settings: Settings, on_stop: Callable[[Callable[[], None]], None]) -> None:
    """Run a monitor until it is told to stop; ``on_stop`` gets the function that stops it."""

    async def main() -> None:
        monitor = Monitor(settings)
        stopped = asyncio.Event()
        on_stop(stopped.set)
        running = asyncio.create_task(monitor.run())
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(main())
    log.info("the network monitor has stopped")
