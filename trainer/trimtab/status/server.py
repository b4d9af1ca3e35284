"""Serves a run's status by gRPC until it has told how the run ended, and keeps the network's links in a file.

It is a process of its own because the launcher must not have threads, and because no trainer may lose time to it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc.aio
from trimtab_api.errors import UserError
from trimtab_api.netmon import client as netmon_client
from trimtab_api.netmon.view import NOTHING_KNOWN, LinkView, NetworkView
from trimtab_api.rpc.channels import SERVER_OPTIONS, listen
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_api.trainingjob import load_job_file

from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory, best_effort
from trimtab.status.status_reader import StatusReader, is_final, is_news

#: Seconds between two readings of the run's files.
LOOK_SECONDS = 0.25
#: Seconds in which watchers can still receive the final status.
FAREWELL_SECONDS = 2.0
#: Seconds between two messages of a watch while nothing changes, where the caller names no interval.
DEFAULT_INTERVAL = 1.0

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class TrainerStatus:
    """The service: holds the newest status, and wakes those who watch."""

    def __init__(self, first: status_pb2.Status, now: Callable[[], float] = time.monotonic) -> None:
        """Have no status yet; ``now`` returns seconds by a clock that nobody sets."""
        self._status = first
        self._published = asyncio.Event()
        self._now = now

    def publish(self, status: status_pb2.Status) -> None:
        """Replace the newest status, and wake the watchers."""
        self._status = status
        published, self._published = self._published, asyncio.Event()
        published.set()

    async def GetStatus(  # noqa: N802 - the contract's name
        self, request: status_pb2.GetStatusRequest, context: Context
    ) -> status_pb2.Status:
        """Return the status now."""
        return self._status

    async def WatchStatus(  # noqa: N802
        self, request: status_pb2.WatchStatusRequest, context: Context
    ) -> AsyncIterator[status_pb2.Status]:
        """Yield the status now, every ``interval_seconds``, and at each change (`is_news`); end after a final one."""
        interval = request.interval_seconds or DEFAULT_INTERVAL
        sent, sent_at = self._status, self._now()
        yield sent
        while not is_final(sent):
            published = self._published
            await published.wait()
            newest = self._status
            if is_news(sent, newest) or self._now() - sent_at >= interval:
                sent, sent_at = newest, self._now()
                yield sent


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the run has ended or a signal comes; returns 0, or 2 for a user's mistake, which it prints."""
    parser = argparse.ArgumentParser(prog="trimtab-status", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    parser.add_argument("--job", type=Path, required=True, help="the TrainingJob")
    parser.add_argument("--monitor", help="HOST:PORT of the network monitor beside rank 0; without it, none is asked")
    parser.add_argument("--listen", required=True, help="ADDRESS:PORT")
    args = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve(RunDirectory(args.run), args.job, args.monitor, args.listen))
    except UserError as error:
        LOGGER.error(f"status: {error}")
        return 2
    return 0


async def serve(directory: RunDirectory, job: Path, monitor: str | None, address: str) -> None:
    """Serve at ``address`` until the run's end has been told. Raises `UserError`."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    try:
        listen(server, address)
    except RuntimeError as error:
        raise UserError(
            f"cannot listen on this address ({error}); choose another address or port, or stop what uses the port",
            field="--listen",
            value=address,
        ) from None
    with contextlib.ExitStack() as watching:
        network = None if monitor is None else watching.enter_context(netmon_client.watch(monitor))

        def view() -> NetworkView:
            return NOTHING_KNOWN if network is None else network.view

        reader = StatusReader(directory, load_job_file(job), view)
        status = reader.read()
        service = TrainerStatus(status)
        status_pb2_grpc.add_TrainerStatusServicer_to_server(
            cast("status_pb2_grpc.TrainerStatusServicer", service), server
        )
        await server.start()
        stopped = _signalled()
        links: tuple[LinkView, ...] = ()
        while not is_final(status) and not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await stopped.wait()
            status = reader.read()
            service.publish(status)
            if view().links != links:
                links = view().links
                with best_effort(directory.path):
                    directory.tell_links([asdict(each) for each in links])
        await server.stop(FAREWELL_SECONDS if is_final(status) else 0)


def _signalled() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, event.set)
    return event


if __name__ == "__main__":
    sys.exit(main())
