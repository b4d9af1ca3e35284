"""Follows a run from outside, from its present state to its end, through restarts.

Each attempt of a run has a status server (`trimtab.status.server`), which ends with the attempt. A follower may then
lose the connection before it has heard how the attempt ended, since a server cannot wait for those who have not called
yet. After a lost connection the follower therefore looks twice: in the run's files for how the run ended, and else for
the server of the next attempt.

A run of another launcher's ranks on one host has no server: the follower reads its files instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from trimtab_api.errors import UserError
from trimtab_api.rpc.channels import format_grpc_error, open_channel
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_api.trainingjob import load_training_job

from trimtab.status.status_reader import StatusReader, is_final

if TYPE_CHECKING:
    from trimtab.run_files.layout import RunDirectory

#: A server that has not answered within this many seconds is given up, and the run's files are read again.
ATTEMPT_SECONDS = 2.0
#: After this many seconds without an answer from any server the run counts as lost.
PATIENCE_SECONDS = 30.0
#: Seconds between attempts that fail at once.
RETRY_SECONDS = 0.05


class LostError(Exception):
    """The run, or its server, is gone, and no file says how the run ended."""


def follow(directory: RunDirectory, interval: float, patience: float = PATIENCE_SECONDS) -> Iterator[status_pb2.Status]:
    """Yield the run's statuses: now, at least every ``interval`` seconds, and at each change, up to the final one.

    Raises:
        UserError: No run is under way there.
        LostError: The run's launcher is gone, or ``patience`` seconds have passed without an answer.
    """
    for status in _read_along(directory, interval):
        yield status
        if is_final(status):
            return
    address = address_of(directory)
    heard, cause = time.monotonic(), ""
    while (launcher := directory.lost_launcher()) is None:
        try:
            for status in _tell(address, interval):
                yield status
                if is_final(status):
                    return
                heard = time.monotonic()
            cause = "the server ended"
        except grpc.RpcError as error:
            cause = format_grpc_error(error)
        if (final := _read_final(directory)) is not None:
            yield final
            return
        if time.monotonic() - heard > patience:
            raise LostError(f"no more status from {address}: {cause}")
        address = _read_address(directory.status_address) or address
        time.sleep(RETRY_SECONDS)
    if (final := _read_final(directory)) is None:
        raise LostError(f"the run was killed: its launcher, process {launcher}, is gone; see {directory.logs}")
    yield final


def _read_along(directory: RunDirectory, interval: float) -> Iterator[status_pb2.Status]:
    """Yield the statuses of a run without a server, by its files: up to the final one, or until there is a server.

    Raises:
        LostError: The run has ended without saying how.
    """
    reader: StatusReader | None = None
    while directory.is_in_use and not _read_address(directory.status_address):
        if reader is None and directory.job.exists():
            reader = StatusReader(directory, load_training_job(directory.job))
        if reader is not None:
            yield reader.read()
        time.sleep(RETRY_SECONDS if reader is None else interval)
    if reader is None or _read_address(directory.status_address):
        return
    if (final := _read_final(directory)) is None:
        raise LostError(f"the run was killed; see {directory.path}")
    yield final


def address_of(directory: RunDirectory) -> str:
    """Return where the status of the directory's run is served. Raise `UserError` where no run is under way there."""
    address = _read_address(directory.status_address)
    if not address:
        raise UserError(
            "no run goes on there; `trimtab report` shows one that has ended", field="RUN", value=str(directory.path)
        )
    return address


def _tell(address: str, interval: float) -> Iterator[status_pb2.Status]:
    """Yield the statuses that the server at the address sends, until it ends. Raise RpcError."""
    with open_channel(address) as channel:
        stub = status_pb2_grpc.TrainerStatusStub(channel)
        status = stub.GetStatus(status_pb2.GetStatusRequest(), timeout=ATTEMPT_SECONDS, wait_for_ready=True)
        if is_final(status):  # the server may be gone before it could be asked again
            yield status
        else:
            yield from stub.WatchStatus(status_pb2.WatchStatusRequest(interval_seconds=interval))


def _read_final(directory: RunDirectory) -> status_pb2.Status | None:
    """Return the final status of a run that has ended; None until then."""
    if not directory.result.exists():
        return None
    try:
        status = StatusReader(directory, load_training_job(directory.job)).read()
    except UserError:  # another run is starting in the directory, and has removed the files
        return None
    return status if is_final(status) else None


def _read_address(file: Path) -> str:
    """Return the address in the file; empty where there is none."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
