"""A run followed from outside, from wherever it is to its end, beyond its status server and through restarts.

While the run goes on its status server tells (`trimtab.status.server`). The server ends with the attempt that it
serves: whoever asks it then loses the connection, in the middle of a message or before the first, and no server can
wait for those who have not called yet. So how a run ended is read from its files where no server told it, and a
connection that is lost says only that it is time to look there, or for the server of the next attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from trimtab_api.channels import explain, open_channel
from trimtab_api.errors import UserError
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_api.trainingjob import load_training_job

from trimtab.status.notify_policy import is_final
from trimtab.status.status_reader import StatusReader

if TYPE_CHECKING:
    from trimtab.records.run_directory import RunDirectory

#: Seconds that a server has to answer before the run's files are looked at again.
ATTEMPT_SECONDS = 2.0
#: Seconds without a word from any server after which nobody is expected to tell more.
PATIENCE_SECONDS = 30.0
#: Seconds between attempts that fail at once.
RETRY_SECONDS = 0.05


class LostError(Exception):
    """The run's server has gone, no other came, and nothing says how the run ended; the message says what was heard."""


def follow(directory: RunDirectory, interval: float, patience: float = PATIENCE_SECONDS) -> Iterator[status_pb2.Status]:
    """The run's statuses: the one now, then every ``interval`` seconds and at news, up to the final one.

    Raises `UserError` where no run goes on there, and `LostError` after ``patience`` seconds of silence.
    """
    address = address_of(directory)
    heard, cause = time.monotonic(), ""
    while True:
        try:
            for status in _tell(address, interval):
                yield status
                if is_final(status):
                    return
                heard = time.monotonic()
            cause = "the server ended"
        except grpc.RpcError as error:
            cause = explain(error)
        if (final := _read_final(directory)) is not None:
            yield final
            return
        if time.monotonic() - heard > patience:
            raise LostError(f"no more status from {address}: {cause}")
        address = _read_address(directory.status_address) or address
        time.sleep(RETRY_SECONDS)


def address_of(directory: RunDirectory) -> str:
    """Where the status of the run in the directory is served. Raises `UserError` where no run goes on there."""
    address = _read_address(directory.status_address)
    if not address:
        raise UserError(
            "no run goes on there; `trimtab report` shows one that has ended", field="RUN", value=str(directory.path)
        )
    return address


def _tell(address: str, interval: float) -> Iterator[status_pb2.Status]:
    """What the server at the address tells. Raises RpcError."""
    with open_channel(address) as channel:
        stub = status_pb2_grpc.TrainerStatusStub(channel)
        status = stub.GetStatus(status_pb2.GetStatusRequest(), timeout=ATTEMPT_SECONDS, wait_for_ready=True)
        if is_final(status):  # a server that has told this may be gone before it is asked again
            yield status
        else:
            yield from stub.WatchStatus(status_pb2.WatchStatusRequest(interval_seconds=interval))


def _read_final(directory: RunDirectory) -> status_pb2.Status | None:
    """How the run ended; None while it goes on."""
    if not directory.result.exists():
        return None
    try:
        status = StatusReader(directory, load_training_job(directory.job)).read()
    except UserError:  # another run begins in the directory, and has removed them
        return None
    return status if is_final(status) else None


def _read_address(file: Path) -> str:
    """Empty where there is none."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
