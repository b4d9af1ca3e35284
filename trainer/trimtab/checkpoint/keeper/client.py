"""Calls of one keeper; each has a deadline, and fails as `OSError` does."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
from trimtab_api.keeper.v1 import keeper_pb2, keeper_pb2_grpc
from trimtab_api.rpc.addresses import absolute_name
from trimtab_api.rpc.channels import format_grpc_error, open_channel

from trimtab.checkpoint.keeper.contents import CHUNK_BYTES

#: Seconds for a call without a file.
CALL_SECONDS = 3.0
#: A file has so many seconds, and one more for so many bytes.
FILE_SECONDS, BYTES_PER_SECOND = 10.0, 1e6


class AwayError(OSError):
    """A keeper does not answer."""


class Listing(NamedTuple):
    """What a keeper says of a folder."""

    names: list[str]
    host: str
    """Where the keeper is; empty if it does not know."""


class KeeperClient:
    """One keeper, by its address."""

    def __init__(self, worker: int, address: str) -> None:
        """Open a channel; nothing is called yet.

        Args:
            worker: Number of the keeper's worker.
            address: ``HOST:PORT``, or ``unix:PATH``.

        Raises:
            UserError: The job's certificates cannot be used.
        """
        self.worker = worker
        host, colon, port = address.rpartition(":")
        absolute = address if address.startswith("unix:") else f"{absolute_name(host)}{colon}{port}"
        self._channel = open_channel(absolute)
        self._stub = keeper_pb2_grpc.KeeperStub(self._channel)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def put(self, name: str, data: bytes | memoryview, sha256: bytes) -> Callable[[], None]:
        """Begin to send a file; return what waits until the keeper has it, and raises `OSError` if it does not."""
        messages = _messages(name, data, sha256)
        call: Any = self._stub.Put.future(messages, timeout=_seconds_for(len(data)))
        return lambda: self._result(call)

    def get(self, name: str) -> bytes:
        """Return a file.

        Raises:
            FileNotFoundError: The keeper does not have it.
            AwayError: The keeper does not answer.
            OSError: What came is not what was kept.
        """
        with self._as_os_error():
            messages: Any = self._stub.Get(keeper_pb2.GetRequest(name=name), timeout=_SECONDS_OF_LARGEST)
            try:
                first = next(messages)
                data = bytearray(first.size)
                end = 0
                for message in messages:
                    data[end : end + len(message.data)] = message.data
                    end += len(message.data)
            finally:
                messages.cancel()
        if end != first.size or hashlib.sha256(data).digest() != first.sha256:
            raise OSError(f"worker {self.worker}'s keeper sent {name} damaged")
        return bytes(data)

    def names(self, folder: str) -> Callable[[], Listing]:
        """Begin to list a folder; return what waits for the answer, and raises `OSError` if none comes."""
        call: Any = self._stub.List.future(keeper_pb2.ListRequest(folder=folder), timeout=CALL_SECONDS)

        def wait() -> Listing:
            answer = self._result(call)
            return Listing(list(answer.names), answer.host)

        return wait

    def remove(self, folder: str) -> Callable[[], None]:
        """Begin to remove a folder; return what waits for that, and raises `OSError` if it fails."""
        call: Any = self._stub.Remove.future(keeper_pb2.RemoveRequest(folder=folder), timeout=CALL_SECONDS)
        return lambda: self._result(call)

    def _result(self, call: Any) -> Any:
        with self._as_os_error():
            return call.result()

    @contextlib.contextmanager
    def _as_os_error(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
            if code is grpc.StatusCode.NOT_FOUND:
                raise FileNotFoundError from None
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise AwayError(f"worker {self.worker}'s keeper does not answer") from None
            raise OSError(f"worker {self.worker}'s keeper {format_grpc_error(error)}") from None


def _messages(name: str, data: bytes | memoryview, sha256: bytes) -> Iterator[keeper_pb2.PutRequest]:
    yield keeper_pb2.PutRequest(name=name, size=len(data), sha256=sha256)
    view = memoryview(data)
    for begin in range(0, len(view), CHUNK_BYTES):
        yield keeper_pb2.PutRequest(data=bytes(view[begin : begin + CHUNK_BYTES]))


def _seconds_for(num_bytes: int) -> float:
    return FILE_SECONDS + num_bytes / BYTES_PER_SECOND


#: Seconds for a file of unknown size; a peer that is gone is noticed by the channel's pings long before.
_SECONDS_OF_LARGEST = _seconds_for(1 << 30)
